"""Decide what the pool does next, and apply it to the state.

One pass, in this order:
 1. bring the indices up to date with what changed and what the time has made due
 2. give runs the v of their job's base where that has changed; settle the runs that are decided but not started:
    leases granted, holds expired or lost (`holds`)
 3. act on jobs that have missed their `deadline` or `max_wait` (`overdue`), and empty draining nodes (`evictions`)
 4. judge the waiting jobs that something changed for, in queue order, each seeing what was decided before it (`judge`);
    a holder whose GPUs are not empty yet is looked at in its place, and moves if free GPUs suffice
 5. apply each verdict to the state at once: a start, a preemption with its hold, or a reason to wait
 6. tell the reason of jobs that came to wait behind an identical one, or for their `begin_at`
"""

from collections.abc import Iterable

from makeway_policy import begin, costs, evictions, holds, judge, overdue, priority, quota, withdrawal
from makeway_policy.candidates import Candidate
from makeway_policy.choices import Choice, Decisions, Preempt, Start, Victim, Wait, Withdraw
from makeway_policy.copies import changed
from makeway_policy.explanation import explain_plan
from makeway_policy.index import Index
from makeway_policy.judge import Placed
from makeway_policy.model import (
    Job,
    LeaseState,
    Member,
    Reason,
    Refusal,
    Run,
    RunState,
    StopCause,
    Trigger,
)
from makeway_policy.protection import is_hold
from makeway_policy.queue import Bucket
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState, is_leaving
from makeway_policy.victim_sets import Plan

_LACK_ROOM = {Reason.NO_ROOM, Reason.RESERVED_FOR_ANOTHER}
_TOLD = 8
"""So many of a bucket's first jobs hear when their reason changes; those behind keep the one they were told."""


def decide(state: PoolState, policy: Policy, now: float, *, most: int | None = None) -> Decisions:
    """Choose for every job that something changed for, in queue order, and apply each choice to `state` as it goes.

    Each job sees the holds, notices and starts decided before it. Deciding again with nothing changed chooses nothing.
    What changed since the last call is known from the state's own indices; the cost follows it. `now` must not go back.
    Inside a transaction everything can be rolled back with it, what the indices know included.

    With `most` it ends once it has made so many choices: `next_wake` is then `now`, and the next call goes on, after
    whoever has come meanwhile and is before them in the queue.
    """
    index = Index.of(state, policy)
    index.sync(now)
    choices: list[Choice] = []
    while most is None or len(choices) < most:
        _revalue(index, now)
        choices.extend(_act_on_overdue(index, now))
        choices.extend(holds.settle(index, now))
        choices.extend(evictions.drain(index, now))
        index.sync(now)
        following = index.agenda.next()
        if isinstance(following, Bucket):
            choices.extend(_judge_first(index, following, now))
        elif following is not None:
            choices.extend(_move(index, following, now))
        elif index.is_settled and not index.wakeups.wake_by_refusals(now):
            index.wakeups.forget_turns()
            choices.extend(_tell_fresh(index, now))
            index.sync(now)
            return Decisions(choices=tuple(choices), next_wake=index.next_wake(now))
    index.next_wake(now)
    return Decisions(choices=tuple(choices), next_wake=now)


def _revalue(index: Index, now: float) -> None:
    """A changed base changes the v of the job's hold and run at once."""
    state = index.state
    due = sorted(index.jobs.revalue)
    index.jobs.revalue.clear()
    for run_id in due:
        run = state.runs.get(run_id)
        if run is not None:
            state.put_run(changed(run, v=index.jobs.worth_of(state.jobs[run.job_id], run)))
    if due:
        index.sync(now)


def _act_on_overdue(index: Index, now: float) -> list[Choice]:
    due = sorted(index.jobs.overdue)
    index.jobs.overdue.clear()
    choices: list[Choice] = []
    for job_id in due:
        job = index.state.jobs.get(job_id)
        run = index.state.run_of(job_id)
        if job is not None and not job.over and (run is None or run.started_at is None):
            choices.extend(overdue.act(index.state, index.policy, job, now))
    if choices:
        index.sync(now)
    return choices


