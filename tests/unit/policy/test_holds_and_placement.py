"""Holds and their clock, where jobs are put, and what is said about those that wait."""

from dataclasses import replace
from typing import Any

import pytest
from makeway_policy.choices import Preempt, Start, Wait, Withdraw
from makeway_policy.decide import decide
from makeway_policy.explain import explain, what_if
from makeway_policy.model import GpuHealth, LeaseState, NodeHealth, Reason, Shape, StopCause, Topology
from makeway_policy.placement import suitable
from makeway_policy.rooms import node_room
from makeway_policy.rules import Strategy
from makeway_policy.state import is_leaving

Pool = Any


def withdrawals(pool: Pool) -> list[tuple[float, StopCause]]:
    return [(at, choice.cause) for at, choice in pool.choices if isinstance(choice, Withdraw)]


def test_a_start_that_no_node_begins_expires_and_the_job_backs_off(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("job-1")
    pool._started = lambda run_id: None
    pool.run_until(31)
    assert withdrawals(pool)[0] == (30, StopCause.HOLD_EXPIRED)
    job = pool.state.jobs["job-1"]
    assert (job.failed_holds, job.no_victims_until) == (1, 90)
    pool.run_until(61)
    assert pool.state.jobs["job-1"].no_victims_until == 60 + 120


def test_a_job_backs_off_for_no_longer_than_a_duration_may_be(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("a")
    pool._started = lambda run_id: None
    pool.run_until(1)
    pool.state.put_job(replace(pool.state.jobs["a"], failed_holds=5000))
    pool.run_until(30)
    job = pool.state.jobs["a"]
    assert (job.failed_holds, job.no_victims_until) == (5001, 30 + 366 * 86400)


def test_a_holder_starts_on_other_gpus_as_soon_as_they_suffice(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    pool.submit("slow", gpus=1, pri=1, grace=300)
    pool.submit("busy", gpus=1, pri=60, dur=40)
    pool.submit("job-hi", gpus=1, pri=50, at=10)
    pool.run_until(60)
    assert withdrawals(pool) == [(40, StopCause.HOLD_MOVED)]
    assert pool.starts_of("job-hi") == [40]


def test_a_hold_on_a_gpu_that_is_quarantined_is_decided_again(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.add_node("node-b", 1)
    pool.submit("low-1", pri=1, grace=60)
    pool.submit("low-2", pri=2, grace=60)
    pool.submit("job-hi", pri=50, at=10)
    gpu = pool.state.gpus["node-b/0"]
    pool.at(20, lambda: pool.state.put_gpu(replace(gpu, health=GpuHealth.QUARANTINED)))
    pool.run_until(100)
    assert withdrawals(pool) == [(20, StopCause.HOLD_LOST)]
    assert pool.node_of("job-hi") == "node-a"


def test_a_preemptor_takes_the_whole_placement_and_says_who_leaves(pool: Pool) -> None:
    pool.add_node("node-a", 4)
    for number, pri in enumerate([5, 1, 3], start=1):
        pool.submit(f"low-{number}", pri=pri, grace=30)
    pool.submit("job-hi", gpus=2, pri=50, at=10)
    pool.run_until(11)
    (preempt,) = [choice for _, choice in pool.choices if isinstance(choice, Preempt)]
    assert [victim.job_id for victim in preempt.victims] == ["low-2"]
    assert preempt.run.lease_state is LeaseState.NEXT
    assert len(preempt.run.leases) == 2
    assert preempt.run.after == {"low-2.1"}
    assert preempt.explanation["low-3.1"] == "spared: not needed"


def test_gpus_that_drain_anyway_are_waited_for_before_new_victims_are_taken(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    pool.submit("low-1", pri=1, grace=30)
    pool.submit("low-2", pri=2, grace=30)
    pool.submit("job-hi", pri=50, at=10)
    pool.cancel("job-hi", at=15)
    pool.submit("job-next", pri=40, at=20)
    pool.run_until(60)
    assert pool.evictions == {"low-1": 1}
    assert pool.starts_of("job-next") == [40]


def test_a_hold_is_taken_over_by_the_ordinary_rule(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("low-1", pri=1, grace=30)
    pool.submit("job-hi", pri=50, at=10, dur=10)
    pool.submit("job-top", pri=90, at=20, dur=10)
    pool.run_until(100)
    assert pool.evictions == {"low-1": 1}
    assert pool.starts_of("job-top") == [40]
    assert pool.starts_of("job-hi") == [50]


@pytest.mark.parametrize(("strategy", "node"), [("binpack", "node-b"), ("spread", "node-a")])
def test_binpack_fills_the_fullest_node_and_spread_the_emptiest(pool_under: Any, strategy: str, node: str) -> None:
    pool = pool_under(placement=Strategy(strategy))
    pool.add_node("node-a", 4)
    pool.add_node("node-b", 4)
    pool.submit("first", gpus=2, nodes=frozenset({"node-b"}))
    pool.submit("second", at=1)
    pool.run_until(2)
    assert pool.node_of("second") == node


def test_linked_gpus_are_kept_together(pool: Pool) -> None:
    pool.add_node("node-a", 0)
    for index, group in enumerate([0, 0, 1, 1]):
        pool.add_gpu("node-a", index, link_group=group)
    pool.submit("one", gpus=1)
    pool.submit("two", gpus=2, at=1, topology=Topology.REQUIRE)
    pool.submit("three", gpus=2, at=2, topology=Topology.REQUIRE)
    pool.run_until(3)
    run = pool.state.run_of("two")
    assert [lease.gpu_id for lease in run.leases] == ["node-a/2", "node-a/3"]
    assert pool.state.run_of("three") is None


def test_explaining_names_the_place_the_gpus_and_what_protects_whom(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    pool.submit("fixed", pri=1, preemptible=False)
    pool.submit("equal", pri=50)
    pool.submit("first", pri=60, gpus=2, at=5)
    pool.submit("second", pri=50, at=10)
    pool.run_until(20)
    told = explain(pool.state, pool.policy, "second", pool.now)
    assert told is not None
    assert (told.place, told.ahead) == (2, ("first",))
    assert told.gpus == {"in use": 2}
    guards = {each.job_id: each.protection and each.protection.guard for each in told.possible_victims}
    assert guards == {"fixed": "not_preemptible", "equal": None}
    assert "a priority of at least 51" in told.would_help


def test_explaining_gives_the_expected_start_or_why_there_is_none(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.add_node("node-b", 1, type_name="other")
    pool.add_team("small", limit=0)
    pool.submit("run-1", pri=9, gpu_type="gpu-x", time_limit_seconds=100.0)
    pool.submit("run-2", pri=9, gpu_type="other")
    pool.submit("job-1", at=10, gpu_type="gpu-x")
    pool.submit("job-2", at=10, gpu_type="other")
    pool.submit("job-3", at=10, team="small")
    pool.submit("job-4", at=10, begin_at=500.0)
    pool.run_until(20)

    def told(job_id: str) -> tuple[float | None, str]:
        found = explain(pool.state, pool.policy, job_id, pool.now)
        assert found is not None
        return found.expected_start, found.no_start

    assert told("run-1") == (None, "it runs, or starts now")
    assert told("job-1") == (100.0, "")
    assert told("job-2") == (None, "runs on the GPUs that would do have no time limit")
    assert told("job-3") == (None, "the limit of team small is 0 GPUs and the job asks for 1")
    assert told("job-4") == (500.0, "")


def test_what_if_changes_nothing(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("job-1", pri=5)
    pool.run_until(10)
    asked = replace(pool.state.jobs["job-1"], job_id="asked", order=99, own_priority=1)
    told = what_if(pool.state, pool.policy, asked, pool.now)
    assert told.refusal is not None
    assert told.refusal.reason is Reason.NO_ROOM
    assert told.place == 1
    assert "asked" not in pool.state.jobs
    assert decide(pool.state, pool.policy, pool.now).choices == ()


def test_a_job_hears_its_reason_once(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    for number in range(4):
        pool.submit(f"job-{number}", at=number)
    pool.run_until(100)
    told = [choice.job_id for _, choice in pool.choices if isinstance(choice, Wait)]
    assert sorted(told) == ["job-1", "job-2", "job-3"]


def test_a_rollback_leaves_the_pool_as_it_was(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    pool.submit("low-1", pri=1)
    pool.submit("low-2", pri=2)
    pool.run_until(5)
    asked = replace(pool.state.jobs["low-1"], job_id="hi", order=99, own_priority=90, runs=0)
    pool.state.put_job(asked)
    before = (dict(pool.state.jobs), dict(pool.state.runs), pool.state.team_usage("team"))
    pool.state.begin()
    first = decide(pool.state, pool.policy, 10.0)
    assert any(is_leaving(run) for run in pool.state.runs.values())
    pool.state.rollback()
    assert (dict(pool.state.jobs), dict(pool.state.runs), pool.state.team_usage("team")) == before
    assert decide(pool.state, pool.policy, 10.0).choices == first.choices


def test_a_gpu_counts_once_while_one_run_leaves_for_another_of_the_team(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("low", pri=1, grace=30)
    pool.submit("high", pri=50, at=10)
    pool.run_until(15)
    assert pool.state.team_usage("team") == 1


def test_a_share_starts_beside_others_of_its_kind_only(pool: Pool) -> None:
    pool.add_node("node-a", 1, vram_mib=80)
    pool.submit("sized", vram_mib=30)
    pool.submit("slots", shares=1, at=1)
    pool.submit("more", vram_mib=50, at=2)
    pool.run_until(3)
    assert pool.running() == {"sized", "more"}
    assert any(isinstance(choice, Start) for _, choice in pool.choices)


def test_a_small_victim_is_spared_once_a_large_one_has_to_leave_anyway(pool: Pool) -> None:
    pool.add_node("node-a", 8)
    pool.submit("large", gpus=6, pri=2)
    pool.submit("small", gpus=1, pri=1)
    pool.submit("job-hi", gpus=6, pri=50, at=10)
    pool.run_until(20)
    assert pool.evictions == {"large": 1}
    assert pool.running() == {"small", "job-hi"}


def test_explaining_gives_the_words_of_a_node_that_takes_no_runs(pool: Pool) -> None:
    pool.add_node("node-a", 2, refusal="less than 5 % of its disk is free")
    pool.submit("job-1")
    pool.run_until(1)
    told = explain(pool.state, pool.policy, "job-1", pool.now)
    assert told is not None
    assert told.gpus == {"node takes no runs: less than 5 % of its disk is free": 2}
    assert not pool.starts


def test_whoever_loses_a_hold_is_decided_again_before_those_behind_it(pool: Pool) -> None:
    pool.add_node("node-a", 4)
    for number, grace in enumerate([5, 20, 40, 60], start=1):
        pool.submit(f"low-{number}", pri=1, grace=grace)
    pool.submit("job-hi", gpus=4, pri=100, dur=120, at=100)
    pool.submit("above", pri=200, dur=600, time_limit_seconds=602, at=110)
    for number in range(1, 4):
        pool.submit(f"mid-{number}", pri=50, dur=600, time_limit_seconds=602, preemptible=False, at=110)
    pool.submit("short", pri=50, dur=50, time_limit_seconds=52, at=110)
    pool.run_until(2000)
    assert pool.starts_of("above") == [110]
    assert pool.starts_of("short") == [120]
    assert pool.starts_of("job-hi") == [710]
    assert min(pool.starts_of("mid-1")) == 830


def test_a_preemptor_waits_for_its_own_victim_alone(pool: Pool) -> None:
    pool.add_node("node-a", 2, cpus=8.0, memory_mib=1000)
    pool.submit("low-1", pri=1, grace=60)
    pool.submit("low-2", pri=2, grace=5)
    pool.submit("hi-1", pri=100, dur=10, at=100)
    pool.submit("hi-2", pri=100, dur=10, at=101)
    pool.run_until(2000)
    assert pool.starts_of("hi-2") == [106]
    assert pool.starts_of("hi-1") == [116]


def test_a_hold_is_taken_over_while_its_gpus_still_drain(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    pool.submit("low-1", pri=1, grace=20)
    pool.submit("low-2", pri=1, grace=40)
    pool.submit("job-hi", gpus=2, pri=100, dur=120, at=100)
    pool.submit("above", pri=200, dur=10, at=101)
    pool.run_until(2000)
    assert pool.starts_of("above") == [120]
    assert pool.starts_of("job-hi") == [140]
    assert pool.evictions == {"low-1": 1, "low-2": 1}


def test_of_equal_sets_of_victims_linked_cards_come_before_near_ones(pool: Pool) -> None:
    for node, groups in (("node-a", (0, 0, 1, 1)), ("node-b", (0, 1, 0, 1))):
        pool.add_node(node, 0)
        for index, group in enumerate(groups):
            pool.add_gpu(node, index, link_group=group)
    for node, taken in (("node-a", (0, 3)), ("node-b", (0, 2))):
        for index in range(4):
            others = frozenset(f"{node}/{other}" for other in range(4) if other != index)
            fixed = index in taken
            pool.submit(
                f"{node}-{index}", pri=1, preemptible=not fixed, nodes=frozenset({node}), avoid_gpus=others
            )  # fmt: skip
    pool.submit("job-hi", pri=9, gpus=2, at=10)
    pool.run_until(11)
    assert pool.evictions == {"node-b-1": 1, "node-b-3": 1}


def test_a_holder_moves_to_free_gpus_only_within_its_teams_limit(pool: Pool) -> None:
    """Else it is decided again as it was, and so on for ever."""
    pool.add_node("node-a", 2)
    pool.add_team("a", limit=1)
    pool.submit("victim", team="a", pri=1, grace=20)
    pool.submit("other", team="b", pri=500, dur=15)
    pool.submit("job-hi", team="a", pri=100, dur=10, at=10)
    pool.run_until(100)
    assert pool.starts_of("job-hi") == [30]
    assert not [choice for _, choice in pool.choices if isinstance(choice, Withdraw)]


def test_a_holder_moves_to_free_gpus_when_another_team_leaves_for_it(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    pool.add_team("a", limit=1)
    pool.submit("victim", team="b", pri=1, grace=20)
    pool.submit("other", team="b", pri=500, dur=15)
    pool.submit("job-hi", team="a", pri=100, dur=10, at=10)
    pool.run_until(100)
    assert pool.starts_of("job-hi") == [15]


def test_a_node_of_which_every_card_leaves_too_late_takes_nobody(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("job-1")
    pool.run_until(1)
    room = node_room(pool.state, pool.state.nodes["node-a"])
    assert list(suitable(replace(room, cards=()), Shape(), pool.policy)) == []


def taken_over_hold(pool: Pool) -> None:
    """A hold on node-a behind a run that leaves slowly, taken over by another job whose node has not answered yet."""
    pool.add_node("node-a", 1)
    pool.submit("low", pri=1, grace=100.0)
    pool.submit("mid", pri=5, at=10)
    pool.submit("high", pri=9, at=12)


def test_a_hold_that_no_node_has_been_told_of_is_decided_again_when_its_node_falls_silent(pool: Pool) -> None:
    taken_over_hold(pool)
    pool.unanswered = {"mid.1"}
    pool.run_until(13)
    run = pool.state.run_of("high")
    assert run is not None
    assert run.lease_state is LeaseState.PENDING
    pool.change_node("node-a", at=20, health=NodeHealth.UNKNOWN)
    pool.at(30, lambda: pool.add_node("node-b", 1))
    pool.run_until(40)
    assert pool.node_of("high") == "node-b"
    assert pool.starts_of("high") == [30]


def test_a_hold_whose_node_has_been_told_waits_for_it(pool: Pool) -> None:
    taken_over_hold(pool)
    pool.run_until(13)
    assert pool.node_of("high") == "node-a"
    pool.change_node("node-a", at=20, health=NodeHealth.UNKNOWN)
    pool.run_until(25)
    run = pool.state.run_of("high")
    assert run is not None
    assert (run.lease_state, run.withdrawing) == (LeaseState.NEXT, False)
