"""The longest wait: a bound where there is one, else the cause."""

from dataclasses import replace
from typing import Any

import pytest
from makeway_policy.model import Avoidance, Team
from makeway_policy.rules import Policy
from makeway_policy.worst_case import worst_case_wait

Pool = Any


@pytest.fixture
def crowded(pool: Pool) -> Pool:
    pool.policy = Policy()
    pool.add_node("node-a", 4)
    pool.add_team("team", class_limits={"urgent": 1.0})
    pool.submit("runs", gpus=4, dur=3600, time_limit_seconds=3600.0)
    pool.submit("waits", gpus=2, at=10, dur=60, time_limit_seconds=60.0)
    pool.run_until(20)
    return pool


def ask(pool: Pool) -> Any:
    return worst_case_wait(pool.state, pool.policy, pool.state.jobs["waits"], pool.now)


def test_a_bound_is_given_where_everything_before_ends(crowded: Pool) -> None:
    told = ask(crowded)
    assert told.seconds is not None
    crowded.run_until(20 + told.seconds)
    assert crowded.starts_of("waits")


def test_what_the_job_avoids_yet_counts(crowded: Pool) -> None:
    crowded.run_until(21)
    before = ask(crowded).seconds
    crowded.change("waits", at=21, avoidance=Avoidance(nodes=("node-b",), until=80.0))
    crowded.add_node("node-b", 4)
    crowded.run_until(21)
    assert crowded.state.run_of("waits") is None
    assert ask(crowded).seconds == pytest.approx(before + 80 - 21)


@pytest.mark.parametrize(
    ("team", "word"),
    [(Team(team_id="team"), "not limited"), (Team(team_id="team", class_limits={"urgent": 3.0}), "3 GPUs")],
)
def test_classes_above_that_could_fill_the_pool_leave_no_bound(crowded: Pool, team: Team, word: str) -> None:
    crowded.state.put_team(team)
    told = ask(crowded)
    assert told.seconds is None
    assert word in told.cause


def test_a_run_without_a_time_limit_leaves_no_bound(crowded: Pool) -> None:
    crowded.state.put_job(replace(crowded.state.jobs["runs"], time_limit_seconds=None))
    assert "without a time limit" in ask(crowded).cause


def test_who_came_earlier_and_can_never_come_before_it_is_not_counted(crowded: Pool) -> None:
    crowded.policy = replace(crowded.policy, aging_cap=600)
    crowded.submit("later", gpus=2, at=21, dur=60, pri=650, time_limit_seconds=60.0)
    crowded.run_until(25)
    crowded.state.put_job(replace(crowded.state.jobs["waits"], time_limit_seconds=None))
    told = worst_case_wait(crowded.state, crowded.policy, crowded.state.jobs["later"], crowded.now)
    assert "job waits is before it" not in told.cause
