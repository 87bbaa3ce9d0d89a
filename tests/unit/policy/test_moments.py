"""What is stored of a wait stays true as time goes on: it names moments, not lengths of time."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from makeway_policy.choices import Wait
from makeway_policy.explain import explain
from makeway_policy.model import Reason
from makeway_policy.moments import moment

Pool = Any


def test_a_moment_is_said_in_utc_to_the_second_that_follows() -> None:
    assert moment(1_798_790_399.2) == "2027-01-01T08:00:00+00:00"
    assert moment(1e15) == "31690708-07-05T01:46:40+00:00"
    assert moment(float("inf")) == "never"


@pytest.mark.parametrize("day", [date(1970, 1, 1), date(1900, 2, 28), date(1999, 12, 25), date(2096, 2, 20)])
def test_a_moment_is_the_same_as_in_the_calendar(day: date) -> None:
    for later in range(500):
        at = datetime.combine(day + timedelta(days=later), time(23, 59, 58), UTC)
        assert moment(at.timestamp()) == at.isoformat()


def test_a_job_that_takes_no_victims_for_a_while_says_until_when(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("job-1", pri=5)
    pool.submit("job-2", pri=50, at=1, no_victims_until=100.0)
    pool.run_until(2)
    assert pool.state.jobs["job-2"].refusal.reason is Reason.BACKING_OFF
    assert pool.reason("job-2").endswith("takes no victims until 1970-01-01T00:01:40+00:00")


def test_gpus_that_are_kept_for_a_job_say_when_it_should_start(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    pool.submit("running", pri=50, preemptible=False, time_limit_seconds=100.0)
    pool.submit("large", pri=40, gpus=2, at=1)
    pool.submit("small", pri=30, at=2)
    pool.run_until(3)
    assert pool.state.jobs["small"].refusal.reason is Reason.RESERVED_FOR_ANOTHER
    assert "kept for job large, which is expected to start at 1970-01-01T00:01:" in pool.reason("small")


def test_gpus_that_are_kept_for_a_job_that_may_start_on_them_say_so(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.add_team("team-b", guarantee=1)
    pool.submit("borrows", team="team-a", pri=50)
    pool.submit("reclaims", team="team-b", pri=40)
    pool.run_until(1)
    said = [each.refusal.sentence for _, each in pool.choices if isinstance(each, Wait) and each.job_id == "borrows"]
    assert said[0] == "what is free is kept for job reclaims, which is expected to start now"


def test_a_protection_that_ends_says_when(pool_under: Any) -> None:
    pool = pool_under(minimum_run_seconds=60.0)
    pool.add_node("node-a", 1)
    pool.submit("job-1", pri=5)
    pool.submit("job-2", pri=50, at=1)
    pool.run_until(2)
    told = explain(pool.state, pool.policy, "job-2", pool.now)
    assert told is not None
    assert "time: the first protection of a run that it could take ends at 1970-01-01T00:01:00+00:00" in told.would_help
