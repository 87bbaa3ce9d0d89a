"""Jobs that have not started in time.

Order of checks (the first that holds is what happens):
 1. the job has started once: nothing; both limits were met by that
 2. `deadline` has passed: by default the job is degraded to the next lower class that its team may use
 3. `max_wait` since the submit has passed: by default the job is cancelled
Each limit acts once. A degrade where there is no lower class, like a promotion, only takes the limit away.
"""

from dataclasses import replace

from makeway_policy import quota, withdrawal
from makeway_policy.choices import Choice, Expire, Reclass, Withdraw
from makeway_policy.model import Job, Overdue, Reason, Refusal, StopCause
from makeway_policy.priority import class_of
from makeway_policy.rules import JobClass, Policy
from makeway_policy.state import PoolState, is_leaving


def due_at(job: Job) -> float | None:
    """When the first of the job's limits on waiting passes; None if it has none left."""
    if job.has_started:
        return None
    max_wait_ends = None if job.max_wait_seconds is None else job.submitted_at + job.max_wait_seconds
    return min((at for at in (job.deadline, max_wait_ends) if at is not None), default=None)


def act(state: PoolState, policy: Policy, job: Job, now: float) -> list[Choice]:
    """Do what the job, else the policy, says for the limit that has passed."""
    if job.deadline is not None and job.deadline <= now:
        what = job.on_deadline or policy.overdue_deadline
        limit, without = "deadline", replace(job, deadline=None)
    elif job.max_wait_seconds is not None and job.submitted_at + job.max_wait_seconds <= now:
        what = job.on_max_wait or policy.overdue_max_wait
        limit, without = "max_wait", replace(job, max_wait_seconds=None)
    else:
        return []
    if what is Overdue.CANCEL:
        return _expire(state, without, limit, now)
    lower = _lower_class(state, policy, job) if what is Overdue.DEGRADE else None
    if lower is not None:
        without = replace(without, class_name=lower.name, own_priority=_kept_value(job, lower))
    changed = replace(without, promoted=job.promoted or what is Overdue.PROMOTE)
    state.put_job(changed)
    return [
        Reclass(
            job_id=job.job_id, class_name=changed.class_name, promoted=changed.promoted, limit=limit,
            own_priority=changed.own_priority,
        )
    ]  # fmt: skip


def _expire(state: PoolState, job: Job, limit: str, now: float) -> list[Choice]:
    refusal = Refusal(
        reason=Reason.OVERDUE,
        sentence=f"it has not started before its {limit}",
        detail={"limit": limit},
    )
    run = state.run_of(job.job_id)
    choices: list[Choice] = []
    state.put_job(replace(job, over=True, refusal=refusal))
    if run is not None and not is_leaving(run):
        withdrawal.withdraw(state, run, StopCause.CANCELLED, now)
        choices.append(
            Withdraw(
                job_id=job.job_id,
                run_id=run.run_id,
                cause=StopCause.CANCELLED,
                no_victims_until=job.no_victims_until,
                failed_holds=job.failed_holds,
            )
        )
    return [*choices, Expire(job_id=job.job_id, refusal=refusal)]


def _lower_class(state: PoolState, policy: Policy, job: Job) -> JobClass | None:
    """The next lower class that the team may use."""
    own = class_of(job, policy)
    lower = [each for each in policy.classes.values() if each.value < own.value]
    usable = [each for each in lower if quota.may_use_class(state.team(job.team), each)]
    return max(usable, key=lambda each: (each.value, each.name), default=None)


def _kept_value(job: Job, rules: JobClass) -> int | None:
    if job.own_priority is None or not rules.own_value_min <= job.own_priority <= rules.own_value_max:
        return None
    return job.own_priority
