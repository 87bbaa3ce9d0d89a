"""Nobody waits for another who waits for it in turn: each would leave GPUs to the other for ever."""

import pytest
from makeway_policy.index import Index
from makeway_policy.model import Reason
from policy_history import History, Pool

STEPS = 60
SEEDS = (7, 11, 85, 196, 224, 226, *range(6))
"""Histories in which jobs did once, and a few others."""


class Watched(History):
    """A history in which nobody may wait in a circle after any decision."""

    def decide(self) -> None:
        super().decide()
        for pool in self.pools():
            behind = kept_for(pool)
            for job_id in behind:
                assert job_id not in following(behind, job_id), (job_id, behind)


def kept_for(pool: Pool) -> dict[str, str]:
    """For whom the GPUs are kept that the first job of each bucket could have."""
    found = {}
    for bucket, _ in Index.of(pool.state, pool.policy).queue.place.values():
        refusal = bucket.blocked
        if refusal is not None:
            own = refusal.detail.get("job") if refusal.reason is Reason.RESERVED_FOR_ANOTHER else None
            other = refusal.detail.get("kept_for") or own
            if other is not None:
                found[bucket.head] = other
    return found


def following(behind: dict[str, str], job_id: str) -> set[str]:
    """All for whom a job waits, and for whom they wait."""
    found: set[str] = set()
    while (job_id := behind.get(job_id, "")) and job_id not in found:
        found.add(job_id)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_waits_in_a_circle(seed: int) -> None:
    Watched(seed).live(STEPS)
