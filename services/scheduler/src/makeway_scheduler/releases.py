"""Held jobs that may go on: because a person says so, or because a fact has changed that may have held them.

Facts are the policy, a team's rights, and nodes that come or take runs again. A job that was held for lost runs gets
one more try then, and is held again if that is lost too; a person gives it all its tries back.
"""

from collections.abc import Collection
from dataclasses import replace

from makeway_schemas.states import JobState

from makeway_scheduler import job_moves
from makeway_scheduler.ledger import Ledger
from makeway_scheduler.records import JobRecord


def release(ledger: Ledger, job: JobRecord, reason: str, now: float) -> None:
    """Back into the queue, where it keeps its submit time."""
    waiting = job_moves.move(ledger, replace(job, reason_code="", reason="", reason_detail={}), JobState.QUEUED)
    ledger.tell(waiting, "released", now, reason=reason)


def release_all(ledger: Ledger, reason: str, now: float, teams: Collection[str] | None = None) -> None:
    """Release every held job, or those of some teams, because of a changed fact."""
    most = max(0, ledger.policy.infrastructure_failures_max - 1)
    for job in list(ledger.jobs):
        if job.state is JobState.HELD and (teams is None or job.team in teams):
            release(ledger, replace(job, infrastructure_failures=min(most, job.infrastructure_failures)), reason, now)
