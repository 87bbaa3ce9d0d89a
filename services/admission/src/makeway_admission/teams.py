"""Teams: what each may use, and what it uses now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter, Request
from makeway_policy.rules import Policy
from makeway_schemas.amounts import percent_of
from makeway_schemas.api import FieldProblem, TeamBody, TeamView
from makeway_schemas.names import team_name_objection
from makeway_schemas.refusals import said
from starlette.responses import Response

from makeway_admission.access import require_all
from makeway_admission.answers import PROBLEMS, answer, answer_list, json_body
from makeway_admission.bodies import read_document
from makeway_admission.doors import Admin, ServiceDoors, Viewer
from makeway_admission.errors import ProblemCode, Refused, not_found, problem_of, refused
from makeway_admission.percents import columns_of
from makeway_admission.reads import Record
from makeway_admission.requests import parse_model
from makeway_admission.team_rights import firm_names, guarantee_objection, notes_of
from makeway_admission.views import team_view

router: Final = APIRouter(tags=["teams"], responses=PROBLEMS)


@router.get("/v1/teams", response_model=list[TeamView])
async def list_teams(doors: ServiceDoors, principal: Viewer) -> Response:
    """The teams that the token sees."""
    pool_gpus = await doors.store.pool_gpus()
    return answer_list([team_view(row, pool_gpus) for row in await doors.store.list_teams(principal.team)])


@router.get("/v1/teams/{team}", response_model=TeamView)
async def show_team(doors: ServiceDoors, principal: Viewer, team: str) -> Response:
    """One team."""
    rows = await doors.store.list_teams(team) if principal.sees(team) else []
    if not rows:
        raise not_found(f"team {team[:100]}")
    return answer(team_view(rows[0], await doors.store.pool_gpus()))


# The name as a path, so that an empty one is refused by name and not as a path that is none.
@router.put("/v1/teams/{team:path}", response_model=TeamView, openapi_extra=json_body(TeamBody))
async def put_team(request: Request, doors: ServiceDoors, principal: Admin, team: str) -> Response:
    """Set a team up. Once any team is, a team that is not known may not submit, and rights are those set up.

    `notes` of the answer say what else should be known of it.
    """
    require_all(principal, "setting teams up")
    objection = team_name_objection(team)
    if objection is not None:
        raise refused(ProblemCode.INVALID_FIELD, objection, field="team")
    body = parse_model(TeamBody, await read_document(request))
    _refuse(_problems(body, doors.policy))

    def check(teams: Sequence[Record]) -> None:
        problem = guarantee_objection(team, body, teams)
        _refuse(() if problem is None else (problem,))

    before = await doors.store.put_team(
        check,
        team=team,
        gpu_hours_per_month=body.gpu_hours_per_month,
        weight=body.weight,
        max_queued=body.max_queued,
        **columns_of(body),
    )
    pool_gpus = await doors.store.pool_gpus()
    notes = notes_of(team, body, before, pool_gpus, doors.policy)
    return answer(team_view((await doors.store.list_teams(team))[0], pool_gpus, notes))


def _refuse(problems: tuple[FieldProblem, ...]) -> None:
    if problems:
        raise Refused(problem_of(ProblemCode.INVALID_FIELD, said(problems), problems))


def _problems(body: TeamBody, policy: Policy) -> tuple[FieldProblem, ...]:
    found = []
    if _is_more(body.guarantee, body.limit):
        found.append(FieldProblem(field="guarantee", message=f"must be at most the limit, {body.limit}"))
    for field, figures, names in (
        ("class_limits", body.class_limits, set(policy.classes)),
        ("allowances", body.allowances, firm_names(policy)),
    ):
        for name in figures.keys() - names:
            message = f"is none of {', '.join(sorted(names))}"
            found.append(FieldProblem(field=f"{field}.{name[:100]}", message=message))
    return tuple(found)


def _is_more(guarantee: int | str, limit: int | str | None) -> bool:
    """Whether a guarantee is above a limit, where both are GPUs or both per cent."""
    if isinstance(guarantee, int) and isinstance(limit, int):
        return guarantee > limit
    percents = percent_of(guarantee), percent_of(limit)
    return percents[0] is not None and percents[1] is not None and percents[0] > percents[1]
