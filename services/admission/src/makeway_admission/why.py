"""Why a job is where it is: the decision that is in force, and its place in the queue by the policy's own order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter
from makeway_policy.model import Job
from makeway_policy.priority import queue_value
from makeway_policy.rules import Policy
from makeway_schemas.api import AheadView, WhyView
from makeway_schemas.states import WAITING
from starlette.responses import Response

from makeway_admission.answers import PROBLEMS, answer
from makeway_admission.doors import ServiceDoors, Viewer
from makeway_admission.errors import not_found
from makeway_admission.views import Row

router: Final = APIRouter(tags=["jobs"], responses=PROBLEMS)

_MOST_AHEAD: Final = 20
_NOT_MET: Final = "the scheduler has not looked at it yet"


@router.get("/v1/jobs/{job_id}/why", response_model=WhyView)
async def why(doors: ServiceDoors, principal: Viewer, job_id: str) -> Response:
    """Why the job is where it is. Of other teams' jobs that are ahead, only the id and the value are said."""
    row = await doors.store.get_job(job_id)
    if row is None or not principal.sees(row["team_id"]):
        raise not_found(f"job {job_id[:100]}")
    state = row["state"] or "QUEUED"
    decision = await doors.store.newest_decision(job_id)
    waiting = await doors.store.waiting_jobs() if state in WAITING else []
    order = queue_order(waiting, doors.policy, time.time())
    place = next((index for index, (_, each) in enumerate(order) if each["job_id"] == job_id), None)
    ahead = () if place is None else tuple(order[:place][-_MOST_AHEAD:])
    return answer(
        WhyView(
            job_id=job_id,
            state=state,
            reason_code=row["reason_code"] or "",
            reason=row["reason"] or ("" if row["state"] else _NOT_MET),
            queue_position=None if place is None else place + 1,
            queue_length=len(order) if state in WAITING else None,
            ahead=tuple(_ahead_view(value, each, named=principal.sees(each["team_id"])) for value, each in ahead),
            decided_at=None if decision is None else decision["decided_at"],
            detail={} if decision is None else decision["detail"],
        )
    )


def queue_order(rows: Sequence[Row], policy: Policy, now: float) -> list[tuple[int, Row]]:
    """Waiting jobs with their queue value, first in the queue first: value, submit time, order of admission."""
    valued = [(queue_value(_job_of(row), policy, now)[0], row) for row in rows]
    return sorted(valued, key=lambda each: (-each[0], each[1]["submitted_at"], each[1]["admission_order"]))


def _job_of(row: Row) -> Job:
    return Job(
        job_id=row["job_id"],
        order=row["admission_order"],
        team=row["team_id"],
        class_name=row["class_name"],
        submitted_at=row["submitted_at"].timestamp(),
        queued_since=row["queued_since"].timestamp(),
        own_priority=row["own_priority"],
        manual_priority=row["manual_priority"],
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
