"""From choices to records: what the policy chose is written into the ledger, each with its reason.

The policy has applied its choices to its own state already; the records made here give the same values again, so a
choice can also be carried out alone, after a batch that the database refused.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from makeway_policy import choices as policy_choices
from makeway_policy.choices import Choice
from makeway_policy.model import LeaseState as PolicyLeaseState
from makeway_policy.model import Run
from makeway_policy.model import StopCause as PolicyStopCause
from makeway_policy.quantities import quantity, verb
from makeway_schemas.states import EndCause, JobState, LeaseState, RunState, StopCause

from makeway_scheduler import job_moves
from makeway_scheduler.apply_commands import drop_pending
from makeway_scheduler.ledger import Ledger
from makeway_scheduler.policy_values import lease_records
from makeway_scheduler.preempting import Reason, evict, note_preemption, stop_victim
from makeway_scheduler.records import NO_VICTIMS, RunRecord
from makeway_scheduler.stops import stop_run

_LEASE_STATES: Final = {
    PolicyLeaseState.LIVE: LeaseState.LIVE,
    PolicyLeaseState.LEAVING: LeaseState.LEAVING,
    PolicyLeaseState.NEXT: LeaseState.NEXT,
    PolicyLeaseState.PENDING: None,
}
_STOP_CAUSES: Final = {
    PolicyStopCause.CANCELLED: StopCause.CANCEL,
    PolicyStopCause.TIME_LIMIT: StopCause.TIME_LIMIT,
    PolicyStopCause.DRAINED: StopCause.DRAIN,
    PolicyStopCause.OURS: StopCause.DRAIN,
}


def enact(ledger: Ledger, choice: Choice, now: float) -> None:
    """Write one choice into the ledger."""
    if isinstance(choice, policy_choices.Start):
        _start(ledger, choice, now)
    elif isinstance(choice, policy_choices.Preempt):
        _preempt(ledger, choice, now)
    elif isinstance(choice, policy_choices.Evict):
        evict(ledger, choice, now)
    elif isinstance(choice, policy_choices.Grant):
        _grant(ledger, choice, now)
    elif isinstance(choice, policy_choices.Withdraw):
        _withdraw(ledger, choice, now)
    elif isinstance(choice, policy_choices.Stop):
        _stop(ledger, choice, now)
    elif isinstance(choice, policy_choices.Expire):
        job = ledger.jobs[choice.job_id]
        expired = job_moves.move(
            ledger,
            replace(
                job, ended_at=now, end_cause="expired", message=choice.refusal.sentence,
                reason_code="", reason="", reason_detail={},
            ),
            JobState.EXPIRED,
        )  # fmt: skip
        ledger.batch.ended_jobs[job.job_id] = job.order
        ledger.tell(expired, "expired", now, reason=choice.refusal.sentence)
    elif isinstance(choice, policy_choices.Wait):
        _wait(ledger, choice, now)
    else:
        _reclass(ledger, choice, now)


def _reclass(ledger: Ledger, choice: policy_choices.Reclass, now: float) -> None:
    job = ledger.jobs[choice.job_id]
    amendments = {**job.amendments, choice.limit: None}
    said = f"it has not started before its {choice.limit}"
    if choice.class_name != job.class_name:
        amendments |= {"class": choice.class_name, "own_priority": choice.own_priority}
        said += f"; its class is now {choice.class_name}"
    if choice.promoted:
        amendments["promoted"] = True
        said += "; it counts as aged"
    job = replace(job, class_name=choice.class_name, amendments=amendments)
    ledger.jobs.put(job.job_id, job)
    ledger.tell(
        job, "reclassed", now, **{"class": choice.class_name, "promoted": choice.promoted, "limit": choice.limit}
    )
    _decide(ledger, choice.job_id, now, choice="reclass", reason=said)


def _start(ledger: Ledger, choice: policy_choices.Start, now: float) -> None:
    run = _add_run(ledger, choice.run, NO_VICTIMS, now)
    number = len(run.placement)
    where = f"{quantity(number, 'GPU')} of {run.node_id}, which"
    if run.after:
        leave = verb(len(run.after), "leaves", "leave")
        sentence = f"follows {', '.join(sorted(run.after))} on {where} {leave} anyway"
    else:
        sentence = f"starts on {where} {verb(number)} free"
    _decide(ledger, choice.job_id, now, choice="start", reason=sentence, detail=choice.explanation)


def _preempt(ledger: Ledger, choice: policy_choices.Preempt, now: float) -> None:
    run = _add_run(ledger, choice.run, choice.trigger.value, now)
    reason = Reason(trigger=choice.trigger, rule=choice.rule, run=run)
    for victim in choice.victims:
        stop_victim(ledger, victim, reason, now)
    for held in choice.stopped_holds:
        _stop_hold(ledger, held, reason, now)
    victims = ", ".join(victim.run_id for victim in choice.victims) or "no run"
    holds = f", and the hold of {', '.join(choice.stopped_holds)}" if choice.stopped_holds else ""
    _decide(
        ledger,
        choice.job_id,
        now,
        choice="preempt",
        reason=f"takes the place of {victims}{holds} on {run.node_id} by the rule {choice.rule}",
        detail={**choice.explanation, "cost_gpu_seconds": round(choice.cost_gpu_seconds, 3)},
    )


def _stop_hold(ledger: Ledger, run_id: str, reason: Reason, now: float) -> None:
    held = ledger.runs[run_id]
    if held.pending:
        drop_pending(ledger, held, now)
        job_moves.requeue(ledger, ledger.jobs[held.job_id], now, cause=EndCause.NEVER_STARTED)
    else:
        # It may have started a moment ago, and is then preempted like any other; else the record ends void.
        held = note_preemption(ledger, held, 0.0, reason, now)
        stop_run(ledger, held, StopCause.PREEMPT, job_moves.grace_of(ledger, ledger.jobs[held.job_id]), now)


def _grant(ledger: Ledger, choice: policy_choices.Grant, now: float) -> None:
    run = ledger.runs[choice.run.run_id]
    leases = lease_records(choice.run)
    live = choice.run.lease_state is PolicyLeaseState.LIVE
    ledger.runs.put(
        run.run_id,
        replace(
            run,
            leases=leases,
            lease_state=_LEASE_STATES[choice.run.lease_state],
            after=choice.run.after,
            empty_at=now if live else run.empty_at,
            begun_at=now if live else run.begun_at,
        ),
    )
    ledger.batch.plans_for.add(run.node_id)
    job_moves.follow(ledger, run.job_id, now)


def _withdraw(ledger: Ledger, choice: policy_choices.Withdraw, now: float) -> None:
    job = replace(
        ledger.jobs[choice.job_id], no_victims_until=choice.no_victims_until or None, hold_failures=choice.failed_holds
    )
    ledger.jobs.put(job.job_id, job)
    run = ledger.runs[choice.run_id]
    if run.pending:
        drop_pending(ledger, run, now)
        job_moves.requeue(ledger, ledger.jobs[job.job_id], now, cause=EndCause.NEVER_STARTED)
    elif choice.cause is PolicyStopCause.CANCELLED:
        # Its job ends with this: should it have started a moment ago, it is stopped all the same.
        stop_run(ledger, run, StopCause.CANCEL, job_moves.grace_of(ledger, job), now)
    elif run.lease_state is LeaseState.LIVE:
        stop_run(ledger, run, StopCause.DRAIN, job_moves.grace_of(ledger, job), now)
    else:
        # Stopped only if it has not started: the node answers never_started, or RunStarted and the run goes on.
        ledger.runs.put(run.run_id, replace(run, withdrawing=True, moves_to=choice.to))
        ledger.batch.plans_for.add(run.node_id)
    _decide(ledger, job.job_id, now, choice="withdraw", reason=f"its hold ends: {choice.cause.value}")


def _stop(ledger: Ledger, choice: policy_choices.Stop, now: float) -> None:
    if choice.cause is PolicyStopCause.OURS:
        job = replace(
            ledger.jobs[choice.job_id], no_victims_until=choice.no_victims_until, hold_failures=choice.failed_holds
        )
        ledger.jobs.put(job.job_id, job)
    stop_run(ledger, ledger.runs[choice.run_id], _stop_cause(choice.cause), choice.grace_seconds, now)


def _wait(ledger: Ledger, choice: policy_choices.Wait, now: float) -> None:
    job = ledger.jobs[choice.job_id]
    refusal = choice.refusal
    state = JobState.UNSATISFIABLE if choice.unsatisfiable else JobState.QUEUED
    job = replace(
        job, reason_code=refusal.reason.value, reason=refusal.sentence, reason_detail=dict(refusal.detail)
    )  # fmt: skip
    before = job.state
    job = job_moves.move(ledger, job, state)
    if before is not state:
        ledger.tell(job, state.lower(), now, reason=refusal.sentence)
    detail = {**refusal.detail, **ledger.batch.explanations.get(job.job_id, {})}
    code = refusal.reason.value
    _decide(ledger, job.job_id, now, choice="wait", reason=refusal.sentence, detail=detail, reason_code=code)


def _add_run(ledger: Ledger, run: Run, trigger: str, now: float) -> RunRecord:
    job = ledger.jobs[run.job_id]
    member = run.members[0]
    leases = lease_records(run)
    lease_state = _LEASE_STATES[run.lease_state]
    record = RunRecord(
        run_id=run.run_id,
        job_id=run.job_id,
        number=run.number,
        node_id=member.node_id,
        placement=leases,
        leases=leases if lease_state is not None else (),
        lease_state=lease_state,
        value=run.v,
        planned_at=now,
        state=RunState.PLANNED,
        cpus=member.cpus,
        memory_mib=member.memory_mib,
        after=run.after,
        trigger=trigger,
        restart_seconds=run.restart_seconds,
        promoted=run.promoted,
        after_preemption=run.after_preemption,
        empty_at=now if lease_state is LeaseState.LIVE else run.empty_since,
        begun_at=now if lease_state is LeaseState.LIVE else run.begun_at,
        traceparent=job.traceparent,
    )
    ledger.runs.put(record.run_id, record)
    ledger.jobs.put(
        job.job_id, replace(job, run_number=run.number, retry_at=None, reason_code="", reason="", reason_detail={})
    )
    ledger.batch.plans_for.add(record.node_id)
    job_moves.follow(ledger, job.job_id, now)
    return record


def _stop_cause(cause: PolicyStopCause) -> StopCause:
    return _STOP_CAUSES.get(cause, StopCause.PREEMPT)


def _decide(
    ledger: Ledger,
    job_id: str,
    now: float,
    *,
    choice: str,
    reason: str,
    detail: Mapping[str, Any] | None = None,
    reason_code: str = "",
) -> None:
    # Admission's clock, which says when the job came, may be ahead of ours: no decision is older than its wait.
    queued_since = ledger.jobs[job_id].queued_since
    ledger.batch.decisions.append(
        {
            "job_id": job_id,
            "decided_at": now if queued_since is None else max(now, queued_since),
            "choice": choice,
            "reason_code": reason_code or choice,
            "reason": reason,
            "detail": dict(detail or {}),
        }
    )
