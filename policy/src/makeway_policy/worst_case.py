"""The longest that a waiting job can have to wait, or why no bound can be given (law 6).

A bound holds when everything that can stand in the way is preemptible by the job or has a maximum run time, and the
classes above it are limited below the pool. It is summed from, in this order (the first that fails is the cause):
 1. the registered nodes, and the team's limits, can take the job, and so can what is in use of them
 2. classes that stay above the job however long it waits are limited, over all teams, so far that they can never
    occupy a card too many on every node that could host it
 3. whoever is before it in the queue has a time limit
 4. whoever runs where it could run has a time limit
The bound is how long the job avoids a node or card yet, then the time until no later submit can come before it, then
everyone before it one after the other, then the longest that is left to a run, each with its grace and the time to
prove its GPUs empty.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from makeway_policy import capacity, placement, priority, quota
from makeway_policy.costs import grace_of
from makeway_policy.model import Job, LeaseKind
from makeway_policy.quantities import quantity
from makeway_policy.rules import JobClass, Policy
from makeway_policy.state import PoolState, is_leaving


@dataclass(frozen=True, kw_only=True, slots=True)
class WorstCase:
    """Seconds from now, or None with the cause: "unbounded"."""

    seconds: float | None
    cause: str


def worst_case_wait(state: PoolState, policy: Policy, job: Job, now: float) -> WorstCase:
    """The bound on the job's wait from now on, whatever is submitted later."""
    never = capacity.never_fits(state, policy, job.shape) or quota.can_ever(state, policy, job)
    if never is not None:
        return WorstCase(seconds=None, cause=never.sentence)
    missing = capacity.out_of_use(state, policy, job.shape)
    if missing:
        return WorstCase(seconds=None, cause=f"all that could run it is out of use, such as {missing[0]}")
    cause = _above(state, policy, job)
    if cause is not None:
        return WorstCase(seconds=None, cause=cause)
    passed = _time_to_cap(policy, job, now)
    if passed is None:
        return WorstCase(
            seconds=None, cause=f"class {job.class_name} does not age, and higher classes may be submitted"
        )
    waits = max(0.0, job.avoidance.until - now) if job.avoid_nodes or job.avoid_gpus else 0.0
    for other in _before(state, policy, job, now):
        if other.time_limit_seconds is None:
            return WorstCase(seconds=None, cause=f"job {other.job_id} is before it and has no time limit")
        waits += other.time_limit_seconds + grace_of(other, policy) + policy.empty_seconds
    longest = 0.0
    for run in state.runs.values():
        runner = state.jobs[run.job_id]
        if runner.job_id == job.job_id or is_leaving(run):
            continue
        if runner.time_limit_seconds is None:
            return WorstCase(seconds=None, cause=f"job {runner.job_id} runs without a time limit")
        longest = max(longest, runner.time_limit_seconds + grace_of(runner, policy) + policy.empty_seconds)
    return WorstCase(seconds=passed + waits + longest, cause="everything before it ends by its time limit")


def _above(state: PoolState, policy: Policy, job: Job) -> str | None:
    """Why classes that stay above the job could keep it out for ever; None if they cannot."""
    cap = max(policy.aging_cap, priority.base(job, policy))
    above = [rules for rules in policy.classes.values() if rules.own_value_max > cap]
    if not above:
        return None
    allowed = [_allowed(state, rules) for rules in above]
    if any(each is None for each in allowed):
        return f"class {above[0].name} stays above it and is not limited for every team"
    total = sum(each for each in allowed if each is not None)
    if total >= _spoilers(state, policy, job):
        return f"classes above it may use {quantity(total, 'GPU')}, enough to leave no node with room for it"
    return None


def _allowed(state: PoolState, rules: JobClass) -> float | None:
    """GPUs that all teams together may use in a class; None without a limit."""
    if not state.teams:
        return None
    total = 0.0
    for team in (state.team(team_id) for team_id in state.teams):
        limits = [team.class_limits.get(rules.name), team.limit]
        if rules.needs_allowance and team.allowances is not None:
            limits.append(team.allowances.get(rules.name, 0.0))
        known = [limit for limit in limits if limit is not None]
        if not known:
            return None
        total += min(known)
    return total


def _spoilers(state: PoolState, policy: Policy, job: Job) -> int:
    """How many GPUs have to be taken so that no node has room for one member of the job."""
    shape = job.shape
    size = shape.gpus if placement.kind_of(shape) is LeaseKind.WHOLE else 1
    total = 0
    for node in state.nodes.values():
        if placement.node_admits(node, shape):
            cards = sum(placement.suits(gpu, shape, policy) for gpu in state.gpus_of_node(node.node_id))
            total += max(0, cards - size + 1)
    return max(0, total - shape.members + 1)


def _time_to_cap(policy: Policy, job: Job, now: float) -> float | None:
    """Seconds until no later submit can come before the job in the queue; None if that never comes."""
    q, _ = priority.queue_value(job, policy, now)
    others = [rules.own_value_max for rules in policy.classes.values() if rules.own_value_max <= policy.aging_cap]
    highest = max([*others, 0])
    if q > highest or not policy.priorities:
        return 0.0
    sla_wait = priority.class_of(job, policy).sla_wait_seconds
    if not sla_wait or policy.aging_points <= 0 or policy.aging_cap <= highest:
        return None
    steps = -(-(highest + 1 - priority.base(job, policy)) // policy.aging_step)
    needed = sla_wait + steps * policy.aging_step * sla_wait / policy.aging_points
    return max(0.0, job.queued_since + needed - now)


def _before(state: PoolState, policy: Policy, job: Job, now: float) -> Iterator[Job]:
    """Waiting jobs that are, or may still come, before the job."""
    mine = (-priority.queue_value(job, policy, now)[0], job.submitted_at, job.order)
    for other in state.jobs.values():
        if other.job_id == job.job_id or state.run_of(other.job_id) is not None:
            continue
        theirs = (-priority.queue_value(other, policy, now)[0], other.submitted_at, other.order)
        earlier = (other.submitted_at, other.order) < (job.submitted_at, job.order)
        if theirs < mine or (earlier and _highest(policy, other, now) >= -mine[0]):
            yield other


def _highest(policy: Policy, job: Job, now: float) -> int:
    """The highest value that the job can have in the queue, however long it waits."""
    cap = priority.cap_of(job, policy)
    return max(priority.queue_value(job, policy, now)[0], cap or 0)
