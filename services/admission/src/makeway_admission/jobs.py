"""Submitting jobs and looking at them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from makeway_policy.quantities import quantity, verb
from makeway_runtime import tracing
from makeway_schemas.api import FieldProblem, JobDetail, JobPage, Submitted
from makeway_schemas.ids import is_job_id, new_job_id
from makeway_schemas.job_spec import JobSpec
from makeway_schemas.refusals import said
from makeway_schemas.states import JobState
from opentelemetry.trace import SpanKind
from starlette.responses import Response

from makeway_admission import measures
from makeway_admission.access import Principal, Role, require
from makeway_admission.admitting import JobRequest
from makeway_admission.answers import PROBLEMS, answer, json_body
from makeway_admission.bodies import read_document
from makeway_admission.class_rules import ClassRights, find_class, rights_of
from makeway_admission.doors import Doors, ServiceDoors, Viewer, doors_of
from makeway_admission.errors import ProblemCode, Refused, not_found, problem_of, refused
from makeway_admission.intake import Answer, Outcome
from makeway_admission.parameters import require_known_parameters
from makeway_admission.reads import JobFilter
from makeway_admission.requests import parse_job
from makeway_admission.settings import DEFAULT_PAGE, MAX_PAGE
from makeway_admission.texts import unkeepable_text
from makeway_admission.undecided import ViewT, with_reasons
from makeway_admission.views import job_detail, job_view

router: Final = APIRouter(tags=["jobs"], responses=PROBLEMS)

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_KEY: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?")
_SHOWN_AFTER_END: Final = timedelta(days=1)


@router.post(
    "/v1/jobs",
    status_code=201,
    response_model=Submitted,
    responses={200: {"model": Submitted, "description": "The idempotency key is known: this is the first job."}},
    openapi_extra={
        "parameters": [{"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "maxLength": 255}}],
        **json_body(JobSpec),
    },
)
async def submit(request: Request) -> Response:
    """Submit a job. With the same Idempotency-Key and body the first job is returned, whatever became of it."""
    # By hand where FastAPI would solve dependencies: this is the path whose milliseconds count.
    doors = doors_of(request)
    with measures.SUBMIT_SECONDS.time():
        principal = await doors.access.principal(request.headers.get("authorization"))
        require(principal, Role.SUBMITTER)
        require_known_parameters(request)
        key = _idempotency_key(request.headers.get("idempotency-key"))
        document = await read_document(request)
        traceparent = traceparent_of(request)
        with tracing.span("admit job", kind=SpanKind.SERVER, traceparent=traceparent):
            traceparent = tracing.current_traceparent() or traceparent
            result = await _submit(doors, principal, document, key=key, traceparent=traceparent)
    measures.SUBMITS.labels(result.outcome).inc()
    if result.outcome not in (Outcome.ADMITTED, Outcome.REPEATED):
        raise _team_refusal(result, team=_team_of(principal, document.get("team")))
    repeated = result.outcome is Outcome.REPEATED
    return answer(
        Submitted(job_id=result.job_id, name=result.name, repeated=repeated),
        200 if repeated else 201,
        {"Location": f"/v1/jobs/{result.job_id}"},
    )


@router.get("/v1/jobs", response_model=JobPage)
async def list_jobs(
    doors: ServiceDoors,
    principal: Viewer,
    state: Annotated[list[JobState] | None, Query(description="May be given more than once.")] = None,
    team: str | None = None,
    class_: Annotated[str | None, Query(alias="class")] = None,
    name: str | None = None,
    label: Annotated[list[str] | None, Query(description="name=value; all must hold.")] = None,
    node: str | None = None,
    since: Annotated[datetime | None, Query(description="Submitted at or after; with a zone.")] = None,
    all: Annotated[bool, Query(description="Also jobs that ended more than a day ago.")] = False,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = DEFAULT_PAGE,
) -> Response:
    """A page of jobs, newest first."""
    if team is not None and not principal.sees(team):
        raise not_found(f"team {team[:100]}")
    job_class = None if class_ is None else find_class(class_, doors.policy)
    wanted = JobFilter(
        team=team or principal.team,
        states=tuple(each.value for each in state) if state else None,
        class_name=class_ if job_class is None else job_class.name,
        name=name,
        labels=_labels(label or []),
        node=node,
        since=_with_zone(since),
        ended_after=None if all or state else datetime.now(UTC) - _SHOWN_AFTER_END,
        before=cursor_of(cursor),
        limit=limit + 1,
    )
    rows = await doors.store.list_jobs(wanted)
    more = len(rows) > limit
    views = [job_view(row, doors.policy) for row in rows[:limit]]
    return answer(
        JobPage(
            jobs=await _with_reasons(doors, views),
            next=str(rows[limit - 1]["admission_order"]) if more else None,
        )
    )


@router.get("/v1/jobs/{job_id}", response_model=JobDetail)
async def show_job(doors: ServiceDoors, principal: Viewer, job_id: str) -> Response:
    """A job with its specification and runs."""
    row = await doors.store.get_job(job_id) if is_job_id(job_id) else None
    if row is None or not principal.sees(row["team_id"]):
        raise not_found(f"job {job_id[:100]}")
    runs = await doors.store.runs_of_job(job_id)
    (view,) = await _with_reasons(doors, [job_detail(row, runs, doors.policy)])
    return answer(view)


async def _with_reasons(doors: Doors, views: Sequence[ViewT]) -> tuple[ViewT, ...]:
    return await with_reasons(doors.store, views, datetime.now(UTC), recheck_seconds=doors.policy.recheck_seconds)


def traceparent_of(request: Request) -> str | None:
    """The trace that the client is in; None without one, or where it is not well formed."""
    given = request.headers.get("traceparent", "")
    return given if _TRACEPARENT.fullmatch(given) else None


def cursor_of(text: str | None) -> int | None:
    """A page's cursor. Raises Refused where it is none of ours."""
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 18:
        raise refused(ProblemCode.INVALID_FIELD, "is not a cursor of an earlier page", field="cursor")
    return int(text)


