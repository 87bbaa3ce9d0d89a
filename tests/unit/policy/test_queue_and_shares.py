"""Turns in the queue: aging, reservations, gangs, groups, guarantees and fair shares."""

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from makeway_policy import presets
from makeway_policy.choices import Preempt
from makeway_policy.model import Group, Reason, RunState
from makeway_policy.rules import Backfill, Order

Pool = Any
PoolUnder = Callable[..., Pool]


def fair(pool: Pool) -> Pool:
    pool.policy = replace(pool.policy, order=Order.FAIR)
    return pool


def reason(pool: Pool, job_id: str) -> Reason | None:
    refusal = pool.state.jobs[job_id].refusal
    return None if refusal is None else refusal.reason


def place_gangs(pool: Pool) -> None:
    """Three gangs of four on three nodes, mixed two, one, one."""
    for name in ("node-a", "node-b", "node-c"):
        pool.add_node(name, 4)
    for number in (1, 2, 3):
        pool.submit(f"gang-{number}", gpus=1, members=4, pri=10, at=number - 1)


def test_one_whole_gang_is_evicted_and_not_a_slice_of_each(pool: Pool) -> None:
    place_gangs(pool)
    pool.submit("gang-hi", gpus=1, members=4, pri=100, at=60)
    pool.run_until(66)
    assert pool.evictions == {"gang-3": 1}
    assert pool.running() == {"gang-1", "gang-2", "gang-hi"}


@pytest.mark.parametrize("big_pri", [20, 10])
def test_a_big_job_gets_its_turn_and_short_ones_fill_the_gap(pool: Pool, big_pri: int) -> None:
    pool.add_node("node-a", 4)
    for number, seconds in enumerate([60, 120, 180, 240], start=1):
        pool.submit(f"run-{number}", pri=30, preemptible=False, dur=seconds, time_limit_seconds=seconds + 2)
    pool.submit("job-big", gpus=4, pri=big_pri, at=10, dur=100, time_limit_seconds=102)
    for number in range(1, 11):
        pool.submit(f"long-{number}", pri=10, at=20, dur=300, time_limit_seconds=302)
    pool.submit("short-1", pri=10, at=20, dur=50, time_limit_seconds=52)
    pool.run_until(115)
    assert reason(pool, "long-1") is Reason.RESERVED_FOR_ANOTHER
    pool.run_until(2000)
    assert pool.starts_of("short-1") == [60]
    assert pool.starts_of("job-big") == [240]
    assert pool.starts_of("long-1") == [340]


def test_with_backfill_off_nobody_passes_the_reserver(pool: Pool) -> None:
    pool.policy = replace(pool.policy, backfill=Backfill.OFF)
    pool.add_node("node-a", 2)
    pool.submit("run-1", pri=30, preemptible=False, dur=240, time_limit_seconds=242)
    pool.submit("job-big", gpus=2, pri=20, at=10, dur=100)
    pool.submit("short-1", pri=10, at=20, dur=5, time_limit_seconds=7)
    pool.run_until(300)
    assert not pool.starts_of("short-1")


def test_aging_lets_the_small_job_in(pool: Pool) -> None:
    scenario = pool.policy.classes["scenario"]
    minor = replace(scenario, name="minor", own_value_max=98, sla_wait_seconds=10.0)
    pool.policy = replace(
        pool.policy,
        classes=MappingProxyType({"scenario": replace(scenario, own_value_min=100), "minor": minor}),
        aging_points=1,
        aging_step=1,
        aging_cap=200,
    )
    pool.add_node("node-a", 1)
    for number in range(1, 41):
        pool.submit(f"hi-{number}", pri=100, dur=30, at=30 * (number - 1))
    pool.submit("low-1", class_name="minor", pri=50, dur=10, at=10)
    pool.run_until(1300)
    assert pool.starts_of("low-1") == [540]
    assert not pool.evictions


