"""A job was admitted: the fact that begins it. Idempotent by state: the same fact again, or late, changes nothing."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from makeway_policy.asked import shape_of
from makeway_schemas.facts import AdmittedJob, JobAdmitted

from makeway_scheduler.ledger import Ledger
from makeway_scheduler.records import JobRecord


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