async def _submit(
    doors: Doors, principal: Principal, document: Mapping[str, Any], *, key: str | None, traceparent: str | None
) -> Answer:
    spec = parse_job(document)
    team = _team_of(principal, spec.team)
    request_hash = _hash(document) if key is not None else None
    rights = rights_of(spec, doors.policy, datetime.now(UTC))
    problem = rights if isinstance(rights, FieldProblem) else _class_refusal(principal, rights)
    if problem is not None or isinstance(rights, FieldProblem):
        # What was admitted under an older policy stays the answer to its key.
        known = await _known(doors, team, key, request_hash)
        if known is not None:
            return known
        fields = () if problem is None else (problem,)
        raise Refused(problem_of(ProblemCode.INVALID_FIELD, said(fields), fields))
    job_id = new_job_id()
    return await doors.intake.admit(
        JobRequest(
            job_id=job_id,
            team=team,
            name=spec.name or job_id,
            class_name=rights.class_name,
            spec=_spec_text(spec),
            whole_gpus=rights.whole_gpus,
            class_needs_allowance=rights.class_needs_allowance,
            not_preemptible=rights.not_preemptible,
            hard_group=rights.hard_group,
            submitted_by=principal.name,
            traceparent=traceparent,
            key=key,
            request_hash=request_hash,
        )
    )


async def _known(doors: Doors, team: str, key: str | None, request_hash: bytes | None) -> Answer | None:
    row = None if key is None else await doors.store.keyed_job(team, key)
    if row is None or row["request_hash"] != request_hash:
        return None
    return Answer(outcome=Outcome.REPEATED, job_id=row["job_id"], name=row["name"])


