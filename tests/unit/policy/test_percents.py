"""Rights in per cent of the pool: what the pool counts, and what becomes of them when it grows or shrinks."""

from dataclasses import replace
from typing import Any

import pytest
from makeway_policy.checks import refuse_submit
from makeway_policy.index import Index
from makeway_policy.model import GpuHealth, Job, NodeHealth, Percents, Reason, Shape, Team

Pool = Any


@pytest.fixture
def still(pool: Pool) -> Pool:
    """A pool in which nobody is judged again but by the wake rules."""
    pool.policy = replace(pool.policy, recheck_seconds=1e9)
    Index.of(pool.state, pool.policy).wakeups.few = 0
    return pool


def reason(pool: Pool, job_id: str) -> Reason | None:
    refusal = pool.state.jobs[job_id].refusal
    return None if refusal is None else refusal.reason


def test_every_figure_of_a_team_may_be_in_per_cent_of_the_pool(pool: Pool) -> None:
    pool.add_node("node-a", 8)
    given = Percents(
        guarantee=25.0, limit=75.0, user_limit=12.5, class_limits={"scenario": 50.0}, allowances={"hard_groups": 100.0}
    )
    pool.add_team("a", class_limits={"other": 3.0}, allowances={}, percents=given)
    team = pool.state.team("a")
    assert (team.guarantee, team.limit, team.user_limit) == (2.0, 6.0, 1.0)
    assert team.class_limits == {"other": 3.0, "scenario": 4.0}
    assert team.allowances == {"hard_groups": 8.0}
    assert pool.state.teams["a"] == Team(team_id="a", class_limits={"other": 3.0}, allowances={}, percents=given), (
        "what was set up is kept as it was"
    )


def test_the_pool_counts_what_may_come_back_and_not_what_was_declared_dead(pool: Pool) -> None:
    pool.add_team("a", percents=Percents(limit=100.0))
    assert pool.state.team("a").limit == 0.0
    pool.add_node("node-a", 4)
    pool.add_node("node-b", 4)
    for index, health in enumerate(GpuHealth):
        pool.add_gpu("node-a", index, health=health)
    pool.change_node("node-a", at=1, cordoned=True)
    pool.change_node("node-b", at=1, health=NodeHealth.UNKNOWN)
    pool.run_until(1)
    assert pool.state.team("a").limit == 8.0
    pool.change_node("node-b", at=2, health=NodeHealth.DEAD)
    pool.run_until(2)
    assert pool.state.team("a").limit == 4.0
    pool.change_node("node-b", at=3, health=NodeHealth.READY)
    pool.run_until(3)
    assert pool.state.team("a").limit == 8.0
    pool.state.remove_node("node-b")
    assert pool.state.team("a").limit == 4.0


def test_of_a_card_in_mig_mode_its_instances_count(pool: Pool) -> None:
    pool.add_team("a", percents=Percents(limit=100.0))
    pool.add_node("node-a", 1, in_mig_mode=True)
    for index in (1, 2, 3):
        pool.add_gpu("node-a", index, mig_profile="1g.5gb")
    assert pool.state.team("a").limit == 3.0
    pool.add_gpu("node-a", 3, mig_profile="1g.5gb", health=GpuHealth.LOST)
    assert pool.state.team("a").limit == 2.0, "an instance that its node no longer reports comes not back"


def test_a_rollback_takes_back_what_the_pool_counted(pool: Pool) -> None:
    pool.add_team("a", percents=Percents(limit=50.0))
    pool.add_node("node-a", 4)
    pool.state.begin()
    pool.add_node("node-b", 4)
    assert pool.state.team("a").limit == 4.0
    pool.state.rollback()
    assert pool.state.team("a").limit == 2.0


def test_a_limit_in_per_cent_says_so_and_moves_with_the_pool(still: Pool) -> None:
    still.add_node("node-a", 4)
    still.add_team("a", percents=Percents(limit=50.0))
    for number in (1, 2, 3):
        still.submit(f"a-{number}", team="a")
    still.run_until(1)
    assert still.running() == {"a-1", "a-2"}
    assert "the limit of team a, 50% of the pool, is 2 GPUs" in still.reason("a-3")
    still.at(10, lambda: still.add_node("node-b", 2))
    still.run_until(11)
    assert still.starts_of("a-3") == [10]