def test_without_aging_the_small_job_waits(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    for number in range(1, 21):
        pool.submit(f"hi-{number}", pri=100, dur=30, at=30 * (number - 1))
    pool.submit("low-1", pri=50, dur=10, at=10)
    pool.run_until(590)
    assert not pool.starts_of("low-1")


@pytest.mark.parametrize("hard", [True, False], ids=["hard", "soft"])
def test_a_group_at_its_limit_is_spared_while_there_is_another_way(pool: Pool, hard: bool) -> None:
    pool.add_node("node-a", 2)
    pool.add_node("node-b", 2)
    pool.state.put_group(Group(name="group-p", max_down=0, hard=hard))
    pool.submit("p-1", gpus=2, pri=1, group="group-p", nodes=frozenset({"node-a"}))
    pool.submit("n-1", gpus=2, pri=5, nodes=frozenset({"node-b"}))
    pool.submit("job-hi", gpus=2, pri=100, at=30)
    pool.submit("job-hi2", gpus=2, pri=100, at=60)
    pool.run_until(40)
    assert pool.evictions == {"n-1": 1}
    pool.run_until(70)
    assert pool.evictions["p-1"] == (0 if hard else 1)


def test_under_plain_an_aged_job_keeps_what_it_won_from_more_urgent_ones(pool: Pool) -> None:
    normal = replace(presets.PLAIN.classes["normal"], grace_seconds=5.0)
    classes = {
        "main": replace(normal, name="main", value=100, own_value_min=100, own_value_max=1000),
        "small": replace(normal, name="small", value=50, own_value_min=0, own_value_max=98, sla_wait_seconds=10.0),
    }
    pool.policy = replace(
        presets.PLAIN, classes=MappingProxyType(classes), default_class="main", aging_points=10, aging_step=1,
        aging_cap=200,
    )  # fmt: skip
    pool.add_node("node-a", 1)
    for number in range(1, 7):
        pool.submit(f"main-{number}", dur=30, at=30 * (number - 1))
    pool.submit("small-1", class_name="small", dur=10, at=10)
    pool.run_until(400)
    assert pool.starts_of("small-1") == [90]
    assert not pool.evictions


def test_a_team_of_weight_zero_is_last_and_still_gets_its_turn(pool: Pool) -> None:
    fair(pool).add_node("node-a", 2)
    for team, weight in (("z", 0), ("a", 1), ("b", 3)):
        pool.add_team(team, weight=weight)
    for team in ("z", "a", "b"):
        for number in (1, 2, 3):
            pool.submit(f"{team}-{number}", team=team, dur=60)
    pool.run_until(400)
    order = [name for _, name in pool.starts]
    assert {name[0] for name in order[:6]} == {"a", "b"}
    assert order[6:] == ["z-1", "z-2", "z-3"]


def test_a_team_of_weight_zero_is_not_last_within_its_guarantee(pool: Pool) -> None:
    fair(pool).add_node("node-a", 2)
    pool.add_team("a", weight=1)
    pool.add_team("z", weight=0, guarantee=1)
    for team, dur in (("z", 200), ("a", 60)):
        for number in (1, 2):
            pool.submit(f"{team}-{number}", team=team, dur=dur)
    pool.run_until(400)
    assert [name for _, name in pool.starts] == ["z-1", "a-1", "a-2", "z-2"]


def test_two_teams_share_what_is_beyond_their_guarantees_by_weight(pool: Pool) -> None:
    fair(pool)
    for number in range(10):
        pool.add_node(f"node-{number}", 10)
    pool.add_team("a", guarantee=10, weight=3)
    pool.add_team("b", guarantee=10, weight=1)
    for number in range(100):
        pool.submit(f"b-{number}", team="b")
        pool.submit(f"a-{number}", team="a")
    pool.run_until(1)
    assert pool.state.team_usage("a") == 70
    assert pool.state.team_usage("b") == 30


def test_a_run_inside_its_guarantee_is_spared_by_other_teams(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    pool.add_team("a", guarantee=1)
    pool.submit("a-1", team="a", pri=1)
    pool.submit("a-2", team="a", pri=2)
    pool.submit("b-1", team="b", pri=100, at=10)
    pool.submit("b-2", team="b", pri=100, at=10)
    pool.run_until(30)
    assert pool.evictions == {"a-1": 1}
    assert pool.running() == {"a-2", "b-1"}


def test_a_borrower_leaves_alone_what_a_team_within_its_guarantee_waits_for(pool: Pool) -> None:
    pool.add_node("node-a", 3)
    pool.add_team("a", guarantee=3)
    pool.submit("run-1", team="b", preemptible=False, dur=100, time_limit_seconds=100)
    pool.submit("a-1", team="a", gpus=3, at=10, dur=50)
    pool.submit("b-1", team="b", pri=50, at=20, dur=500, time_limit_seconds=500)
    pool.run_until(200)
    assert pool.starts_of("a-1") == [100]
    assert not pool.evictions


def test_a_class_limit_of_a_team_holds(pool: Pool) -> None:
    pool.add_node("node-a", 4)
    pool.add_team("a", class_limits={"scenario": 2})
    for number in range(3):
        pool.submit(f"a-{number}", team="a", dur=10 + number)
    pool.run_until(5)
    assert pool.running() == {"a-0", "a-1"}
    assert reason(pool, "a-2") is Reason.CLASS_LIMIT


@pytest.mark.parametrize(
    ("order", "starts"), [(Order.AUTO, ["a-1", "b-1"]), (Order.FAIR, ["a-1", "b-1"]), (Order.SUBMIT, ["a-1", "a-2"])]
)
def test_setting_weights_turns_fair_shares_on_unless_the_policy_says_otherwise(
    pool: Pool, order: Order, starts: list[str]
) -> None:
    pool.policy = replace(pool.policy, order=order)
    pool.add_node("node-a", 2)
    pool.add_team("b", weight=2)
    for name in ("a-1", "a-2", "b-1"):
        pool.submit(name, team=name[0])
    pool.run_until(1)
    assert [name for _, name in pool.starts] == starts


def test_weights_that_are_set_while_jobs_wait_order_them_anew(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    pool.submit("first", team="c", gpus=2, dur=10)
    for number, name in enumerate(("a-1", "a-2", "b-1")):
        pool.submit(name, team=name[0], at=1 + number, dur=100)
    pool.at(5, lambda: pool.add_team("a", weight=0))
    pool.run_until(400)
    assert [name for _, name in pool.starts] == ["first", "b-1", "a-1", "a-2"]


def test_a_share_that_would_exceed_the_guarantee_reclaims_nothing(pool: Pool) -> None:
    """Else the next one takes its hold back by priority, and so on for ever."""
    pool.add_node("node-a", 2)
    pool.add_team("a", guarantee=1)
    pool.submit("a-1", team="a", pri=500)
    pool.submit("b-1", team="b", pri=1000, grace=20)
    pool.submit("b-2", team="b", pri=2000, at=5)
    pool.submit("a-2", team="a", shares=16, pri=300, at=10)
    pool.run_until(60)
    assert pool.running() == {"a-1", "b-2"}
    assert pool.evictions == {"b-1": 1}
    assert not pool.starts_of("a-2")


def test_a_reclaim_is_explained_by_what_is_borrowed(pool: Pool) -> None:
    pool.add_node("node-a", 3)
    pool.add_team("a", guarantee=2)
    pool.add_team("b", guarantee=1)
    pool.submit("a-1", team="a", pri=200)
    pool.submit("b-1", team="b", pri=200, at=1)
    pool.submit("b-2", team="b", pri=200, at=2)
    pool.submit("a-2", team="a", pri=200, at=3)
    pool.run_until(4)
    (explained,) = [choice.explanation for _, choice in pool.choices if isinstance(choice, Preempt)]
    assert explained["b-2.1"] == (
        "leaves: team b borrows its GPUs, and they are within the guarantee of team a, cost 31 GPU-seconds"
    )
    assert explained["b-1.1"] == "spared: v 200 is not far enough under 200, and team b does not borrow its GPUs"
    assert explained["a-1.1"] == "spared: v 200 is not far enough under 200"


def test_jobs_in_hard_groups_are_bounded_by_their_allowance(pool: Pool) -> None:
    pool.add_node("node-a", 4)
    pool.add_team("a", allowances={"hard_groups": 2})
    pool.state.put_group(Group(name="web", max_down=0))
    pool.state.put_group(Group(name="batch", max_down=0, hard=False))
    for number in range(3):
        pool.submit(f"web-{number}", team="a", group="web", at=number)
    pool.submit("batch-1", team="a", group="batch", at=5)
    pool.run_until(10)
    assert pool.running() == {"web-0", "web-1", "batch-1"}
    assert reason(pool, "web-2") is Reason.ALLOWANCE
    assert "for hard groups is 2 GPUs" in pool.reason("web-2")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"limit": 1}, {"limit": 2}),
        ({"user_limit": 1}, {"user_limit": 2}),
        ({"class_limits": {"scenario": 1}}, {}),
        ({"gpu_hours_per_month": 5.0, "gpu_hours_used": 5.0}, {"gpu_hours_per_month": 5.0}),
    ],
)
def test_more_rights_count_at_once(pool: Pool, before: dict[str, Any], after: dict[str, Any]) -> None:
    pool.policy = replace(pool.policy, recheck_seconds=1e9)
    pool.add_node("node-a", 2)
    pool.add_team("a", **(before if "gpu_hours_used" not in before else {}))
    pool.submit("a-1", team="a")
    pool.run_until(1)
    pool.add_team("a", **before)
    pool.submit("a-2", team="a", at=2)
    pool.run_until(5)
    assert pool.running() == {"a-1"}
    pool.at(10, lambda: pool.add_team("a", **after))
    pool.run_until(11)
    assert pool.starts_of("a-2") == [10]


