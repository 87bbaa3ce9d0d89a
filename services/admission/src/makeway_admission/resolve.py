"""From what people type to a job: an id, `@last`, a name, or the beginning of an id; tried in this order."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import APIRouter, Query
from makeway_schemas.api import Resolved
from makeway_schemas.ids import is_job_id
from starlette.responses import Response

from makeway_admission.access import Principal
from makeway_admission.answers import PROBLEMS, answer
from makeway_admission.doors import Doors, ServiceDoors, Viewer
from makeway_admission.errors import ProblemCode, not_found, refused

router: Final = APIRouter(tags=["jobs"], responses=PROBLEMS)

LAST: Final = "@last"
_PREFIX: Final = re.compile(r"[0-9a-z]{1,11}")


@router.get("/v1/resolve", response_model=Resolved)
async def resolve(
    doors: ServiceDoors,
    principal: Viewer,
    ref: Annotated[
        str, Query(max_length=1000, description="An id, `@last`, a name (byte for byte), an id's beginning.")
    ],
) -> Response:
    """The job that is meant. Of several with one name the newest; 409 where a beginning fits more than one."""
    return answer(Resolved(job_id=await _find(doors, principal, ref)))


async def _find(doors: Doors, principal: Principal, ref: str) -> str:
    if is_job_id(ref):
        head = await doors.store.job_head(ref)
        if head is not None and principal.sees(head["team_id"]):
            return ref
    if ref == LAST:
        last = await doors.store.last_job_of(principal.name, principal.team)
        if not last:
            raise not_found("job that this token has submitted")
        return last[0]
    named = await doors.store.jobs_by_name(ref, principal.team) if ref and "\0" not in ref else []
    if named:
        return named[0]
    begun = await doors.store.jobs_by_prefix(ref, principal.team) if _PREFIX.fullmatch(ref) else []
    if len(begun) > 1:
        raise refused(ProblemCode.AMBIGUOUS, f"more than one job id begins with {ref}: {begun[0]}, {begun[1]}, ...")
    if not begun:
        raise not_found(f"job {ref[:300]!r}, neither by id nor by name")
    return begun[0]