def _judge_first(index: Index, bucket: Bucket, now: float) -> list[Choice]:
    job = index.state.jobs[bucket.head]
    verdict = judge.judge(index, job, now)
    if isinstance(verdict, Refusal):
        index.block(bucket, verdict, now)
        index.wakeups.wake_by_refusal(now)
        return _tell(index, bucket, verdict)
    if isinstance(verdict, Placed):
        choice: Choice = _start(index, job, verdict, now)
    else:
        index.wakeups.note_view()
        choice = _preempt(index, job, verdict, now)
    # The job leaves its bucket with that, which brings the next one of it forward.
    index.sync(now)
    return [choice]


def _start(index: Index, job: Job, placed: Placed, now: float) -> Start:
    run = _new_run(index, job, placed.members, frozenset(), now)
    _book(index.state, job, run)
    return Start(job_id=job.job_id, run=run)


def _preempt(index: Index, job: Job, plan: Plan, now: float) -> Start | Preempt:
    state = index.state
    explanation = explain_plan(index, job, plan, now)
    trigger = _trigger(index, job, plan, now)
    stopped: list[str] = []
    told: list[Victim] = []
    for candidate in plan.victims:
        if is_hold(candidate.run):
            _take_hold(state, candidate.run, now)
            stopped.append(candidate.run.run_id)
        else:
            told.append(_notice(index, candidate, now))
    after = frozenset(run_id for run_id in plan.after if run_id in state.runs)
    run = _new_run(index, job, plan.members, after, now, reclaimed=trigger is Trigger.RECLAIM)
    _book(state, job, run)
    if not plan.victims:
        return Start(job_id=job.job_id, run=run, explanation=explanation)
    return Preempt(
        job_id=job.job_id,
        run=run,
        victims=tuple(told),
        stopped_holds=tuple(stopped),
        trigger=trigger,
        rule="+".join(sorted({each.rule for each in plan.victims})),
        cost_gpu_seconds=plan.cost_gpu_seconds,
        explanation=explanation,
    )


def _take_hold(state: PoolState, run: Run, now: float) -> None:
    if run.lease_state is LeaseState.PENDING:
        state.remove_run(run.run_id, now)
        return
    state.put_run(changed(run, state=RunState.NOTICED, noticed_at=now, stop_cause=StopCause.HOLD_LOST, leaves_by=now))


def _notice(index: Index, candidate: Candidate, now: float) -> Victim:
    state, run = index.state, candidate.run
    job = state.jobs[run.job_id]
    grace = candidate.grace_seconds
    state.put_job(changed(job, preempted_at=(*job.preempted_at, now), down=True, last_end_preempted=True))
    state.put_run(
        changed(
            run, lease_state=LeaseState.LEAVING, state=RunState.NOTICED, noticed_at=now,
            stop_cause=StopCause.PREEMPTED, grace_seconds=grace, leaves_by=now + grace,
        )
    )  # fmt: skip
    return Victim(
        run_id=run.run_id,
        job_id=run.job_id,
        mode=quota.mode_of(job, index.policy),
        cause=StopCause.PREEMPTED,
        grace_seconds=grace,
        cost_gpu_seconds=candidate.cost_gpu_seconds,
    )


def _new_run(
    index: Index, job: Job, members: Iterable[Member], after: frozenset[str], now: float, *, reclaimed: bool = False
) -> Run:
    number = job.runs + 1
    run = Run(
        run_id=f"{job.job_id}.{number}",
        job_id=job.job_id,
        number=number,
        members=tuple(members),
        lease_state=LeaseState.NEXT if after else LeaseState.LIVE,
        v=priority.preemption_value(job, index.policy, now),
        decided_at=now,
        after=after,
        empty_since=None if after else now,
        grace_seconds=costs.grace_of(job, index.policy),
        restart_seconds=job.restart_seconds,
        promoted=priority.is_aged(job, index.policy, now),
        reclaimed=reclaimed,
        after_preemption=job.last_end_preempted,
    )
    if not withdrawal.can_have_leases(index.state, run):
        return changed(run, lease_state=LeaseState.PENDING)
    return run


def _book(state: PoolState, job: Job, run: Run) -> None:
    state.put_job(changed(job, runs=run.number, refusal=None, unsatisfiable=False))
    state.put_run(run)


