"""A pass that ends early and goes on makes the choices of one pass; whoever comes meanwhile is decided in its place."""

from dataclasses import dataclass, field

import pytest
from makeway_policy.choices import Choice, Decisions, Preempt, Start
from makeway_policy.decide import decide
from makeway_policy.index import Index
from makeway_policy.model import Gpu, Job, Node, Reason, Shape
from makeway_policy.presets import DEFAULT
from makeway_policy.state import PoolState
from policy_history import History, Pool

STEPS = 60
SEEDS = 20


@dataclass
class Bounded(Pool):
    """A pool that ends a pass after a few choices, and goes on at once."""

    most: int = 1
    passes: list[int] = field(default_factory=list)

    def decide(self, now: float) -> Decisions:
        Index.of(self.state, self.policy).wakeups.few = self.few
        made: list[Choice] = []
        while True:
            decisions = decide(self.state, self.policy, now, most=self.most)
            made.extend(decisions.choices)
            self.passes.append(len(decisions.choices))
            if not decisions.choices or decisions.next_wake != now:
                return Decisions(choices=tuple(made), next_wake=decisions.next_wake)


def reasons(pool: Pool) -> dict[str, Reason | None]:
    """Why each job waits."""
    return {job_id: job.refusal and job.refusal.reason for job_id, job in pool.state.jobs.items()}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_bounded_passes_make_the_choices_of_one(seed: int) -> None:
    history = History(seed)
    history.eager.few = 0
    bounded = Bounded(history.policy, 0, history.sparing.state, most=1 + seed % 3)
    history.sparing = bounded
    history.live(STEPS)
    assert reasons(history.eager) == reasons(history.sparing)
    assert len(bounded.passes) > STEPS


def job(order: int, class_name: str) -> Job:
    return Job(
        job_id=f"j{order}", order=order, team="t", class_name=class_name, submitted_at=float(order),
        queued_since=float(order), shape=Shape(gpus=1),
    )  # fmt: skip


def test_an_urgent_job_that_comes_between_two_passes_is_next() -> None:
    state = PoolState()
    state.put_node(Node(node_id="n"))
    for index in range(8):
        state.put_gpu(Gpu(gpu_id=f"n/{index}", node_id="n", index=index, type_name="A", vram_mib=80))
    for order in range(1, 9):
        state.put_job(job(order, "normal"))
    first = decide(state, DEFAULT, 10.0, most=2)
    assert [choice.job_id for choice in first.choices] == ["j1", "j2"]
    assert first.next_wake == 10.0
    state.put_job(job(9, "urgent"))
    second = decide(state, DEFAULT, 10.0, most=2)
    assert [choice.job_id for choice in second.choices] == ["j9", "j3"]
    assert all(isinstance(choice, Start | Preempt) for choice in second.choices)


def test_all_jobs_are_told_why_they_wait_though_a_pass_before_ended_early() -> None:
    state = PoolState()
    state.put_node(Node(node_id="n"))
    state.put_gpu(Gpu(gpu_id="n/0", node_id="n", index=0, type_name="A", vram_mib=80))
    for order in range(1, 31):
        state.put_job(job(order, "normal"))
    for _ in range(40):
        decide(state, DEFAULT, 10.0, most=1)
    assert [job_id for job_id, waiting in state.jobs.items() if waiting.refusal is None] == ["j1"]
