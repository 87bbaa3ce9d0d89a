"""What the policy allows a job to ask for, by its class. Order of checks:

 1. the class exists (by name or alias, in any case)
 2. the token may use the class
 3. the own priority lies in the class's range
 4. the grace is within the class's maximum
 5. the time limit is within the class's maximum
 6. the deadline is not past
 7. the job may begin before its deadline, and before its longest wait is over
 8. not every node that it names is excluded
 9. it asks for no more shares of a card than the policy gives any
10. its name is not what means another job wherever a job is named

What needs the team's row (limits, allowances, the queue's length) is decided in the transaction that inserts the job.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from makeway_policy.model import Mode
from makeway_policy.rules import JobClass, Policy
from makeway_schemas.api import FieldProblem
from makeway_schemas.durations import format_duration
from makeway_schemas.id_patterns import JOB_ID_LENGTH
from makeway_schemas.ids import is_job_id
from makeway_schemas.job_spec import JobSpec, PreemptionMode

RESERVED: Final = "@"
"""What no job's name begins with: references that are neither a name nor an id do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRights:
    """What a job's class makes of it. `whole_gpus`: GPUs that count for certain; a share's part is known later."""

    class_name: str
    whole_gpus: int
    class_needs_allowance: bool
    not_preemptible: bool
    hard_group: bool


def find_class(name: str | None, policy: Policy) -> JobClass | None:
    """The class of that name or alias, in any case where only one is meant; without a name the default class."""
    if name is None:
        return policy.classes[policy.default_class]
    found = policy.classes.get(name)
    if found is not None:
        return found
    classes = policy.classes.values()
    by_alias = next((each for each in classes if each.alias == name), None)
    meant = [
        each for each in classes if name.casefold() in {word.casefold() for word in (each.name, each.alias) if word}
    ]
    return by_alias or (meant[0] if len(meant) == 1 else None)


def rights_of(spec: JobSpec, policy: Policy, now: datetime) -> ClassRights | FieldProblem:
    """The job's class and what it needs, or the field that the policy refuses."""
    job_class = find_class(spec.class_, policy)
    if job_class is None:
        return FieldProblem(field="class", message=_unknown_class(spec.class_ or "", policy.classes))
    problem = (
        _objection(spec, job_class)
        or limits_objection(spec.time_limit, spec.deadline, job_class, now)
        or _begin_objection(spec, now)
        or _nodes_objection(spec)
        or _shares_objection(spec, policy)
        or _name_objection(spec.name)
    )
    if problem is not None:
        return problem
    firm = (
        not spec.preemptible
        or spec.preemption.exempt_after is not None
        or (spec.preemption.mode is PreemptionMode.OFF and job_class.mode is not Mode.OFF)
    )
    return ClassRights(
        class_name=job_class.name,
        whole_gpus=0 if spec.vram_mib is not None or spec.shares is not None else spec.gpus,
        class_needs_allowance=job_class.needs_allowance,
        not_preemptible=firm,
        hard_group=spec.group is not None and spec.group.hard,
    )


def _objection(spec: JobSpec, job_class: JobClass) -> FieldProblem | None:
    lowest, highest = job_class.own_value_min, job_class.own_value_max
    if spec.priority is not None and not lowest <= spec.priority <= highest:
        return FieldProblem(
            field="priority",
            message=f"must be {lowest} to {highest} in class {job_class.name}; this is {spec.priority}",
        )
    grace = spec.preemption.grace
    if grace is not None and job_class.grace_max_seconds is not None and grace > job_class.grace_max_seconds:
        longest = format_duration(job_class.grace_max_seconds)
        return FieldProblem(field="preemption.grace", message=f"must be at most {longest} in class {job_class.name}")
    return None


def limits_objection(
    time_limit: float | None, deadline: datetime | None, job_class: JobClass, now: datetime
) -> FieldProblem | None:
    """Checks 5 and 6, for a submit and for a change afterwards."""
    longest_run = job_class.time_limit_max_seconds
    if longest_run is not None and time_limit is not None and time_limit > longest_run:
        return FieldProblem(
            field="time_limit", message=f"must be at most {format_duration(longest_run)} in class {job_class.name}"
        )
    if deadline is not None and deadline <= now:
        return FieldProblem(field="deadline", message=f"must be in the future; now it is {now:%Y-%m-%dT%H:%M:%SZ}")
    return None


def deadline_objection(deadline: datetime, begin_at: datetime | None) -> FieldProblem | None:
    """Check 7 for a deadline that is changed afterwards; the time at which the job may begin stays what it is."""
    if begin_at is None or begin_at < deadline:
        return None
    return FieldProblem(
        field="deadline", message=f"must be after begin_at, {begin_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    )


def _begin_objection(spec: JobSpec, now: datetime) -> FieldProblem | None:
    begin_at = spec.begin_at
    if begin_at is None:
        return None
    if spec.deadline is not None and begin_at >= spec.deadline:
        deadline = spec.deadline.astimezone(UTC)
        return FieldProblem(field="begin_at", message=f"must be before the deadline, {deadline:%Y-%m-%dT%H:%M:%SZ}")
    if spec.max_wait is not None and begin_at >= now + timedelta(seconds=spec.max_wait):
        longest = format_duration(spec.max_wait)
        return FieldProblem(field="begin_at", message=f"must be before the longest wait, max_wait {longest}, is over")
    return None


def _nodes_objection(spec: JobSpec) -> FieldProblem | None:
    where = spec.constraints
    if not where.nodes or not set(where.nodes) <= set(where.exclude_nodes):
        return None
    named = ", ".join(where.nodes)
    return FieldProblem(
        field="constraints.exclude_nodes",
        message=f"leaves none of the nodes that constraints.nodes names: {named}"[:500],
    )


def _shares_objection(spec: JobSpec, policy: Policy) -> FieldProblem | None:
    if spec.shares is None or spec.shares <= policy.max_shares:
        return None
    return FieldProblem(field="shares", message=f"must be at most {policy.max_shares}, the policy's max_shares")


def _name_objection(name: str) -> FieldProblem | None:
    # Not in the specification's model: a job that was admitted with such a name before has to be read all the same.
    if name.startswith(RESERVED):
        message = f"must not begin with {RESERVED}: @last, wherever a job is named, is the newest job of a token"
    elif is_job_id(name):
        message = f"must not have the form of a job's id, {JOB_ID_LENGTH} digits and letters: it would mean that job"
    else:
        return None
    return FieldProblem(field="name", message=message)


def _unknown_class(name: str, classes: Mapping[str, JobClass]) -> str:
    names = [*classes, *(each.alias for each in classes.values() if each.alias)]
    near = difflib.get_close_matches(name, names, n=1)
    return f"there is no class {name!r}" + (f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names)}")
