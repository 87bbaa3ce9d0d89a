"""Why a job is where it is: the decision that is in force, and its place in the queue."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from fastapi import APIRouter
from makeway_schemas.api import AheadView, WhyView
from makeway_schemas.ids import is_job_id
from makeway_schemas.states import JobState
from starlette.responses import Response

from makeway_admission.answers import PROBLEMS, answer
from makeway_admission.doors import ServiceDoors, Viewer
from makeway_admission.errors import not_found
from makeway_admission.queue_place import place_of
from makeway_admission.views import Row

router: Final = APIRouter(tags=["jobs"], responses=PROBLEMS)

_NOT_MET: Final = "the scheduler has not looked at it yet"
_IN_QUEUE: Final = (JobState.QUEUED, JobState.UNSATISFIABLE)


@router.get("/v1/jobs/{job_id}/why", response_model=WhyView)
async def why(doors: ServiceDoors, principal: Viewer, job_id: str) -> Response:
    """Why the job is where it is. Of other teams' jobs that are ahead, only the id, class and value are said."""
    row = await doors.store.get_job(job_id) if is_job_id(job_id) else None
    if row is None or not principal.sees(row["team_id"]):
        raise not_found(f"job {job_id[:100]}")
    decision = await doors.store.newest_decision(job_id)
    waits = row["state"] in _IN_QUEUE
    place = await place_of(doors.store, row, doors.policy, datetime.now(UTC)) if waits else None
    ahead = () if place is None else place.ahead
    return answer(
        WhyView(
            job_id=job_id,
            state=row["state"] or JobState.QUEUED,
            reason_code=row["reason_code"] or "",
            reason=row["reason"] or await _drained(doors, row) or _plain_reason(row),
            queue_position=None if place is None else place.position,
            queue_length=None if place is None else place.length,
            ahead=tuple(_ahead_view(value, each, named=principal.sees(each["team_id"])) for value, each in ahead),
            decided_at=None if decision is None else decision["decided_at"],
            detail={} if decision is None else decision["detail"],
        )
    )


async def _drained(doors: ServiceDoors, row: Row) -> str:
    """What is said of a job that runs on a node which is being emptied."""
    if row["state"] != JobState.RUNNING:
        return ""
    note = await doors.store.drain_of_node(row["node_id"])
    return "" if note is None else f"it runs on {row['node_id']}, {note}, and leaves once nothing protects its run"


def _plain_reason(row: Row) -> str:
    """What a job's row says where no decision gives a reason."""
    if not row["state"]:
        return _NOT_MET
    if row["state"] == JobState.UNKNOWN:
        return f"nothing is heard of node {row['node_id']}; the job may go on there, and its GPUs are given to nobody"
    if row["ended_at"] is None:
        return ""
    code = row["exit_code"]
    failed = f"exit code {code}" if code else ""
    return ": ".join(["it has ended", *[text for text in (row["message"], failed) if text]])


def _ahead_view(value: int, row: Row, *, named: bool) -> AheadView:
    return AheadView.model_validate(
        {
            "job_id": row["job_id"],
            "name": row["name"] if named else "",
            "class": row["class_name"],
            "queue_value": value,
        }
    )
