"""The policy: what is in force, and what another one would change. Order of checks of one that is to be applied:

1. every field is known and in its bounds
2. the values fit together
3. no class is taken away that jobs which have not ended are in
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from makeway_policy.checks import problems
from makeway_policy.document import flattened, from_document, name_in_document, to_document
from makeway_policy.rules import Policy
from makeway_schemas.api import FieldProblem, PolicyApplied, PolicyFieldChange, PolicyJobChange, PolicyView
from makeway_schemas.policy_file import PolicyFile
from makeway_schemas.refusals import said
from starlette.responses import JSONResponse, Response

from makeway_admission.access import require_all
from makeway_admission.answers import PROBLEMS, answer, json_body
from makeway_admission.bodies import read_document
from makeway_admission.doors import Admin, Doors, ServiceDoors, Viewer
from makeway_admission.errors import ProblemCode, Refused, not_found, problem_of
from makeway_admission.facts import fact_row
from makeway_admission.policy_in_force import KeptPolicy
from makeway_admission.requests import parse_model

router: Final = APIRouter(tags=["policy"], responses=PROBLEMS)

_MOST_JOBS: Final = 100


@router.get("/v1/policy", response_model=dict[str, Any])
async def effective_policy(doors: ServiceDoors, _principal: Viewer) -> Response:
    """Every value of the policy; durations in seconds."""
    return JSONResponse(plain(doors.policy))


@router.get("/v1/policies/{pool}", response_model=PolicyView)
async def show_policy(doors: ServiceDoors, _principal: Viewer, pool: str) -> Response:
    """The policy in force: what was applied, and every value that holds."""
    _require_pool(doors, pool)
    await doors.policies.look()
    return answer(_view(pool, doors.policies.current))


@router.put("/v1/policies/{pool}", response_model=PolicyApplied, openapi_extra=json_body(PolicyFile))
async def put_policy(
    request: Request,
    doors: ServiceDoors,
    principal: Admin,
    pool: str,
    dry_run: Annotated[bool, Query(description="Change nothing; say what would change.")] = False,
) -> Response:
    """Apply a policy to the pool. The order of the queue, and the values of runs and holds, follow at once."""
    require_all(principal, "applying a policy")
    _require_pool(doors, pool)
    document = parse_model(PolicyFile, await read_document(request)).document()
    wanted = KeptPolicy(policy=_in_order(document), document=document)
    await doors.policies.look()
    before = doors.policies.current
    await _refuse_lost_classes(doors, wanted.policy)
    changes = _changes(before.policy, wanted.policy)
    count, jobs = await _changed_jobs(doors, before.policy, wanted.policy)
    new = bool(changes) or wanted.document != before.document
    if new and not dry_run:
        outbox_id, fact = await doors.store.insert_policy(document, principal.name)
        doors.outbox.committed([fact_row(outbox_id, pool, fact)])
        await doors.policies.look()
        wanted = doors.policies.current
    view = _view(pool, wanted if new else before)
    applied = new and not dry_run
    return answer(PolicyApplied(policy=view, applied=applied, changes=changes, jobs_changed=count, jobs=jobs))


def plain(value: object) -> object:
    """Frozen values as JSON knows them."""
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return [plain(inner) for inner in value]
    if isinstance(value, set | frozenset):
        return sorted(str(inner) for inner in value)
    return value


def _require_pool(doors: Doors, pool: str) -> None:
    if pool != doors.settings.pool:
        raise not_found(f"pool {pool[:100]} here; this is {doors.settings.pool}")


def _view(pool: str, kept: KeptPolicy) -> PolicyView:
    return PolicyView(
        pool=pool,
        policy_id=kept.policy_id,
        document=dict(kept.document),
        effective=to_document(kept.policy),
        applied_by=kept.applied_by,
        applied_at=kept.applied_at,
    )


def _in_order(document: Mapping[str, Any]) -> Policy:
    policy = from_document(document)
    split = [sentence.partition(": ") for sentence in problems(policy)]
    wrong = tuple(FieldProblem(field=name_in_document(path), message=message) for path, _, message in split)
    if wrong:
        raise Refused(problem_of(ProblemCode.INVALID_FIELD, said(wrong), wrong))
    return policy


async def _refuse_lost_classes(doors: Doors, wanted: Policy) -> None:
    lost = tuple(
        FieldProblem(field=f"classes.{name}", message=f"must stay: jobs that have not ended are in it ({count})")
        for name, count in (await doors.store.live_jobs_by_class()).items()
        if name in doors.policy.classes and name not in wanted.classes
    )
    if lost:
        raise Refused(problem_of(ProblemCode.INVALID_FIELD, said(lost), lost))


def _changes(before: Policy, after: Policy) -> tuple[PolicyFieldChange, ...]:
    old, new = flattened(to_document(before)), flattened(to_document(after))
    return tuple(
        PolicyFieldChange(field=path, before=old.get(path), after=new.get(path))
        for path in dict.fromkeys((*old, *new))
        if (path in old, old.get(path)) != (path in new, new.get(path))
    )


async def _changed_jobs(doors: Doors, before: Policy, after: Policy) -> tuple[int, tuple[PolicyJobChange, ...]]:
    """How many jobs change their base, and the first of them. Only a job without a value of its own, or an admin's."""
    changed = sorted(
        name
        for name, rules in before.classes.items()
        if name in after.classes and after.classes[name].value != rules.value
    )
    if not changed:
        return 0, ()
    rows = await doors.store.jobs_at_class_value(changed, _MOST_JOBS)
    jobs = tuple(
        PolicyJobChange.model_validate(
            {
                **{name: row[name] for name in ("job_id", "name", "state")},
                "team": row["team_id"],
                "class": row["class_name"],
                "before": before.classes[row["class_name"]].value,
                "after": after.classes[row["class_name"]].value,
            }
        )
        for row in rows
    )
    return (rows[0]["total"] if rows else 0), jobs
