"""Expected starts are kept from call to call and brought up to date where something changed: as if found anew."""

import pytest
from makeway_policy.card_times import CardTimes
from makeway_policy.index import Index
from makeway_policy.reservation import ExpectedStarts
from policy_history import History, Pool

STEPS = 60
SEEDS = 10


class Watched(History):
    """A history in which every waiting job's expected start is asked for after each decision."""

    def decide(self) -> None:
        super().decide()
        for pool in self.pools():
            ask_all(pool)


def ask_all(pool: Pool) -> None:
    index = Index.of(pool.state, pool.policy)
    for job_id in sorted(index.queue.place):
        job = pool.state.jobs[job_id]
        anew = ExpectedStarts(job.shape, CardTimes(job.shape))
        anew.nodes_changed(index.rooms)
        assert index.reservers.of(job) == anew.earliest(job, pool.state, pool.policy, index.rooms)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_kept_of_expected_starts_is_what_is_so(seed: int) -> None:
    Watched(seed).live(STEPS)