def test_a_gang_over_its_quota_takes_a_run_of_its_team_and_free_gpus_elsewhere(pool: Pool) -> None:
    for name in ("node-a", "node-b"):
        pool.add_node(name, 1)
    pool.add_team("a", limit=2)
    pool.submit("a-lo", team="a", pri=1)
    pool.submit("gang-hi", team="a", gpus=1, members=2, pri=100, at=10)
    pool.run_until(20)
    assert pool.evictions == {"a-lo": 1}
    assert pool.running() == {"gang-hi"}


def test_a_guarantee_that_is_given_lets_a_waiting_job_take_borrowed_gpus_at_once(pool: Pool) -> None:
    pool.policy = replace(pool.policy, recheck_seconds=1e9)
    pool.add_node("node-a", 1)
    pool.submit("b-1", team="b", pri=50)
    pool.submit("a-1", team="a", pri=1, at=2)
    pool.at(10, lambda: pool.add_team("a", guarantee=1))
    pool.run_until(20)
    assert pool.evictions == {"b-1": 1}


def test_a_stop_that_no_notice_has_carried_yet_counts_as_down(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    pool.state.put_group(Group(name="web", max_down=1))
    pool.submit("web-1", pri=1, group="web", grace=60.0)
    pool.submit("web-2", pri=1, group="web", grace=60.0)
    pool.submit("hi-1", pri=9, at=10)
    pool.run_until(11)
    (stopped,) = pool.evictions
    run = pool.state.run_of(stopped)
    pool.state.put_run(replace(run, state=RunState.RUNNING, noticed_at=None))
    pool.submit("hi-2", pri=9, at=12)
    pool.run_until(20)
    assert pool.evictions == {stopped: 1}