def _trigger(index: Index, job: Job, plan: Plan, now: float) -> Trigger:
    if any(each.rule == "reclaim" for each in plan.victims):
        return Trigger.RECLAIM
    worth = priority.base(job, index.policy)
    needed_age = any(each.run.v + index.policy.delta > worth for each in plan.victims)
    once_aged = not priority.may_take_victims(changed(job, queued_since=now, promoted=False), index.policy, now)
    return Trigger.SLA_PROMOTION if plan.victims and (needed_age or once_aged) else Trigger.ARRIVAL


def _move(index: Index, run_id: str, now: float) -> list[Choice]:
    """Start a holder on other free GPUs as soon as they suffice."""
    state = index.state
    run = state.runs.get(run_id)
    if run is None or not run.after or is_leaving(run) or not is_hold(run):
        return []
    job = state.jobs[run.job_id]
    placed = judge.place_beside(index, job, run, now)
    if placed is None:
        return []
    ahead = _who_would_pass(index, job, now)
    if ahead is not None:
        index.wakeups.movers.note_staying(job.job_id, ahead)
        return []
    if run.lease_state is LeaseState.PENDING:
        state.remove_run(run_id, now)
        withdrawn = Withdraw(
            job_id=job.job_id, run_id=run_id, cause=StopCause.HOLD_MOVED, no_victims_until=job.no_victims_until,
            failed_holds=job.failed_holds,
        )  # fmt: skip
        return [withdrawn, _start(index, state.jobs[run.job_id], placed, now)]
    withdrawal.withdraw(state, run, StopCause.HOLD_MOVED, now, placed.members)
    return [
        Withdraw(
            job_id=job.job_id, run_id=run_id, cause=StopCause.HOLD_MOVED, no_victims_until=job.no_victims_until,
            failed_holds=job.failed_holds, to=placed.members,
        )
    ]  # fmt: skip


def _who_would_pass(index: Index, job: Job, now: float) -> Bucket | None:
    """Who is ahead only by aging and would get in where the hold is left, to be evicted by it at once.

    Between two runs a job is in the queue again, in its place.
    """
    place, v = index.turns.of_job(job, now), priority.preemption_value(job, index.policy, now)
    for bucket in index.agenda.blocked.first_of_each_shape(place, lambda bucket: _within_quota(index, bucket)):
        ahead = index.state.jobs[bucket.head]
        worth = priority.preemption_value(ahead, index.policy, now)
        if priority.outranks(job, v, ahead, worth, index.policy):
            return bucket
    return None


def _within_quota(index: Index, bucket: Bucket) -> bool:
    """Whether the first of a bucket may have what it asks for: since it was refused its team may have got more."""
    job = index.state.jobs[bucket.head]
    return quota.refusal_of(index.state, index.policy, job, quota.needed_units(job, None, index.state)) is None


def _tell(index: Index, bucket: Bucket, refusal: Refusal) -> list[Choice]:
    told = bucket.told is refusal.reason or {bucket.told, refusal.reason} <= _LACK_ROOM
    bucket.told = refusal.reason
    choices = (_wait(index.state, entry[3], refusal) for entry in bucket.entries[: 1 if told else _TOLD])
    return [choice for choice in choices if choice is not None]


def _tell_fresh(index: Index, now: float) -> list[Choice]:
    choices: list[Choice] = []
    for job_id in index.jobs.take_fresh():
        refusal = index.refusal_for(job_id) or begin.not_yet(index.state.jobs[job_id], now)
        choice = None if refusal is None else _wait(index.state, job_id, refusal)
        if choice is not None:
            choices.append(choice)
    return choices


def _wait(state: PoolState, job_id: str, refusal: Refusal) -> Wait | None:
    job = state.jobs[job_id]
    never = refusal.reason is Reason.NEVER_FITS or (refusal.detail.get("ever") == "no")
    if job.refusal is not None and job.refusal.reason is refusal.reason and job.unsatisfiable == never:
        return None
    state.tell(changed(job, refusal=refusal, unsatisfiable=never))
    return Wait(job_id=job_id, refusal=refusal, unsatisfiable=never)
