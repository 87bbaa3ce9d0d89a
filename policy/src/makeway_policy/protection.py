"""Who is no victim, and until when.

Order of checks (the first that holds is the reason shown):
 1. mode OFF, or `preemptible: false`
 2. inside its team's guarantee, against another team's reclaim or borrowed job; or reclaimed for that guarantee,
    against a job of its own team that would borrow (whoever it was taken from would take it back, and so on for ever)
 3. its job's preemptions of the last 24 h are used up (a class that overrides minimum runs may take it all the same,
    30 min after its start)
 4. its hard disruption group is at its limit
 5. inside its minimum run or its cool-down, unless the preemptor's class overrides minimum runs
 6. past its `exempt_after`
 7. it could only leave after the preemptor's deadline
A hold (a run that follows others) has nothing to lose: only check 2 protects it.
Judged at decision time, so nothing here is remembered; `until` is when the answer changes by time alone.
"""

from dataclasses import dataclass
from enum import StrEnum

from makeway_policy.model import Group, Job, LeaseState, Run, RunState
from makeway_policy.priority import class_of
from makeway_policy.quantities import quantity, verb
from makeway_policy.quota import is_preemptible_under
from makeway_policy.rules import JobClass, Policy
from makeway_policy.state import PoolState, is_leaving

_NEXT = LeaseState.NEXT
_PENDING = LeaseState.PENDING

_DAY_SECONDS = 86_400.0
_ROUNDING = 1e-6
_NEVER = float("inf")


class Guard(StrEnum):
    """What protects a run."""

    NOT_PREEMPTIBLE = "not_preemptible"
    GUARANTEE = "guarantee"
    BUDGET = "budget"
    GROUP = "group"
    MINIMUM_RUN = "minimum_run"
    EXEMPT = "exempt"
    DEADLINE = "deadline"


@dataclass(frozen=True, kw_only=True, slots=True)
class Protection:
    """Why a run is protected; `until` is when time ends it (None: something else must change)."""

    guard: Guard
    until: float | None
    sentence: str


def of_run(state: PoolState, policy: Policy, run: Run, now: float, *, overrides: bool) -> Protection | None:
    """Checks 1 and 3 to 6, which ask nothing about the preemptor but whether its class overrides minimum runs."""
    if is_hold(run):
        return None
    job = state.jobs[run.job_id]
    rules = class_of(job, policy)
    if not is_preemptible_under(rules, job):
        return Protection(guard=Guard.NOT_PREEMPTIBLE, until=None, sentence="it is not preemptible")
    opens_at = None
    if overrides and run.started_at is not None:
        opens_at = run.started_at + policy.override_after_budget_seconds
    return (
        _by_budget(job, rules, opens_at, now)
        or _by_group(state, job)
        or (None if overrides else _by_minimum_run(rules, run, policy, now))
        or _by_exemption(job, run, now)
    )


def outlook(state: PoolState, policy: Policy, job: Job, run: Run, now: float) -> tuple[bool, bool, float]:
    """(whether anything protects the run of the job, the same against whoever overrides minimum runs, when time alone
    changes either, infinite where it never does): `of_run` twice and `protection_changes_at`, without their words."""
    rules = class_of(job, policy)
    if is_hold(run):
        return False, False, _NEVER
    if not is_preemptible_under(rules, job):
        return True, True, _NEVER
    started, soon = run.started_at, now + _ROUNDING
    run_ends = minimum_run_ends(rules, run, policy)
    budget = _budget_returns_at(job, rules, now)
    other = _by_group(state, job) is not None or _by_exemption(job, run, now) is not None
    opens_at = _NEVER if started is None else started + policy.override_after_budget_seconds
    moments = [run_ends, budget, opens_at]
    if started is not None and job.exempt_after_seconds is not None:
        moments.append(started + job.exempt_after_seconds)
    return (
        other or budget is not None or (run_ends is not None and run_ends > soon),
        other or (budget is not None and opens_at > soon),
        min([at for at in moments if at is not None and at > now], default=_NEVER),
    )


def is_hold(run: Run) -> bool:
    """Whether the run only holds GPUs for a start to come."""
    return run.lease_state in (_NEXT, _PENDING)


def minimum_run_ends(rules: JobClass, run: Run, policy: Policy) -> float | None:
    """When the minimum run and cool-down of a run of a class are over; None where it has none.

    One that is about to start has all of it before it, so this is infinite until it has started.
    """
    seconds = rules.minimum_run_seconds
    if run.promoted:
        seconds = max(seconds, policy.promoted_minimum_run_seconds)
    if run.after_preemption:
        seconds = max(seconds, rules.cool_down)
    if seconds <= 0:
        return None
    return _NEVER if run.started_at is None else run.started_at + seconds


