"""What somebody wants changed about a job: kept at once, carried out by the scheduler, seen in the job's state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from fastapi import APIRouter, Request
from makeway_schemas.api import CommandAccepted, CommandView, LimitsChange, PreemptBody, PriorityChange
from makeway_schemas.states import JobState
from starlette.responses import Response

from makeway_admission.access import Principal, Role, require, require_all, require_class
from makeway_admission.answers import PROBLEMS, Responses, answer, json_body
from makeway_admission.bodies import read_document
from makeway_admission.class_rules import deadline_objection, limits_objection
from makeway_admission.doors import Admin, Doors, ServiceDoors, Submitter, Viewer, visible_job
from makeway_admission.errors import ProblemCode, not_found, refused
from makeway_admission.facts import fact_row
from makeway_admission.jobs import traceparent_of
from makeway_admission.requests import parse_model
from makeway_admission.views import command_view

router: Final = APIRouter(tags=["commands"], responses=PROBLEMS)

_NO_ARGUMENTS: Final[Mapping[str, Any]] = MappingProxyType({})
_ENDED: Final[Responses] = {
    200: {"model": CommandAccepted, "description": "The job has ended already; nothing changes."}
}


@router.delete("/v1/jobs/{job_id}", status_code=202, response_model=CommandAccepted, responses=_ENDED)
async def delete_job(request: Request, doors: ServiceDoors, principal: Submitter, job_id: str) -> Response:
    """Cancel a job. 202: it is STOPPING, or ends at once, when `GET` says so; 200: it had ended before."""
    return await _command(request, doors, principal, job_id, "cancel")


@router.post("/v1/jobs/{job_id}/cancel", status_code=202, response_model=CommandAccepted, responses=_ENDED)
async def cancel_job(request: Request, doors: ServiceDoors, principal: Submitter, job_id: str) -> Response:
    """The same as `DELETE /v1/jobs/{job_id}`, for clients without DELETE."""
    return await _command(request, doors, principal, job_id, "cancel")


@router.put(
    "/v1/jobs/{job_id}/priority",
    status_code=202,
    response_model=CommandAccepted,
    responses=_ENDED,
    openapi_extra=json_body(PriorityChange),
)
async def set_priority(request: Request, doors: ServiceDoors, principal: Admin, job_id: str) -> Response:
    """Give a job a manual value, or take it back with null: for an admin of all teams and classes."""
    require_all(principal, "reordering the queue")
    document = await read_document(request)
    given = document.get("priority")
    highest = max(each.own_value_max for each in doors.policy.classes.values())
    if type(given) is int and not 0 <= given <= highest:
        message = f"must be 0 to {highest}; this is {str(given)[:40]}"
        raise refused(ProblemCode.INVALID_FIELD, message, field="priority")
    change = parse_model(PriorityChange, document)
    return await _command(request, doors, principal, job_id, "set_priority", {"priority": change.priority})


@router.patch(
    "/v1/jobs/{job_id}",
    status_code=202,
    response_model=CommandAccepted,
    responses=_ENDED,
    openapi_extra=json_body(LimitsChange),
)
async def change_limits(request: Request, doors: ServiceDoors, principal: Submitter, job_id: str) -> Response:
    """Change the time limit or the deadline of a job that has not ended, also while it runs."""
    change = parse_model(LimitsChange, await read_document(request))
    if not change.model_fields_set:
        raise refused(ProblemCode.BAD_REQUEST, "name what is to change: time_limit, deadline")
    head = await visible_job(doors, principal, job_id)
    rules = doors.policy.classes.get(head["class_name"]) or doors.policy.classes[doors.policy.default_class]
    problem = limits_objection(change.time_limit, change.deadline, rules, datetime.now(UTC))
    if problem is None and change.deadline is not None:
        problem = deadline_objection(change.deadline, await doors.store.begin_of_job(job_id))
    if problem is not None:
        raise refused(ProblemCode.INVALID_FIELD, problem.message, field=problem.field)
    values = {"time_limit": change.time_limit, "deadline": change.deadline and change.deadline.timestamp()}
    limits = {name: values[name] for name in sorted(change.model_fields_set)}
    return await _command(request, doors, principal, job_id, "set_limits", {"limits": limits})


@router.post(
    "/v1/jobs/{job_id}/preempt",
    status_code=202,
    response_model=CommandAccepted,
    responses=_ENDED,
    openapi_extra=json_body(PreemptBody),
)
async def preempt_job(request: Request, doors: ServiceDoors, principal: Submitter, job_id: str) -> Response:
    """Stop a job's run with its grace and put the job back. Only an admin may force it where something protects it.

    It means one run: the one that is named, else the newest when this is accepted; a later run is left alone.
    Whether it was done, or what protects the run, `GET /v1/commands/{command_id}` says.
    """
    body = parse_model(PreemptBody, await read_document(request))
    if body.force:
        require(principal, Role.ADMIN)
        require_class(principal, (await visible_job(doors, principal, job_id))["class_name"], "forcing")
    return await _command(request, doors, principal, job_id, "preempt", {"force": body.force, "run": body.run})


@router.post("/v1/jobs/{job_id}/resume", status_code=202, response_model=CommandAccepted, responses=_ENDED)
async def resume_job(request: Request, doors: ServiceDoors, principal: Submitter, job_id: str) -> Response:
    """Let a held job go on, with all its tries."""
    return await _command(request, doors, principal, job_id, "resume")


@router.get("/v1/commands/{command_id}", response_model=CommandView)
async def show_command(doors: ServiceDoors, principal: Viewer, command_id: int) -> Response:
    """What became of a request: `outcome` is null until the scheduler has taken it."""
    row = await doors.store.find_command(command_id) if 0 < command_id < 2**63 else None
    if row is None or (row["job_id"] is not None and not principal.sees(row["team_id"])):
        raise not_found(f"command {command_id}")
    return answer(command_view(row))


async def _command(
    request: Request,
    doors: Doors,
    principal: Principal,
    job_id: str,
    command: str,
    arguments: Mapping[str, Any] = _NO_ARGUMENTS,
) -> Response:
    await visible_job(doors, principal, job_id)
    kept = await doors.store.issue_command(
        job_id, command, arguments, issued_by=principal.name, traceparent=traceparent_of(request)
    )
    if kept.state is None:
        raise not_found(f"job {job_id}")
    state = JobState(kept.state)
    if kept.outcome == "ended":
        message = f"the job had ended before: it is {state} and stays so"
        return answer(CommandAccepted(command_id=None, job_id=job_id, state=state, message=message))
    if kept.outbox_id is not None:
        doors.outbox.committed([fact_row(kept.outbox_id, doors.settings.pool, kept.fact)])
    return answer(CommandAccepted(command_id=kept.command_id, job_id=job_id, state=state), 202)
