"""Why a job is where it is: the decision that is in force, and its place in the queue."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from fastapi import APIRouter
from makeway_policy.model import Reason
from makeway_schemas.api import AheadView, WhyView
from makeway_schemas.ids import is_job_id
from makeway_schemas.states import JobState
from starlette.responses import Response

from makeway_admission.answers import PROBLEMS, answer
from makeway_admission.doors import ServiceDoors, Viewer
from makeway_admission.errors import not_found
from makeway_admission.queue_place import place_of
from makeway_admission.standing import standing_of
from makeway_admission.views import Row

router: Final = APIRouter(tags=["jobs"], responses=PROBLEMS)

_IN_QUEUE: Final = (JobState.QUEUED, JobState.UNSATISFIABLE)


@router.get("/v1/jobs/{job_id}/why", response_model=WhyView)
async def why(doors: ServiceDoors, principal: Viewer, job_id: str) -> Response:
    """Why the job is where it is. Of other teams' jobs that are ahead, only the id, class and value are said."""
    row = await doors.store.get_job(job_id) if is_job_id(job_id) else None
    if row is None or not principal.sees(row["team_id"]):
        raise not_found(f"job {job_id[:100]}")
    ended = row["ended_at"] is not None
    # What was decided while it waited explains nothing of a job that has ended.
    decision = None if ended else await doors.store.newest_decision(job_id)
    waits = row["state"] in _IN_QUEUE and row["reason_code"] != Reason.NOT_YET
    place = await place_of(doors.store, row, doors.policy, datetime.now(UTC)) if waits else None
    ahead = () if place is None else place.ahead
    return answer(
        WhyView(
            job_id=job_id,
            state=row["state"] or JobState.QUEUED,
            reason_code="" if ended else row["reason_code"] or "",
            reason=("" if ended else row["reason"]) or await standing_of(doors.store, row, doors.policy),
            queue_position=None if place is None else place.position,
            queue_length=None if place is None else place.length,
            ahead=tuple(_ahead_view(value, each, named=principal.sees(each["team_id"])) for value, each in ahead),
            decided_at=None if decision is None else decision["decided_at"],
            detail={} if decision is None else decision["detail"],
        )
    )


def _ahead_view(value: int, row: Row, *, named: bool) -> AheadView:
    return AheadView.model_validate(
        {
            "job_id": row["job_id"],
            "name": row["name"] if named else "",
            "class": row["class_name"],
            "queue_value": value,
        }
    )
