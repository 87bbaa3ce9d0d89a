"""Runs that leave for nobody's sake: by hand, or because their node is drained."""

from collections.abc import Callable
from typing import Any

from makeway_policy.choices import Evict, Preempt
from makeway_policy.explain import explain
from makeway_policy.model import Drain, Group, NodeHealth, Reason, Refusal, StopCause, Trigger
from makeway_policy.rules import MayPreempt

Pool = Any
PoolUnder = Callable[..., Pool]


def evicted(pool: Pool) -> list[tuple[float, str, Trigger]]:
    return [(at, choice.job_id, choice.trigger) for at, choice in pool.choices if isinstance(choice, Evict)]


def refused(answer: Evict | Refusal) -> tuple[Reason, str]:
    assert isinstance(answer, Refusal)
    return answer.reason, answer.sentence


def test_a_run_that_is_preempted_by_hand_leaves_with_its_grace_and_comes_back(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("job-1", grace=20.0, dur=1000)
    pool.run_until(10)
    answer = pool.preempt("job-1")
    assert isinstance(answer, Evict)
    assert (answer.trigger, answer.victim.cause, answer.victim.counts) == (Trigger.MANUAL, StopCause.PREEMPTED, True)
    pool.run_until(100)
    assert pool.starts_of("job-1") == [0, 30]
    assert pool.state.jobs["job-1"].preempted_at == (10,)


def test_by_hand_a_protected_run_is_refused_unless_forced(pool_under: PoolUnder) -> None:
    pool = pool_under(minimum_run_seconds=60.0)
    pool.add_node("node-a", 2)
    pool.submit("job-1")
    pool.submit("job-2", preemptible=False)
    pool.run_until(10)
    until = "1970-01-01T00:01:00+00:00"
    assert refused(pool.preempt("job-1")) == (Reason.PROTECTED, f"it is inside its minimum run, until {until}")
    assert refused(pool.preempt("job-2")) == (Reason.PROTECTED, "it is not preemptible")
    forced = pool.preempt("job-2", force=True)
    assert isinstance(forced, Evict)
    assert forced.explanation == "preempted by hand, although it is not preemptible"


def test_a_run_after_a_preemption_is_said_to_cool_down_where_that_protects_it(pool_under: PoolUnder) -> None:
    for cool_down, what, until in (
        (300.0, "its cool-down after a preemption", "1970-01-01T00:06:15+00:00"),
        (30.0, "its minimum run", "1970-01-01T00:02:15+00:00"),
    ):
        pool = pool_under(minimum_run_seconds=60.0, cool_down_seconds=cool_down)
        pool.add_node("node-a", 1)
        pool.submit("job-1", grace=5.0)
        pool.run_until(70)
        assert isinstance(pool.preempt("job-1"), Evict)
        pool.run_until(100)
        assert refused(pool.preempt("job-1")) == (Reason.PROTECTED, f"it is inside {what}, until {until}")


def test_by_hand_no_end_is_promised_of_a_protection_that_time_does_not_end(pool_under: PoolUnder) -> None:
    pool = pool_under(preemptions_per_day=0)
    pool.add_node("node-a", 1)
    pool.submit("job-1")
    pool.run_until(10)
    assert refused(pool.preempt("job-1")) == (Reason.PROTECTED, "its 0 preemptions of the last 24 h are used up")


def test_by_hand_only_what_runs_can_be_preempted(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("job-1", pri=1)
    pool.submit("job-2", pri=1, at=1)
    pool.run_until(5)
    assert refused(pool.preempt("job-2"))[0] is Reason.NOT_RUNNING
    pool.submit("job-3", pri=9, at=6)
    pool.run_until(7)
    assert refused(pool.preempt("job-3", force=True)) == (
        Reason.NOT_RUNNING,
        "it does not run yet; GPUs are kept for it",
    )
    assert refused(pool.preempt("job-1", force=True))[1] == "it does not run, or is leaving already"


def test_a_drained_node_is_emptied_and_its_jobs_go_elsewhere(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    pool.add_node("node-b", 2)
    for name in ("job-1", "job-2"):
        pool.submit(name, dur=1000)
    pool.change_node("node-a", at=10, drain=Drain.GENTLY)
    pool.run_until(100)
    assert evicted(pool) == [(10, "job-1", Trigger.DRAIN), (10, "job-2", Trigger.DRAIN)]
    assert {pool.node_of(name) for name in ("job-1", "job-2")} == {"node-b"}
    assert all(pool.state.jobs[name].preempted_at == () for name in ("job-1", "job-2"))


def test_a_drain_waits_until_nothing_protects_a_run(pool_under: PoolUnder) -> None:
    pool = pool_under(minimum_run_seconds=60.0)
    pool.add_node("node-a", 2)
    pool.submit("job-1")
    pool.submit("job-2", preemptible=False, dur=200)
    pool.change_node("node-a", at=10, drain=Drain.GENTLY)
    pool.run_until(150)
    assert evicted(pool) == [(60, "job-1", Trigger.DRAIN)]
    pool.run_until(300)
    assert pool.ended == {"job-2": 200}
    assert not pool.running()


def test_a_forced_drain_waits_for_nobody(pool_under: PoolUnder) -> None:
    pool = pool_under(minimum_run_seconds=60.0)
    pool.add_node("node-a", 2)
    pool.submit("job-1")
    pool.submit("job-2", preemptible=False)
    pool.change_node("node-a", at=10, drain=Drain.FORCED)
    pool.run_until(20)
    assert len(evicted(pool)) == 2
    assert not pool.state.runs


def test_a_drain_keeps_a_hard_group_up(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    pool.at(5, lambda: pool.add_node("node-b", 2))
    pool.state.put_group(Group(name="web", max_down=1))
    for name in ("web-1", "web-2"):
        pool.submit(name, group="web", dur=500)
    pool.change_node("node-a", at=10, drain=Drain.GENTLY)
    pool.run_until(12)
    assert len(evicted(pool)) == 1
    pool.run_until(60)
    assert [at for at, _, _ in evicted(pool)] == [10, 15]


def test_a_hold_on_a_node_that_is_to_be_drained_is_decided_again(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.add_node("node-b", 1)
    pool.submit("low-1", pri=1, grace=60.0, nodes=frozenset({"node-a"}))
    pool.submit("low-2", pri=5, grace=30.0, nodes=frozenset({"node-b"}))
    pool.submit("job-hi", pri=9, at=10)
    pool.change_node("node-a", at=20, drain=Drain.GENTLY)
    pool.run_until(100)
    assert pool.starts_of("job-hi") == [50]
    assert pool.node_of("job-hi") == "node-b"


def test_a_drain_that_ends_lets_jobs_in_again(pool: Pool) -> None:
    pool.add_node("node-a", 1, drain=Drain.GENTLY)
    pool.submit("job-1")
    pool.run_until(5)
    told = explain(pool.state, pool.policy, "job-1", pool.now)
    assert told is not None
    assert told.gpus == {"node draining": 1}
    pool.change_node("node-a", at=10, drain=Drain.NO)
    pool.run_until(20)
    assert pool.starts_of("job-1") == [10]


def test_runs_on_a_silent_node_are_drained_once_it_is_heard(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("job-1")
    pool.change_node("node-a", at=10, health=NodeHealth.UNKNOWN, drain=Drain.GENTLY)
    pool.run_until(20)
    assert refused(pool.preempt("job-1", force=True))[1] == "nothing is heard of its node"
    assert not evicted(pool)
    pool.change_node("node-a", at=30, health=NodeHealth.READY)
    pool.run_until(40)
    assert evicted(pool) == [(30, "job-1", Trigger.DRAIN)]


def test_nobody_leaves_for_a_quota_that_eases_by_what_leaves_anyway(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.add_node("node-b", 1)
    pool.add_team("a", limit=2)
    pool.submit("own-low", team="a", pri=1, dur=1000)
    pool.submit("own-leaving", team="a", pri=2, dur=1000, grace=20.0)
    pool.run_until(5)
    pool.add_node("node-c", 1)
    assert isinstance(pool.preempt("own-leaving", force=True), Evict)
    pool.change("own-leaving", at=5, held=True)
    pool.submit("own-high", team="a", pri=9, at=6, dur=100)
    pool.run_until(60)
    assert pool.starts_of("own-low") == [0]
    assert pool.starts_of("own-high") == [25]


def test_a_preemption_that_waited_for_a_minimum_run_is_by_the_right_that_the_job_came_with(
    pool_under: PoolUnder,
) -> None:
    pool = pool_under(minimum_run_seconds=100.0)
    pool.add_node("node-a", 1)
    pool.submit("low", pri=10, grace=5.0, dur=1000)
    pool.submit("high", pri=100, at=10)
    pool.run_until(200)
    preemptions = [(at, choice.trigger) for at, choice in pool.choices if isinstance(choice, Preempt)]
    assert preemptions == [(100.0, Trigger.ARRIVAL)]


def test_a_preemption_that_only_age_allows_is_a_promotion(pool_under: PoolUnder) -> None:
    pool = pool_under(may_preempt=MayPreempt.ONCE_AGED, sla_wait_seconds=50.0)
    pool.add_node("node-a", 1)
    pool.submit("low", pri=10, grace=5.0, dur=1000)
    pool.submit("high", pri=100, at=10)
    pool.run_until(200)
    preemptions = [(at, choice.trigger) for at, choice in pool.choices if isinstance(choice, Preempt)]
    assert preemptions == [(110.0, Trigger.SLA_PROMOTION)]