def _team_of(principal: Principal, wanted: str | None) -> str:
    if principal.team is None:
        return wanted or "default"
    if wanted is not None and wanted != principal.team:
        raise refused(ProblemCode.FORBIDDEN, f"the token is of team {principal.team}", field="team")
    return principal.team


def _class_refusal(principal: Principal, rights: ClassRights) -> FieldProblem | None:
    if principal.classes is None or rights.class_name in principal.classes:
        return None
    allowed = ", ".join(sorted(principal.classes)) or "none"
    return FieldProblem(field="class", message=f"the token may not use {rights.class_name}; it may use {allowed}")


def _spec_text(spec: JobSpec) -> str:
    text = spec.model_dump_json(by_alias=True, exclude_none=True)
    problem = unkeepable_text(spec.model_dump(by_alias=True)) if "\\u0000" in text else None
    if problem is not None:
        raise Refused(problem_of(ProblemCode.INVALID_FIELD, said((problem,)), (problem,)))
    return text


def _team_refusal(result: Answer, *, team: str) -> Refused:
    bound = result.bound or 0
    match result.outcome:
        case Outcome.KEY_REUSED:
            detail = f"the key was used for job {result.job_id} with another body; use a new key for a new job"
            return refused(ProblemCode.IDEMPOTENCY_KEY_REUSED, detail)
        case Outcome.UNKNOWN_TEAM:
            return refused(ProblemCode.UNKNOWN_TEAM, f"there is no team {team}; an admin sets teams up", field="team")
        case Outcome.QUEUE_FULL:
            detail = f"{quantity(bound, 'job')} of team {team} {verb(bound)} waiting, which is its maximum"
            return refused(ProblemCode.QUEUE_FULL, detail, headers={"Retry-After": "10"})
        case Outcome.TEAM_LIMIT:
            return refused(ProblemCode.OVER_LIMIT, f"must be at most {bound}, the limit of team {team}", field="gpus")
        case Outcome.USER_LIMIT:
            detail = f"must be at most {bound}, the limit of each user of team {team}"
            return refused(ProblemCode.OVER_LIMIT, detail, field="gpus")
        case Outcome.HARD_GROUPS_ALLOWANCE:
            detail = f"team {team} is allowed {quantity(bound, 'GPU')} of jobs in hard groups"
            return refused(ProblemCode.NOT_ALLOWED, detail, field="group")
        case Outcome.CLASS_LIMIT:
            detail = f"must be at most {bound}, the limit of team {team} for this class"
            return refused(ProblemCode.OVER_LIMIT, detail, field="gpus")
        case Outcome.CLASS_ALLOWANCE:
            detail = f"team {team} is allowed {quantity(bound, 'GPU')} in this class, which needs an allowance"
            return refused(ProblemCode.NOT_ALLOWED, detail, field="class")
        case _:
            detail = (
                f"team {team} is allowed {quantity(bound, 'GPU')} of jobs that cannot be preempted, or not at some time"
            )
            return refused(ProblemCode.NOT_ALLOWED, detail, field="preemptible")


def _idempotency_key(header: str | None) -> str | None:
    if header is None:
        return None
    # The draft writes the key as a quoted string; most clients send it bare. Both name the same key.
    key = header[1:-1] if len(header) >= 2 and header[0] == header[-1] == '"' else header
    if _KEY.fullmatch(key) is None:
        raise refused(ProblemCode.BAD_REQUEST, "Idempotency-Key must be 1 to 255 printable ASCII characters")
    return key


def _hash(document: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).digest()


def _labels(wanted: list[str]) -> dict[str, str] | None:
    labels: dict[str, str] = {}
    for each in wanted:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise refused(ProblemCode.INVALID_FIELD, "must be name=value", field="label")
        labels[name] = value
    return labels or None


def _with_zone(moment: datetime | None) -> datetime | None:
    if moment is not None and moment.tzinfo is None:
        raise refused(ProblemCode.INVALID_FIELD, "must have a zone, such as 2026-01-31T12:00:00Z", field="since")
    return moment
