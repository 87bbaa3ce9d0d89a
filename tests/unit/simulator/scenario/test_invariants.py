"""What must hold in every scenario is seen when it does not."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from makeway_policy import lifecycle
from makeway_policy.model import Gpu, Job, Lease, LeaseState, Member, Node, Run, StopCause, Team
from makeway_policy.presets import PLAIN
from makeway_policy.state import PoolState
from makeway_simulator.record import HoldLost
from makeway_simulator.scenario.invariants import Watcher


def run_of(job_id: str, gpu: int = 0, number: int = 1, **given: object) -> Run:
    lease = Lease(gpu_id=f"node-a/{gpu}", vram_mib=100, slots=4)
    values = {"lease_state": LeaseState.LIVE, "started_at": 0.0, **given}
    return Run(
        run_id=f"{job_id}.{number}", job_id=job_id, number=number, v=0, decided_at=0.0,
        members=(Member(node_id="node-a", leases=(lease,)),), **values,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.fixture
def state() -> PoolState:
    state = PoolState()
    state.put_node(Node(node_id="node-a"))
    state.put_team(Team(team_id="team"))
    for index in range(2):
        gpu = Gpu(gpu_id=f"node-a/{index}", node_id="node-a", index=index, type_name="X", vram_mib=100)
        state.put_gpu(gpu)
    for order, job_id in enumerate(("a", "b"), start=1):
        state.put_job(Job(job_id=job_id, order=order, team="team", class_name="normal", submitted_at=0, queued_since=0))
    return state


def oversell(state: PoolState) -> None:
    state.put_run(run_of("a"))
    state.put_run(run_of("b"))


def run_twice(state: PoolState) -> None:
    state.put_run(run_of("a", gpu=0))
    state.put_run(run_of("a", gpu=1, number=2))


def evict_the_protected(state: PoolState) -> None:
    state.put_run(run_of("b", lease_state=LeaseState.NEXT, started_at=None, after=frozenset({"a.1"})))
    state.put_job(replace(state.jobs["a"], preemptible=False))
    state.put_run(run_of("a", lease_state=LeaseState.LEAVING, noticed_at=5.0, stop_cause=StopCause.PREEMPTED))


@pytest.mark.parametrize(("break_it", "number"), [(oversell, "(1)"), (run_twice, "(2)"), (evict_the_protected, "(4)")])
def test_a_breach_is_seen(state: PoolState, break_it: Callable[[PoolState], None], number: str) -> None:
    watcher = Watcher(policy=PLAIN, made_way={("a", 5.0): "b"})
    watcher.look(0.0, state)
    assert not watcher.violations
    break_it(state)
    watcher.look(1.0, state)
    assert any(number in each for each in watcher.violations), watcher.violations


def test_a_job_that_comes_back_after_its_end_is_seen(state: PoolState) -> None:
    watcher = Watcher(policy=PLAIN)
    job = state.jobs["a"]
    watcher.look(0.0, state)
    state.remove_job("a")
    watcher.look(1.0, state)
    state.put_job(job)
    watcher.look(2.0, state)
    assert any("(4)" in each for each in watcher.violations)


def watch_a_victim_come_back(state: PoolState, holds_lost: tuple[HoldLost, ...] = ()) -> list[str]:
    """What is seen when `a` made way for `b`, and starts again while `b` waits."""
    watcher = Watcher(policy=PLAIN, made_way={("a", 5.0): "b"})
    leaving = run_of("a", lease_state=LeaseState.LEAVING, noticed_at=5.0, stop_cause=StopCause.PREEMPTED)
    state.put_run(leaving)
    state.put_run(run_of("b", lease_state=LeaseState.NEXT, started_at=None, after=frozenset({"a.1"})))
    watcher.look(5.0, state)
    lifecycle.run_released(state, "b.1", 6.0)
    lifecycle.run_released(state, "a.1", 6.0)
    state.put_run(run_of("a", number=2))
    watcher.holds_lost = holds_lost
    watcher.look(7.0, state)
    return [each for each in watcher.violations if "(5)" in each]


def test_a_victim_that_starts_again_in_the_place_of_whoever_it_made_way_for_is_seen(state: PoolState) -> None:
    assert watch_a_victim_come_back(state)


def test_a_victim_may_start_again_when_whoever_it_made_way_for_has_lost_its_hold(state: PoolState) -> None:
    assert not watch_a_victim_come_back(state, (HoldLost(at=6.0, job_id="b"),))


def test_a_hold_that_was_lost_before_says_nothing_of_a_later_one(state: PoolState) -> None:
    assert watch_a_victim_come_back(state, (HoldLost(at=4.0, job_id="b"),))
