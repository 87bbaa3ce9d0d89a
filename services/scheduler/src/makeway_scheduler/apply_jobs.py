"""Facts from admission: a job was admitted, somebody asked for a change.

Each apply function is idempotent by state: the same fact again, or late, changes nothing.
"""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from makeway_schemas.facts import AdmittedJob, CommandIssued, JobAdmitted
from makeway_schemas.states import EndCause, JobState, StopCause

from makeway_scheduler import job_moves
from makeway_scheduler.ledger import JobRecord, Ledger, RunRecord
from makeway_scheduler.policies import worth
from makeway_scheduler.policy_values import shape_of
from makeway_scheduler.stops import stop_run


def apply_job_admitted(ledger: Ledger, fact: JobAdmitted, now: float) -> None:
    """A new job enters the queue; one that memory knows, or that has ended, is left alone."""
    admitted = fact.job
    if admitted.job_id in ledger.jobs or admitted.job_id in ledger.ended:
        return
    job = replace(admitted_record(admitted, fact.traceparent), queued_since=admitted.submitted_at.timestamp())
    ledger.jobs.put(job.job_id, job)
    ledger.tell(job, "queued", now, **_asked(job))


def _asked(job: JobRecord) -> dict[str, Any]:
    """What the job asked for, as its history keeps it: enough to replay it (docs/simulator.md)."""
    return {
        "name": job.spec.name,
        "team": job.team,
        "class": job.class_name,
        "priority": job.spec.priority,
        "gpus": job.shape.gpus,
        "members": job.shape.members,
        "vram_mib": job.shape.vram_mib,
        "time_limit_seconds": job.spec.time_limit,
        "submitted_at": datetime.fromtimestamp(job.submitted_at, UTC).isoformat(),
    }


def admitted_record(admitted: AdmittedJob, traceparent: str | None) -> JobRecord:
    """The record of a job as admission wrote it."""
    return JobRecord(
        job_id=admitted.job_id,
        pool=admitted.pool,
        team=admitted.team,
        order=admitted.order,
        class_name=admitted.class_name,
        spec=admitted.spec,
        shape=shape_of(admitted.spec),
        submitted_by=admitted.submitted_by,
        submitted_at=admitted.submitted_at.timestamp(),
        traceparent=traceparent,
    )


def apply_command_issued(ledger: Ledger, fact: CommandIssued, now: float) -> None:
    """Carry out a command once; its outcome is stored with its number."""
    if fact.command_id in ledger.batch.applied_commands:
        return
    job = ledger.jobs.get(fact.job_id)
    if job is None or job.ended_at is not None:
        ledger.batch.applied_commands[fact.command_id] = "the job has ended already"
        return
    carry_out = _cancel if fact.command == "cancel" else _set_priority
    outcome = carry_out(ledger, job, fact, now)
    ledger.batch.applied_commands[fact.command_id] = outcome


def _cancel(ledger: Ledger, job: JobRecord, fact: CommandIssued, now: float) -> str:
    if not job.cancel_requested:
        job = replace(job, cancel_requested=True, message=f"cancelled by {fact.issued_by}")
        ledger.jobs.put(job.job_id, job)
        ledger.tell(job, "cancel_requested", now, by=fact.issued_by)
    run = ledger.run_of(job)
    if run is None or run.ended:
        job_moves.end(ledger, job, EndCause.CANCELLED, now)
        return "cancelled"
    if run.pending:
        drop_pending(ledger, run, now)
        job_moves.end(ledger, ledger.jobs[job.job_id], EndCause.CANCELLED, now)
        return "cancelled"
    stop_run(ledger, run, StopCause.CANCEL, job_moves.grace_of(ledger, job), now)
    return "stopping"


def drop_pending(ledger: Ledger, run: RunRecord, now: float) -> None:
    """A run that never had leases, and that no node knows, ends at once."""
    ledger.runs.put(
        run.run_id,
        replace(run, state=run.state.EXITED, ended_at=now, end_cause=EndCause.NEVER_STARTED.value, leases=()),
    )


def _set_priority(ledger: Ledger, job: JobRecord, fact: CommandIssued, now: float) -> str:
    job = replace(job, manual_priority=fact.priority)
    ledger.jobs.put(job.job_id, job)
    run = ledger.run_of(job)
    if run is not None and not run.ended:
        ledger.runs.put(run.run_id, replace(run, value=worth(ledger, job, run)))
    elif job.state is JobState.HELD:
        return "stored; the job is held"
    ledger.tell(job, "priority", now, priority=fact.priority, by=fact.issued_by)
    return "set"
