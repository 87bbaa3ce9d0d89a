"""The records of preemptions."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query
from makeway_schemas.api import PreemptionView
from starlette.responses import Response

from makeway_admission.answers import PROBLEMS, answer_list
from makeway_admission.doors import ServiceDoors, Viewer
from makeway_admission.settings import DEFAULT_PAGE, MAX_PAGE
from makeway_admission.views import preemption_view

router: Final = APIRouter(tags=["preemptions"], responses=PROBLEMS)


@router.get("/v1/preemptions", response_model=list[PreemptionView])
async def list_preemptions(
    doors: ServiceDoors,
    principal: Viewer,
    job: Annotated[str | None, Query(description="Only those that this job was part of.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = DEFAULT_PAGE,
) -> Response:
    """The newest preemptions that a job of the token's teams was part of, newest first."""
    rows = await doors.store.list_preemptions(team=principal.team, job_id=job, before=None, limit=limit)
    return answer_list([preemption_view(row) for row in rows])