def protection_changes_at(state: PoolState, policy: Policy, run: Run, now: float) -> float | None:
    """When time alone next changes whether the run is protected; None if never."""
    job = state.jobs[run.job_id]
    rules = class_of(job, policy)
    if is_hold(run) or not is_preemptible_under(rules, job):
        return None
    moments = [minimum_run_ends(rules, run, policy), _budget_returns_at(job, rules, now)]
    if run.started_at is not None:
        moments.append(run.started_at + policy.override_after_budget_seconds)
        if job.exempt_after_seconds is not None:
            moments.append(run.started_at + job.exempt_after_seconds)
    return min([at for at in moments if at is not None and now < at < _NEVER], default=None)


def has_opened(state: PoolState, policy: Policy, run: Run, now: float) -> bool:
    """Whether the run has been running for so long that less protects it than when it was about to start."""
    if run.started_at is None:
        return False
    ends = minimum_run_ends(class_of(state.jobs[run.job_id], policy), run, policy)
    opens_at = run.started_at + policy.override_after_budget_seconds
    return opens_at <= now + _ROUNDING or (ends is not None and ends <= now + _ROUNDING)


def group_room(state: PoolState, group: Group) -> int:
    """How many more jobs of the group may go down."""
    down = up = 0
    for job in state.jobs_of_group(group.name):
        run = state.run_of(job.job_id)
        # A stop that is decided counts before its notice is delivered.
        leaving = run is not None and not is_hold(run) and is_leaving(run)
        running = run is not None and run.state is RunState.RUNNING and not leaving
        up += running
        down += not running and (job.down or leaving)
    rooms = []
    if group.max_down is not None:
        rooms.append(group.max_down - down)
    if group.min_available is not None:
        rooms.append(up - group.min_available)
    return max(0, min(rooms)) if rooms else 1_000_000_000


def _by_budget(job: Job, rules: JobClass, opens_at: float | None, now: float) -> Protection | None:
    """`opens_at` is when it may be taken all the same."""
    returns_at = _budget_returns_at(job, rules, now)
    if returns_at is None:
        return None
    if opens_at is not None:
        if opens_at <= now + _ROUNDING:
            return None
        returns_at = min(returns_at, opens_at)
    number = rules.preemptions_per_day or 0
    # A class that allows no preemption at all has a day that always begins now, so it never ends.
    ends = number > 0 or opens_at is not None
    return Protection(
        guard=Guard.BUDGET,
        until=returns_at if ends else None,
        sentence=f"its {quantity(number, 'preemption')} of the last 24 h {verb(number)} used up",
    )


def _budget_returns_at(job: Job, rules: JobClass, now: float) -> float | None:
    """When a used-up daily number has room again; None if it has room now."""
    limit = rules.preemptions_per_day
    if limit is None or (limit and not job.preempted_at):
        return None
    recent = sorted(at for at in job.preempted_at if at > now - _DAY_SECONDS + _ROUNDING)
    if len(recent) < limit:
        return None
    return (recent[len(recent) - limit] if limit else now) + _DAY_SECONDS


def _by_group(state: PoolState, job: Job) -> Protection | None:
    group = state.groups.get(job.group) if job.group is not None else None
    if group is None or not group.hard or group_room(state, group) > 0:
        return None
    return Protection(guard=Guard.GROUP, until=None, sentence=f"its group {group.name} has no job to spare")


def _by_minimum_run(rules: JobClass, run: Run, policy: Policy, now: float) -> Protection | None:
    ends_at = minimum_run_ends(rules, run, policy)
    if ends_at is None or ends_at <= now + _ROUNDING:
        return None
    what = "its cool-down after a preemption" if _cools_down(rules, run, policy) else "its minimum run"
    if ends_at == _NEVER:
        return Protection(guard=Guard.MINIMUM_RUN, until=None, sentence=f"it is about to start {what}")
    return Protection(guard=Guard.MINIMUM_RUN, until=ends_at, sentence=f"it is inside {what}")


def _cools_down(rules: JobClass, run: Run, policy: Policy) -> bool:
    """Whether it is protected for longer than a run that no preemption came before."""
    if not run.after_preemption:
        return False
    promoted = policy.promoted_minimum_run_seconds if run.promoted else 0.0
    return rules.cool_down > max(rules.minimum_run_seconds, promoted)


def _by_exemption(job: Job, run: Run, now: float) -> Protection | None:
    if job.exempt_after_seconds is None or run.started_at is None:
        return None
    if now + _ROUNDING < run.started_at + job.exempt_after_seconds:
        return None
    return Protection(guard=Guard.EXEMPT, until=None, sentence="it has run so long that it is exempt")
