"""What a job is worth: base, queue value q, preemption value v, and who may evict whom.

q orders the queue and grows with waiting; v evicts and does not, but for one Δ once a job is aged. So priority evicts
only downwards in (base, earlier submit) and no chain of evictions leads back to its start (law 6).
"""

import math
from functools import lru_cache

from makeway_policy.model import Job
from makeway_policy.rules import JobClass, MayPreempt, Policy

_NEVER = MayPreempt.NEVER
_YES = MayPreempt.YES

_ROUNDING = 1e-6
"""A float of seconds since the epoch is good to a quarter of a microsecond; a step that is due now counts."""

_ULPS = 8
"""A clock far beyond the epoch's is less good than that; so many of its smallest steps may go astray in a sum."""


def class_of(job: Job, policy: Policy) -> JobClass:
    """The job's class; one that the policy no longer has counts as the default class."""
    return policy.classes.get(job.class_name) or policy.classes[policy.default_class]


def base(job: Job, policy: Policy) -> int:
    """An admin's value, else the job's own, else its class's."""
    if job.manual_priority is not None:
        return job.manual_priority
    if job.own_priority is not None:
        return job.own_priority
    return class_of(job, policy).value


def queue_value(job: Job, policy: Policy, now: float) -> tuple[int, bool]:
    """(q, whether the boost is at its cap) after waiting until `now` in the current stay."""
    if not policy.priorities:
        return 0, False
    own = base(job, policy)
    wanted = own + steps(job, policy, now) * policy.aging_step
    cap = max(own, policy.aging_cap)
    return min(wanted, cap), wanted >= cap > own


def cap_of(job: Job, policy: Policy) -> int | None:
    """The q at which aging ends for the job; None if it never adds anything."""
    if not policy.priorities or policy.aging_cap <= base(job, policy):
        return None
    return policy.aging_cap


def steps(job: Job, policy: Policy, now: float) -> int:
    """How many whole aging steps the job has made in its current stay in the queue."""
    sla_wait = class_of(job, policy).sla_wait_seconds
    if not sla_wait or policy.aging_points <= 0:
        return 0
    beyond = now - job.queued_since - sla_wait + rounding_at(now)
    return max(0, math.floor(beyond / step_seconds(policy, sla_wait))) if beyond > 0 else 0


def next_step_at(job: Job, policy: Policy, now: float) -> float | None:
    """When waiting alone next changes q or makes the job aged; None if never."""
    sla_wait = class_of(job, policy).sla_wait_seconds
    if not sla_wait:
        return None
    moments = []
    made = steps(job, policy, now)
    # Without priorities q does not grow, but an aged job may take victims all the same.
    if (
        policy.priorities
        and policy.aging_points > 0
        and base(job, policy) + made * policy.aging_step < policy.aging_cap
    ):
        moments.append(job.queued_since + sla_wait + (made + 1) * step_seconds(policy, sla_wait))
    if not is_aged(job, policy, now):
        moments.append(job.queued_since + 2 * sla_wait)
    return min(moments, default=None)


def is_aged(job: Job, policy: Policy, now: float) -> bool:
    """Whether the job has waited twice its SLA wait in this stay, or was promoted as if it had."""
    sla_wait = class_of(job, policy).sla_wait_seconds
    return job.promoted or bool(sla_wait and now - job.queued_since >= 2 * sla_wait - rounding_at(now))


def preemption_value(job: Job, policy: Policy, now: float) -> int:
    """v: base, and Δ more once aged."""
    return base(job, policy) + (policy.delta if is_aged(job, policy, now) else 0)


def may_take_victims(job: Job, policy: Policy, now: float) -> bool:
    """Whether the job's class lets it evict at all, now."""
    allowed = class_of(job, policy).may_preempt
    if not policy.preemption or allowed is _NEVER:
        return False
    return allowed is _YES or is_aged(job, policy, now)


def outranks(preemptor: Job, preemptor_v: int, victim: Job, victim_v: int, policy: Policy) -> bool:
    """Whether priority lets the preemptor evict the run: v at least Δ higher and, at equal bases, submitted first."""
    if preemptor_v < victim_v + policy.delta:
        return False
    if base(preemptor, policy) != base(victim, policy):
        return True
    return (preemptor.submitted_at, preemptor.order) < (victim.submitted_at, victim.order)


@lru_cache(maxsize=16)
def rounding_at(now: float) -> float:
    """By how many seconds a moment that is due may seem to lie beyond `now`."""
    return max(_ROUNDING, _ULPS * math.ulp(now))


def step_seconds(policy: Policy, sla_wait: float) -> float:
    """How long each aging step takes in a class with this SLA wait, where aging adds points."""
    return policy.aging_step * sla_wait / policy.aging_points