def test_who_could_never_run_within_the_limit_runs_once_the_pool_is_large_enough(still: Pool) -> None:
    still.add_node("node-a", 2)
    still.add_team("a", percents=Percents(class_limits={"scenario": 50.0}))
    still.submit("a-1", team="a", gpus=2)
    still.run_until(1)
    assert reason(still, "a-1") is Reason.CLASS_LIMIT
    assert still.state.jobs["a-1"].refusal.detail["ever"] == "no"
    still.at(10, lambda: still.add_node("node-b", 2))
    still.run_until(11)
    assert still.starts_of("a-1") == [10]


def test_a_pool_that_shrinks_keeps_its_runs_and_takes_no_more(still: Pool) -> None:
    still.add_node("node-a", 4)
    still.add_node("node-b", 4)
    still.add_team("a", percents=Percents(limit=50.0))
    for number in range(4):
        still.submit(f"a-{number}", team="a", dur=100 if number else 50)
    still.change_node("node-b", at=10, health=NodeHealth.DEAD)
    still.submit("late", team="a", at=20)
    still.run_until(99)
    assert still.running() == {"a-1", "a-2", "a-3"}
    assert reason(still, "late") is Reason.TEAM_LIMIT
    still.run_until(101)
    assert still.starts_of("late") == [100]


def test_a_guarantee_that_grows_with_the_pool_lets_a_team_reclaim(still: Pool) -> None:
    still.add_node("node-a", 1)
    still.add_team("a", percents=Percents(guarantee=50.0))
    still.submit("b-1", team="b", pri=50)
    still.submit("a-1", team="a", pri=1, at=2)
    still.submit("b-2", team="b", pri=50, at=11)
    still.at(10, lambda: still.add_node("node-b", 1, type_name="gpu-y"))
    still.submit("a-2", team="a", pri=1, gpu_type="gpu-x", at=12)
    still.run_until(9)
    assert not still.evictions
    still.run_until(30)
    assert still.starts_of("a-1") == [10]
    assert not still.evictions, "a second one is beyond the guarantee"


def test_a_submit_is_refused_by_figures_in_gpus_alone(pool: Pool) -> None:
    needing = replace(pool.policy.classes["scenario"], needs_allowance=True)
    pool.policy = replace(pool.policy, classes={"scenario": needing})
    job = Job(
        job_id="a", order=1, team="a", user="u", class_name="scenario", submitted_at=0, queued_since=0,
        shape=Shape(gpus=9), preemptible=False,
    )  # fmt: skip
    refused = Percents(
        limit=10.0, class_limits={"scenario": 10.0}, allowances={"scenario": 5.0, "not_preemptible": 5.0}
    )
    pool.add_team("a", allowances={}, percents=refused)
    assert refuse_submit(pool.state, pool.policy, job, 0) is None
    pool.add_team("a", user_limit=8, allowances={}, percents=refused)
    found = refuse_submit(pool.state, pool.policy, job, 0)
    assert found is not None
    assert "the limit of each user of team a is 8 GPUs" in found.sentence
    for missing, field in (({"scenario": 5.0}, "preemptible"), ({"not_preemptible": 5.0}, "class")):
        pool.add_team("a", allowances={}, percents=Percents(allowances=missing))
        found = refuse_submit(pool.state, pool.policy, job, 0)
        assert found is not None
        assert found.detail["field"] == field


def test_a_share_of_an_empty_pool_is_nothing(pool: Pool) -> None:
    pool.add_team("a", percents=Percents(limit=10.0))
    pool.submit("a-1", team="a")
    pool.run_until(1)
    assert reason(pool, "a-1") is Reason.NEVER_FITS


def test_who_is_larger_than_an_allowance_in_per_cent_is_never_taken(still: Pool) -> None:
    needing = replace(still.policy.classes["scenario"], needs_allowance=True)
    still.policy = replace(still.policy, classes={"scenario": needing})
    still.add_node("node-z", 4)
    still.add_team("a", allowances={}, percents=Percents(allowances={"scenario": 10.0}))
    still.submit("a-1", team="a", gpus=4)
    still.run_until(1)
    assert still.state.jobs["a-1"].unsatisfiable
    assert reason(still, "a-1") is Reason.ALLOWANCE
