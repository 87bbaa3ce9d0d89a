"""What a job avoids after its runs were lost, and that nobody waits for ever because of it."""

from dataclasses import replace
from typing import Any

import pytest
from makeway_policy.explain import explain
from makeway_policy.model import Avoidance, GpuHealth, NodeHealth
from makeway_policy.retries import Cause, Ended, Following, Outcome, Retries, after_end, to_avoid
from makeway_policy.rules import Policy

Pool = Any


def gpus_of(pool: Pool, job_id: str) -> list[str]:
    run = pool.state.run_of(job_id)
    assert run is not None
    return [lease.gpu_id for lease in run.leases]


def following(cause: Cause, in_a_row: int = 0) -> Following:
    return after_end(Ended(cause=cause, failures_in_a_row=in_a_row), Retries(), Policy())


@pytest.mark.parametrize(
    ("cause", "avoided"),
    [
        (Cause.NODE_LOST, (("n",), ())),
        (Cause.OURS, (("n",), ())),
        (Cause.CARD_LOST, ((), ("g",))),
        (Cause.PREEMPTED, ((), ())),
    ],
)
def test_the_node_or_card_of_a_loss_is_avoided(cause: Cause, avoided: tuple[tuple[str, ...], ...]) -> None:
    found = to_avoid(Avoidance(), following(cause), 100.0, nodes=["n"], gpus=["g"])
    assert (found.nodes, found.gpus) == avoided


def test_it_is_avoided_for_one_minute_from_the_next_try_doubling_to_ten() -> None:
    avoidance, in_a_row, seconds = Avoidance(), 0, []
    while (after := following(Cause.OURS, in_a_row)).outcome is Outcome.REQUEUE:
        avoidance = to_avoid(avoidance, after, 100.0, nodes=[f"n{in_a_row % 3}"])
        seconds.append(avoidance.until - 100.0 - after.delay_seconds)
        in_a_row = after.failures_in_a_row
    assert seconds == [60, 120, 240, 480, 600, 600, 600, 600, 600]
    assert avoidance.nodes == ("n0", "n1", "n2")


def test_failures_before_a_run_of_ten_minutes_are_forgotten() -> None:
    before = Avoidance(nodes=("n0", "n1"), gpus=("g",), until=9.0)
    ended = Ended(cause=Cause.NODE_LOST, ran_seconds=600.0, failures_in_a_row=5)
    assert to_avoid(before, after_end(ended, Retries(), Policy()), 100.0, nodes=["n2"]).nodes == ("n2",)


def test_a_job_avoids_its_node_until_the_time_is_over(pool: Pool) -> None:
    for name in ("a", "b"):
        pool.add_node(name, 1)
    pool.submit("other", dur=1000, nodes=frozenset({"b"}))
    pool.submit("job", dur=10, avoidance=Avoidance(nodes=("a",), until=60.0))
    pool.run_until(59)
    assert pool.state.run_of("job") is None
    told = explain(pool.state, pool.policy, "job", pool.now)
    assert told is not None
    assert told.gpus == {"avoided after a loss": 1, "in use": 1}
    assert told.wakes_at == 60.0
    assert any(
        "it avoids a, where a run of it was lost or did not start, until 1970" in each for each in told.would_help
    )
    pool.run_until(61)
    assert pool.node_of("job") == "a"


def test_a_job_that_avoids_a_node_starts_on_another(pool: Pool) -> None:
    for name in ("a", "b"):
        pool.add_node(name, 1)
    pool.submit("job", avoidance=Avoidance(nodes=("a",), until=60.0))
    pool.run_until(1)
    assert pool.node_of("job") == "b"


@pytest.mark.parametrize("state", [NodeHealth.DEAD, NodeHealth.UNKNOWN])
def test_what_else_could_run_the_job_is_looked_at_again_when_the_nodes_change(pool: Pool, state: NodeHealth) -> None:
    for name in ("a", "b"):
        pool.add_node(name, 1)
    pool.submit("other", dur=1000, nodes=frozenset({"b"}))
    pool.submit("job", dur=1000, avoidance=Avoidance(nodes=("a",), until=600.0))
    pool.change_node("b", at=6, health=state)
    pool.run_until(5)
    assert pool.state.run_of("job") is None
    pool.run_until(6)
    assert pool.node_of("job") == "a"


def test_where_all_failed_the_one_that_failed_last_is_still_avoided(pool: Pool) -> None:
    for name in ("a", "b", "c"):
        pool.add_node(name, 1)
    pool.submit("other", dur=1000, nodes=frozenset({"b"}))
    pool.submit("job", avoidance=Avoidance(nodes=("b", "c", "a"), until=600.0))
    pool.run_until(5)
    assert pool.state.run_of("job") is None
    assert pool.state.jobs["job"].avoid_nodes == frozenset({"c", "a"})


def test_a_lost_card_is_avoided_alone_and_only_while_others_are_in_use(pool: Pool) -> None:
    pool.add_node("a", 2)
    pool.submit("job", dur=10, avoidance=Avoidance(gpus=("a/0",), until=600.0))
    pool.run_until(1)
    assert gpus_of(pool, "job") == ["a/1"]
    pool.run_until(20)
    pool.state.put_gpu(replace(pool.state.gpus["a/1"], health=GpuHealth.QUARANTINED))
    pool.submit("next", at=21, dur=10, avoidance=Avoidance(gpus=("a/0",), until=600.0))
    pool.run_until(21)
    assert gpus_of(pool, "next") == ["a/0"]
