"""What becomes of jobs that end, wait too long, or are refused at once."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from makeway_policy import checks, presets
from makeway_policy.choices import Expire, Reclass
from makeway_policy.explain import explain
from makeway_policy.model import GpuHealth, Job, Mode, Overdue, Reason, Shape, Team
from makeway_policy.retries import Cause, Ended, Outcome, Retries, after_end
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState
from makeway_schemas.job_parts import DURATION_MAX_SECONDS, RETRIES_MAX
from makeway_schemas.policy_file import PolicyFile

Pool = Any


@pytest.mark.parametrize(
    ("cause", "outcome"),
    [
        (Cause.DONE, Outcome.SUCCEEDED),
        (Cause.CANCELLED, Outcome.CANCELLED),
        (Cause.TIME_LIMIT, Outcome.TIMED_OUT),
        (Cause.PREEMPTED, Outcome.REQUEUE),
        (Cause.NODE_LOST, Outcome.REQUEUE),
        (Cause.FAILED, Outcome.FAILED),
    ],
)
def test_each_cause_has_its_outcome(cause: Cause, outcome: Outcome) -> None:
    assert after_end(Ended(cause=cause, exit_code=1), Retries(), Policy()).outcome is outcome


def test_delays_double_up_to_their_limit_however_many_failures_a_policy_file_allows() -> None:
    most = PolicyFile(infrastructure_failures_max=RETRIES_MAX).infrastructure_failures_max
    policy = replace(Policy(), infrastructure_failures_max=most)
    lost = after_end(Ended(cause=Cause.OURS, failures_in_a_row=most - 2), Retries(), policy)
    retries = Retries(max=RETRIES_MAX, backoff_seconds=DURATION_MAX_SECONDS)
    failed = after_end(Ended(cause=Cause.FAILED, retries_used=RETRIES_MAX - 1), retries, policy)
    assert lost.delay_seconds == failed.delay_seconds == policy.retry_backoff_max_seconds


def test_own_failures_retry_with_a_doubling_delay_and_then_fail() -> None:
    retries = Retries(max=2, exit_codes=frozenset({7}))
    delays = []
    used = 0
    while True:
        following = after_end(Ended(cause=Cause.FAILED, exit_code=7, retries_used=used), retries, Policy())
        if following.outcome is not Outcome.REQUEUE:
            break
        delays.append(following.delay_seconds)
        used = following.retries_used
    assert delays == [10, 20]
    assert after_end(Ended(cause=Cause.FAILED, exit_code=8), retries, Policy()).outcome is Outcome.FAILED


def test_losses_in_a_row_are_requeued_elsewhere_and_then_held() -> None:
    in_a_row = 0
    delays = []
    while True:
        following = after_end(Ended(cause=Cause.NODE_LOST, failures_in_a_row=in_a_row), Retries(), Policy())
        if following.outcome is Outcome.HELD:
            break
        assert following.avoid_node
        delays.append(following.delay_seconds)
        in_a_row = following.failures_in_a_row
    assert delays[:4] == [0, 10, 20, 40]
    assert following.failures_in_a_row == 10


def test_a_loss_after_a_good_run_starts_the_count_anew() -> None:
    ended = Ended(cause=Cause.OURS, ran_seconds=600.0, failures_in_a_row=9)
    assert after_end(ended, Retries(), Policy()).failures_in_a_row == 1


@pytest.mark.parametrize(
    ("ended", "outcome"),
    [
        (Ended(cause=Cause.PREEMPTED, requeue=False), Outcome.FAILED),
        (Ended(cause=Cause.PREEMPTED, mode=Mode.CANCEL), Outcome.CANCELLED),
    ],
)
def test_a_preemption_can_be_the_end(ended: Ended, outcome: Outcome) -> None:
    assert after_end(ended, Retries(), Policy()).outcome is outcome


def test_a_job_that_waits_longer_than_it_may_expires(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("job-1", pri=10)
    pool.submit("job-2", pri=5, at=1, max_wait_seconds=60.0)
    pool.run_until(100)
    expired = [(at, choice.job_id) for at, choice in pool.choices if isinstance(choice, Expire)]
    assert expired == [(61, "job-2")]


def test_a_job_that_misses_its_deadline_goes_down_a_class(pool: Pool) -> None:
    scenario = pool.policy.classes["scenario"]
    lower = replace(scenario, name="lower", value=-10, own_value_min=-20, own_value_max=-5)
    pool.policy = replace(pool.policy, classes=MappingProxyType({"scenario": scenario, "lower": lower}))
    pool.add_node("node-a", 1)
    pool.submit("job-1", pri=10)
    pool.submit("job-2", pri=5, at=1, deadline=60.0)
    pool.run_until(100)
    changed = [choice for _, choice in pool.choices if isinstance(choice, Reclass)]
    assert [choice.class_name for choice in changed] == ["lower"]
    assert pool.state.jobs["job-2"].own_priority is None


def test_a_job_that_has_started_meets_both_limits(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("job-1", pri=1, deadline=60.0, max_wait_seconds=60.0)
    pool.submit("job-2", pri=5, at=30, dur=200)
    pool.run_until(100)
    assert not [choice for _, choice in pool.choices if isinstance(choice, Expire | Reclass)]


def test_a_promoted_job_counts_as_aged(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("job-1", at=0, pri=5)
    pool.submit("job-0", at=0, pri=5)
    pool.change("job-0", at=10, submitted_at=-5.0)
    pool.run_until(20)
    assert pool.running() == {"job-1"}
    pool.submit("job-2", at=30, pri=4, max_wait_seconds=5.0, on_max_wait=Overdue.PROMOTE)
    pool.run_until(40)
    assert pool.state.jobs["job-2"].promoted


def submit(**given: Any) -> Job:
    values: dict[str, Any] = {
        "job_id": "j", "order": 1, "team": "t", "class_name": "normal", "submitted_at": 0.0, "queued_since": 0.0
    }  # fmt: skip
    return Job(**{**values, **given})


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"class_name": "none"}, "class"),
        ({"own_priority": 690}, "priority"),
        ({"grace_seconds": 1801.0}, "preemption.grace"),
        ({"deadline": 5.0}, "deadline"),
        ({"begin_at": 50.0, "deadline": 50.0}, "begin_at"),
        ({"begin_at": 50.0, "max_wait_seconds": 50.0}, "begin_at"),
        ({"preemptible": False}, "preemptible"),
        ({"class_name": "urgent"}, "class"),
    ],
)
def test_a_submit_that_the_policy_forbids_is_refused_by_field(given: dict[str, Any], field: str) -> None:
    state = PoolState()
    state.put_team(Team(team_id="t", allowances={}))
    refusal = checks.refuse_submit(state, Policy(), submit(**given), now=10.0)
    assert refusal is not None
    assert refusal.detail["field"] == field


def test_more_than_the_team_could_ever_use_is_refused() -> None:
    state = PoolState()
    state.put_team(Team(team_id="t", limit=4.0))
    assert checks.refuse_submit(state, Policy(), submit(shape=Shape(gpus=4)), now=0.0) is None
    assert checks.refuse_submit(state, Policy(), submit(shape=Shape(gpus=5)), now=0.0) is not None


@pytest.mark.parametrize("policy", list(presets.PRESETS.values()), ids=list(presets.PRESETS))
def test_the_presets_contradict_nothing(policy: Policy) -> None:
    assert checks.problems(policy) == ()


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"delta": 0}, "delta"),
        ({"delta": 11}, "classes.normal.own_value_min"),
        ({"default_class": "x"}, "default_class"),
    ],
)
def test_a_wrong_policy_is_refused_by_the_path_of_the_field(change: dict[str, Any], path: str) -> None:
    assert any(problem.startswith(path) for problem in checks.problems(replace(Policy(), **change)))


def test_fifo_neither_preempts_nor_reorders(pool: Pool) -> None:
    pool.policy = replace(pool.policy, priorities=False, preemption=False)
    pool.add_node("node-a", 1)
    pool.submit("job-1", pri=1, dur=60)
    pool.submit("job-2", pri=5, at=10, dur=60)
    pool.submit("job-3", pri=100, at=20, dur=60)
    pool.run_until(200)
    assert [name for _, name in pool.starts] == ["job-1", "job-2", "job-3"]
    assert not pool.evictions


def test_a_job_that_may_not_begin_yet_says_so_and_then_why_it_waits(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("job-1", pri=5, dur=1000)
    pool.submit("job-2", pri=5, at=1)
    pool.submit("job-3", pri=5, at=2, begin_at=60.0)
    pool.run_until(10)
    refusal = pool.state.jobs["job-3"].refusal
    assert refusal is not None
    assert (refusal.reason, refusal.sentence) == (Reason.NOT_YET, "it may begin at 1970-01-01T00:01:00+00:00")
    assert refusal.detail == {"begin_at": "1970-01-01T00:01:00+00:00"}
    told = explain(pool.state, pool.policy, "job-3", pool.now)
    assert told is not None
    assert (told.would_help, told.expected_start) == ((), None)
    assert told.no_start == ("not before 1970-01-01T00:01:00+00:00: runs on the GPUs that would do have no time limit")
    pool.run_until(61)
    later = pool.state.jobs["job-3"].refusal
    assert later is not None
    assert later.reason is Reason.NO_ROOM


def test_a_job_that_backs_off_between_two_tries_says_so(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("job-1", begin_at=60.5, backs_off=True)
    pool.run_until(1)
    assert pool.reason("job-1") == "it backs off after its last end: its next try is at 1970-01-01T00:01:01+00:00"


def test_a_moment_that_no_calendar_has_does_not_stop_a_decision(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("job-1", begin_at=1e15)
    pool.run_until(1)
    assert pool.reason("job-1") == "it may begin at 31690708-07-05T01:46:40+00:00"


def test_a_priority_that_nobody_may_ask_for_is_no_help(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("job-1", pri=10_000)
    pool.submit("job-2", pri=10_000, at=1)
    pool.run_until(2)
    told = explain(pool.state, pool.policy, "job-2", pool.now)
    assert told is not None
    assert told.would_help == ("the end of runs on suitable GPUs, or another node with such GPUs",)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"shares": 99}, "a card has at most 64 shares (the policy's max_shares) and the job asks for 99"),
        ({"gpus": 0, "cpus": 3.0}, "no node that the job may run on has 3 CPUs"),
        ({"memory_mib": 4096}, "no node with such GPUs has 4096 MiB of memory"),
        ({"cpus": 2.5, "memory_mib": 4096}, "no node with such GPUs has 2.5 CPUs and 4096 MiB of memory"),
    ],
)
def test_what_never_fits_names_what_was_asked_for(pool: Pool, asked: dict[str, Any], sentence: str) -> None:
    pool.add_node("node-a", 1, cpus=2.0, memory_mib=2048)
    pool.submit("job-1", **asked)
    pool.run_until(1)
    refusal = pool.state.jobs["job-1"].refusal
    assert refusal is not None
    assert refusal.sentence == sentence
    assert "None" not in refusal.detail.values()


def test_a_job_begins_when_it_may(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("job-1", begin_at=60.0)
    pool.run_until(100)
    assert pool.starts_of("job-1") == [60]


def test_a_held_job_expires_all_the_same(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("job-1", max_wait_seconds=60.0, held=True)
    pool.run_until(100)
    assert [(at, choice.job_id) for at, choice in pool.choices if isinstance(choice, Expire)] == [(60, "job-1")]
    assert not pool.starts


def test_mig_instances_of_a_layout_that_is_no_more_are_not_waited_for(pool: Pool) -> None:
    pool.add_node("node-a", 0)
    for index in range(2):
        pool.add_gpu("node-a", index, mig_profile="1g.5gb", health=GpuHealth.LOST)
    pool.add_gpu("node-a", 2, mig_profile="7g.40gb")
    pool.submit("job-1", mig="1g.5gb")
    pool.submit("job-2", mig="7g.40gb")
    pool.run_until(1)
    assert pool.running() == {"job-2"}
    assert pool.state.jobs["job-1"].unsatisfiable
    assert "MIG profile 1g.5gb" in pool.reason("job-1")


@pytest.mark.parametrize(("limit", "start"), [(30.0, 60.0), (600.0, 600.0)])
def test_a_job_that_may_not_begin_yet_is_expected_once_it_may_and_its_gpus_are_free(
    pool: Pool, limit: float, start: float
) -> None:
    aging = replace(pool.policy.classes["scenario"], sla_wait_seconds=5.0)
    pool.policy = replace(pool.policy, classes={"scenario": aging})
    pool.add_node("node-a", 1)
    pool.submit("job-1", pri=5, dur=1000, time_limit_seconds=limit)
    pool.submit("job-2", pri=5, at=2, begin_at=60.0)
    pool.run_until(3)
    told = explain(pool.state, pool.policy, "job-2", pool.now)
    assert told is not None
    assert (told.expected_start, told.no_start) == (pytest.approx(start, abs=10), "")
    assert told.wakes_at == 60.0, "it does not age before that"
