"""Tokens: made, listed, revoked. The secret is shown once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from fastapi import APIRouter, Request
from makeway_schemas.api import FieldProblem, TokenCreated, TokenRequest, TokenView
from starlette.responses import Response

from makeway_admission.access import Principal, new_token
from makeway_admission.answers import PROBLEMS, answer, answer_list, json_body
from makeway_admission.bodies import read_document
from makeway_admission.class_rules import find_class
from makeway_admission.doors import Admin, Doors, ServiceDoors
from makeway_admission.errors import ProblemCode, Refused, not_found, problem_of, refused
from makeway_admission.requests import parse_model
from makeway_admission.views import token_columns, token_view

router: Final = APIRouter(tags=["tokens"], responses=PROBLEMS)

_LONGEST_SECONDS: Final = 10 * 366 * 86400.0


@router.post("/v1/tokens", status_code=201, response_model=TokenCreated, openapi_extra=json_body(TokenRequest))
async def create_token(request: Request, doors: ServiceDoors, principal: Admin) -> Response:
    """Make a token, of no more teams and classes than one's own, that ends no later.

    A node's token is made by an admin of all teams and classes.
    """
    wanted = parse_model(TokenRequest, await read_document(request))
    team = wanted.team if principal.team is None else wanted.team or principal.team
    classes = _class_names(wanted, doors)
    problem = _objection(wanted, principal, team) or _classes_objection(classes, principal)
    if problem is not None:
        raise Refused(problem_of(ProblemCode.INVALID_FIELD, f"{problem.field}: {problem.message}", (problem,)))
    if team is not None and not await doors.store.ensure_team(team):
        raise refused(ProblemCode.UNKNOWN_TEAM, f"there is no team {team}; set it up first", field="team")
    token = new_token()
    row = await doors.store.insert_token(
        token,
        role=wanted.role,
        team=team,
        node=wanted.node,
        classes=classes,
        label=wanted.label,
        created_by=principal.name,
        expires_in_seconds=wanted.expires_in_seconds,
        not_after=principal.expires_at,
    )
    return answer(TokenCreated.model_validate({**token_columns(row), "token": token.text}), 201)


@router.get("/v1/tokens", response_model=list[TokenView])
async def list_tokens(doors: ServiceDoors, principal: Admin) -> Response:
    """Tokens that may no more than one's own team and classes, revoked ones included, newest first; no secrets."""
    return answer_list([token_view(row) for row in await doors.store.list_tokens(principal)])


@router.delete("/v1/tokens/{token_id}", response_model=TokenView)
async def revoke_token(doors: ServiceDoors, principal: Admin, token_id: str) -> Response:
    """End a token. It is refused at once here, and within a second by every other process."""
    row = await doors.store.revoke_token(token_id, principal)
    if row is None:
        raise not_found(f"token {token_id[:100]}")
    doors.access.forget(token_id)
    return answer(token_view(row))


def _objection(wanted: TokenRequest, principal: Principal, team: str | None) -> FieldProblem | None:
    if principal.team is not None and (team != principal.team or wanted.role == "node"):
        return FieldProblem(field="team", message=f"an admin of team {principal.team} makes its tokens only")
    if principal.classes is not None and wanted.role == "node":
        return FieldProblem(field="role", message="a node's token is made by an admin of all classes")
    if (wanted.role == "node") != (wanted.node is not None):
        return FieldProblem(field="node", message="is given for the role node and for no other")
    if wanted.node is not None and team is not None:
        return FieldProblem(field="node", message="a node has no team")
    if not wanted.label.isprintable():
        return FieldProblem(field="label", message="has characters that cannot be printed")
    expires = wanted.expires_in_seconds
    if expires is not None and not expires <= _LONGEST_SECONDS:
        return FieldProblem(field="expires_in_seconds", message=f"must be at most {_LONGEST_SECONDS:.0f}")
    return _expiry_objection(expires, principal.expires_at, datetime.now(UTC))


def _expiry_objection(expires: float | None, end: datetime | None, now: datetime) -> FieldProblem | None:
    """A token that is to end later than the one that makes it."""
    if expires is None or end is None or now + timedelta(seconds=expires) <= end:
        return None
    message = f"must be at most {max(0.0, (end - now).total_seconds()):.0f}: the token that asks expires itself at"
    return FieldProblem(field="expires_in_seconds", message=f"{message} {end.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")


def _classes_objection(classes: list[str] | None, principal: Principal) -> FieldProblem | None:
    """A token that is bound to classes makes none that may use others; ``classes`` None: every class."""
    if principal.classes is None or (classes is not None and principal.classes.issuperset(classes)):
        return None
    return FieldProblem(field="classes", message="must be among those of the token that asks")


def _class_names(wanted: TokenRequest, doors: Doors) -> list[str] | None:
    if wanted.classes is None:
        return None
    found = {name: find_class(name, doors.policy) for name in wanted.classes}
    for name, job_class in found.items():
        if job_class is None:
            raise refused(ProblemCode.INVALID_FIELD, f"there is no class {name[:100]!r}", field="classes")
    return sorted({job_class.name for job_class in found.values() if job_class is not None})
