"""Why a job is where it is: the decision that is in force, said as of now, and its place in the queue."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from fastapi import APIRouter
from makeway_policy.model import Reason
from makeway_schemas.api import AheadView, WhyView
from makeway_schemas.ids import is_job_id
from makeway_schemas.states import WAITING, JobState
from starlette.responses import Response

from makeway_admission.answers import PROBLEMS, answer
from makeway_admission.closed_nodes import WAITS_FOR_GPUS, Closed, closed_to
from makeway_admission.doors import Doors, ServiceDoors, Viewer
from makeway_admission.errors import not_found
from makeway_admission.explained import as_of, reason_as_of, runs_in
from makeway_admission.queue_place import place_of
from makeway_admission.standing import standing_of
from makeway_admission.store import Store
from makeway_admission.undecided import pause_of
from makeway_admission.views import Row

router: Final = APIRouter(tags=["jobs"], responses=PROBLEMS)

_IN_QUEUE: Final = (JobState.QUEUED, JobState.UNSATISFIABLE)
_OF_A_WAIT: Final = ("wait", "reclass")


@router.get("/v1/jobs/{job_id}/why", response_model=WhyView)
async def why(doors: ServiceDoors, principal: Viewer, job_id: str) -> Response:
    """Why the job is where it is. Of other teams' jobs that are ahead, only the id, class and value are said."""
    row = await doors.store.get_job(job_id) if is_job_id(job_id) else None
    if row is None or not principal.sees(row["team_id"]):
        raise not_found(f"job {job_id[:100]}")
    now = datetime.now(UTC)
    decision = await _in_force(doors.store, row)
    waits = row["state"] in _IN_QUEUE and row["reason_code"] != Reason.NOT_YET
    place = await place_of(doors.store, row, doors.policy, now) if waits else None
    ahead = () if place is None else place.ahead
    closed = await closed_to(doors.store, row, doors.policy) if waits and row["reason_code"] in WAITS_FOR_GPUS else None
    return answer(
        WhyView(
            job_id=job_id,
            state=row["state"] or JobState.QUEUED,
            reason_code="" if row["ended_at"] is not None else row["reason_code"] or "",
            reason=await _reason(doors, row, decision, closed, now),
            queue_position=None if place is None else place.position,
            queue_length=None if place is None else place.length,
            ahead=tuple(_ahead_view(value, each, named=principal.sees(each["team_id"])) for value, each in ahead),
            as_of=now,
            decision="" if decision is None else decision["choice"],
            decided_at=None if decision is None else decision["decided_at"],
            detail={} if decision is None else await _detail(doors, decision, closed, now),
        )
    )


async def _reason(doors: Doors, row: Row, decision: Row | None, closed: Closed | None, now: datetime) -> str:
    """Why the job waits, else where it stands; and of one that waits, that nothing is decided now."""
    waits_for = "" if row["ended_at"] is not None else row["reason"] or ""
    reason = reason_as_of(waits_for, now, doors.policy.recheck_seconds) if closed is None else closed.reason
    said = reason or await standing_of(doors.store, row, doors.policy, decision, now)
    pause = await pause_of(doors.store) if not row["state"] or row["state"] in _IN_QUEUE else ""
    return "; ".join(text for text in (said, pause) if text)


async def _in_force(store: Store, row: Row) -> Row | None:
    """The newest decision of a job, where it explains where the job is: no end, no former run, wait or drain."""
    decision = None if row["ended_at"] is not None else await store.newest_decision(row["job_id"])
    if decision is None:
        return None
    explains = True
    if row["state"] in WAITING:
        # By its order alone: every run begins with a decision of another kind, and the clocks of who took the job in
        # and of who decided differ by more than may lie between the two.
        explains = decision["choice"] in _OF_A_WAIT and row["state"] != JobState.HELD
    elif decision["choice"] == "drain":
        explains = row["state"] == JobState.RUNNING and await store.drain_of_node(row["node_id"]) is not None
    return decision if explains else None


async def _detail(doors: Doors, decision: Row, closed: Closed | None, now: datetime) -> dict[str, Any]:
    detail = decision["detail"]
    if decision["choice"] != "wait":
        # What a drain waits for is said in the reason, as of now.
        return {} if decision["choice"] == "drain" else dict(detail)
    runs = runs_in(detail)
    staying = {each["run_id"]: each["leaving"] for each in await doors.store.staying_runs(runs)} if runs else {}
    said = as_of(
        detail, staying, decided_at=decision["decided_at"], now=now, recheck_seconds=doors.policy.recheck_seconds
    )
    return said if closed is None else closed.instead(said)


def _ahead_view(value: int, row: Row, *, named: bool) -> AheadView:
    return AheadView.model_validate(
        {
            "job_id": row["job_id"],
            "name": row["name"] if named else "",
            "class": row["class_name"],
            "queue_value": value,
        }
    )
