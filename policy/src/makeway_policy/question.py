"""Who looks for victims, and in which state: what every search for them asks."""

from collections.abc import Mapping
from dataclasses import dataclass

from makeway_policy import quota
from makeway_policy.demand import Demand
from makeway_policy.model import Job
from makeway_policy.priority import class_of, may_take_victims, preemption_value
from makeway_policy.rooms import NodeRoom
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState

SetKey = tuple[float, float, float, *tuple[object, ...]]
"""By what sets of victims compare, smaller is better: soft breaches, highest v, cost (as the policy orders), others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Preemptor:
    """The job that looks for victims, and what it may do: by priority, or by reclaim (rights of its guarantee)."""

    job: Job
    v: int
    by_priority: bool
    by_reclaim: bool
    overrides: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What is asked: the state (with its room per node) and policy as they are now, and who asks.

    `demand` is what fragmentation is weighed by, where the policy weighs it.
    """

    state: PoolState
    rooms: Mapping[str, NodeRoom]
    policy: Policy
    now: float
    preemptor: Preemptor
    demand: Demand | None = None


def preemptor_of(state: PoolState, policy: Policy, job: Job, now: float) -> Preemptor:
    """What the job may do now."""
    units = quota.needed_units(job, None, state)
    return Preemptor(
        job=job,
        v=preemption_value(job, policy, now),
        by_priority=may_take_victims(job, policy, now),
        by_reclaim=policy.preemption
        and state.team(job.team).guarantee > 0
        and quota.within_guarantee(state, job, units),
        overrides=class_of(job, policy).overrides_minimum_run,
    )
