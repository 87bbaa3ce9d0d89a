"""What is refused before anything is decided: a policy that contradicts itself, a job that the policy forbids.

Order of checks of a submit (the first that fails is the reason shown):
 1. the class exists, and the team may use it
 2. the job's own value is inside its class's range
 3. its grace is no longer than its class allows
 4. its time limit is no longer than its class allows
 5. of `gpus: min..max` the second is not less than the first; its deadline is not past; it may begin before its
    deadline and before its longest wait is over
 6. `preemptible: false`, `exempt_after` and hard groups: the team's allowance
 7. the team's limits in GPUs could ever take it (those in per cent follow the nodes, and are judged later)
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from makeway_policy import priority, quota
from makeway_policy.model import Job, Mode, Reason, Refusal
from makeway_policy.priority import class_of
from makeway_policy.rules import JobClass, Policy
from makeway_policy.state import PoolState

_STEP_SECONDS_LEAST: Final = 0.001
"""Clocks tell no shorter steps apart, so that the next would be due at once for ever."""


def problems(policy: Policy) -> tuple[str, ...]:
    """Everything that is wrong with a policy, each a sentence that starts with the field's path."""
    return tuple(_problems(policy))


def refuse_submit(state: PoolState, policy: Policy, job: Job, now: float) -> Refusal | None:
    """Why the job may not be submitted; None if it may. `detail["field"]` names the field."""
    if job.class_name not in policy.classes:
        known = ", ".join(sorted(policy.classes))
        return _invalid("class", f"there is no class {job.class_name}; there are {known}")
    if not quota.may_use_class(state.team(job.team), policy.classes[job.class_name]):
        return _invalid("class", f"team {job.team} may not use class {job.class_name}", Reason.ALLOWANCE)
    return (
        _refuse_values(policy, job, now)
        or _refuse_privileges(state, job)
        or quota.can_ever(state, policy, job, whatever_the_pool=True)
    )


def _refuse_values(policy: Policy, job: Job, now: float) -> Refusal | None:
    rules = class_of(job, policy)
    own, grace, limit = job.own_priority, job.grace_seconds, job.time_limit_seconds
    if own is not None and not rules.own_value_min <= own <= rules.own_value_max:
        return _invalid(
            "priority",
            f"class {rules.name} takes values from {rules.own_value_min} to {rules.own_value_max}, not {own}",
        )
    if grace is not None and rules.grace_max_seconds is not None and grace > rules.grace_max_seconds:
        return _invalid("preemption.grace", f"class {rules.name} allows at most {rules.grace_max_seconds:g} s")
    if limit is not None and rules.time_limit_max_seconds is not None and limit > rules.time_limit_max_seconds:
        return _invalid("time_limit", f"class {rules.name} allows at most {rules.time_limit_max_seconds:g} s")
    if job.shape.gpus_max is not None and job.shape.gpus_max < job.shape.gpus:
        return _invalid("gpus", f"at most {job.shape.gpus_max} is less than at least {job.shape.gpus}")
    if job.deadline is not None and job.deadline <= now:
        return _invalid("deadline", "it is past")
    if job.begin_at is not None:
        if job.deadline is not None and job.begin_at >= job.deadline:
            return _invalid("begin_at", "it is not before the deadline")
        if job.max_wait_seconds is not None and job.begin_at >= job.submitted_at + job.max_wait_seconds:
            return _invalid("begin_at", f"it is not before the longest wait, {job.max_wait_seconds:g} s, is over")
    return None


def _refuse_privileges(state: PoolState, job: Job) -> Refusal | None:
    team = state.team(job.team)
    group = state.groups.get(job.group) if job.group is not None else None
    asked = {
        "preemptible": (not job.preemptible or job.mode is Mode.OFF, "not_preemptible"),
        "preemption.exempt_after": (job.exempt_after_seconds is not None, "not_preemptible"),
        "group": (group is not None and group.hard, "hard_groups"),
    }
    for field, (wanted, name) in asked.items():
        if wanted and not quota.has_allowance(team, name):
            return _invalid(field, f"team {job.team} has no allowance for it", Reason.ALLOWANCE)
    return None


def _problems(policy: Policy) -> Iterator[str]:
    if policy.delta < 1:
        yield "delta: at least 1"
    if policy.default_class not in policy.classes:
        yield f"default_class: there is no class {policy.default_class}"
    if policy.aging_step < 1:
        yield "aging_step: at least 1"
    for name in ("hold_expiry_seconds", "start_timeout_seconds", "backing_off_seconds"):
        if not getattr(policy, name) > 0:
            yield f"{name}: more than 0"
    yield from _doubled_names(policy)
    ordered = sorted(policy.classes.values(), key=lambda rules: (rules.own_value_min, rules.name))
    for rules in ordered:
        if not rules.own_value_min <= rules.value <= rules.own_value_max:
            yield f"classes.{rules.name}.value: {rules.value} is outside its own values"
        for name in ("grace_seconds", "minimum_run_seconds", "restart_seconds"):
            if not 0 <= getattr(rules, name) < float("inf"):
                yield f"classes.{rules.name}.{name}: 0 or more"
        if rules.grace_max_seconds is not None and rules.grace_seconds > rules.grace_max_seconds:
            yield f"classes.{rules.name}.grace_seconds: longer than its grace_max, {rules.grace_max_seconds:g} s"
        if rules.sla_wait_seconds is not None and not rules.sla_wait_seconds > 0:
            yield f"classes.{rules.name}.sla_wait_seconds: more than 0, or none"
        if (step := _aging_step_seconds(policy, rules)) < _STEP_SECONDS_LEAST:
            yield (
                f"classes.{rules.name}.sla_wait_seconds: with aging_step and aging_points a step of aging takes "
                f"{step:g} s, which should be {_STEP_SECONDS_LEAST:g} s or more"
            )
    for lower, higher in pairwise(ordered):
        if higher.own_value_min - lower.own_value_max < 2 * policy.delta:
            yield f"classes.{higher.name}.own_value_min: less than {2 * policy.delta} above class {lower.name}"


def _aging_step_seconds(policy: Policy, rules: JobClass) -> float:
    """How long a job of the class waits for each step of its queue value; infinite where it makes none."""
    ages = policy.priorities and policy.aging_points > 0 and rules.own_value_min < policy.aging_cap
    if not ages or rules.sla_wait_seconds is None or not rules.sla_wait_seconds > 0:
        return math.inf
    return priority.step_seconds(policy, rules.sla_wait_seconds)


def _doubled_names(policy: Policy) -> Iterator[str]:
    owners = {name: name for name in policy.classes}
    for rules in policy.classes.values():
        if rules.alias is not None and owners.setdefault(rules.alias, rules.name) != rules.name:
            yield f"classes.{rules.name}.alias: {rules.alias} means class {owners[rules.alias]} already"


def _invalid(field: str, sentence: str, reason: Reason = Reason.INVALID) -> Refusal:
    return Refusal(reason=reason, sentence=sentence, detail={"field": field})
