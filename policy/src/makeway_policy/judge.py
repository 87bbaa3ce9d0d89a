"""One job, judged: does it start, with or without victims, or why not.

Order of checks (the first that fails is the reason shown):
 1. what the registered nodes can never run
 2. what the team's limits can never take
 3. room without victims, beside what is reserved for others, within quota as it is now; of `gpus: min..max` the most
 4. victims, if the class may take any, it is not backing off after a failed start, and within quota as it will be;
    nobody leaves for a quota that eases by what leaves anyway
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from makeway_policy import placement, quota, reservation, victims
from makeway_policy.copies import changed, value
from makeway_policy.index import Index
from makeway_policy.least_growth import least_growth
from makeway_policy.model import Job, LeaseKind, Member, Reason, Refusal, Run
from makeway_policy.moments import moment
from makeway_policy.priority import class_of
from makeway_policy.quantities import quantity
from makeway_policy.question import Question, preemptor_of
from makeway_policy.reservation import Reservation
from makeway_policy.rooms import NodeRoom, trial_room
from makeway_policy.rules import Strategy
from makeway_policy.victim_sets import Plan


@value(frozen=True, kw_only=True, slots=True)
class Placed:
    """A placement that needs nobody to leave."""

    members: tuple[Member, ...]


Verdict = Placed | Plan | Refusal


def judge(index: Index, job: Job, now: float) -> Verdict:
    """What happens to the job now."""
    never = index.never_fits(job.shape) or quota.can_ever(index.state, index.policy, job)
    if never is not None:
        return never
    room = index.free.has_room(job.shape)
    if not room and not _victims_in_reach(index, job, now):
        return _over(index, job, None) or _no_room(index, job, now)
    allowed, keeper = _beside_reservations(index, job, now)
    placed = None
    if room:
        placed = _place_most(index, job, now) or place_free(index, allowed)
    over = _over(index, job, placed)
    if placed is not None and over is None:
        return placed
    if over is not None and quota.refusal_of(index.state, index.policy, job, _units(index, job, placed), ()) is None:
        # What leaves anyway eases its quota: nobody has to leave for that.
        return replace(over, detail={**over.detail, "eases": "soon"})
    if not room or _victims_in_reach(index, job, now):
        preemptor = preemptor_of(index.state, index.policy, allowed, now)
        question = Question(
            state=index.state, rooms=index.rooms, policy=index.policy, now=now, preemptor=preemptor, demand=index.demand
        )
        hosts = index.hosts.for_question(question, over=over is not None)
        plan = victims.best_plan(question, hosts)
        # How much a share takes is known only now.
        over = over or (None if plan is None else _over(index, job, Placed(members=plan.members)))
        if plan is not None and (over is None or _eases(index, job, plan)):
            return plan
    if over is not None:
        # While others come first, nobody of its own team is asked to make way; that may be over before the quota is.
        return over if keeper is None else replace(over, detail={**over.detail, "kept_for": keeper.job_id})
    if keeper is None:
        return _no_room(index, job, now)
    beside = place_free(index, job) if room else None
    if beside is not None:
        return reservation.refusal_for(keeper, _nodes(beside))
    refusal = _no_room(index, job, now, keeper)
    return replace(refusal, detail={"kept_for": keeper.job_id})


def _place_most(index: Index, job: Job, now: float) -> Placed | None:
    """Of `gpus: min..max` the most that room and quota allow without victims; None where no more than the fewest."""
    shape = job.shape
    if shape.gpus_max is None:
        return None
    for gpus in range(min(shape.gpus_max, index.free.of(shape).most), shape.gpus, -1):
        larger = changed(job, shape=replace(shape, gpus=gpus, gpus_max=None))
        if _over(index, larger, None) is not None:
            continue
        # More GPUs may be borrowed ones, for which others wait that could reclaim them.
        placed = place_free(index, _beside_reservations(index, larger, now)[0])
        if placed is not None and _over(index, larger, placed) is None:
            return placed
    return None


def _victims_in_reach(index: Index, job: Job, now: float) -> bool:
    # Asked only where it matters: who starts on free cards need not know whom it could evict.
    return job.no_victims_until <= now and index.hosts.in_reach(job, now)


def _eases(index: Index, job: Job, plan: Plan) -> bool:
    """Whether the job keeps within its quota because its own team gives something up for it.

    What leaves anyway eases its quota once it has left, and is no reason to take anybody until then.
    """
    state = index.state
    others = [each.run.run_id for each in plan.victims if state.jobs[each.run.job_id].team != job.team]
    if len(others) == len(plan.victims):
        return False
    return quota.refusal_of(state, index.policy, job, quota.units_of_members(state, plan.members), others) is not None


def _over(index: Index, job: Job, placed: Placed | None) -> Refusal | None:
    over = quota.refusal_of(index.state, index.policy, job, _units(index, job, placed))
    if over is None or placed is None or placement.kind_of(job.shape) is LeaseKind.WHOLE:
        return over
    # What a share counts is known only where it is placed.
    return replace(over, room_on=_nodes(placed))


def _beside_reservations(index: Index, job: Job, now: float) -> tuple[Job, Reservation | None]:
    """(the job without the GPUs and nodes that are reserved for others, for whom first)."""
    gpus: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    keeper: Reservation | None = None
    for held in _reservations(index, job, now):
        if held.exists and not reservation.passes(index.state, index.policy, job, held, now):
            keeper = keeper or held
            gpus, nodes = gpus | held.gpus, nodes | held.nodes
    if keeper is None:
        return job, None
    return changed(job, avoid_gpus=job.avoid_gpus | gpus, avoid_nodes=job.avoid_nodes | nodes), keeper


def _reservations(index: Index, job: Job, now: float) -> Iterator[Reservation]:
    ahead = list(index.reservers.against(job, index.place_of(job, now)))
    yield from ahead
    if not index.reservers.guaranteed:
        return
    units = quota.needed_units(job, None, index.state)
    if quota.within_guarantee(index.state, job, max(1, units)):
        return
    for held in index.reservers.reclaimers(job):
        if not _waits_behind(index, held, ahead, now):
            yield held


def _waits_behind(index: Index, held: Reservation, ahead: Sequence[Reservation], now: float) -> bool:
    """Whether what a job could reclaim is kept from it, too, for one of those who come first."""
    if not ahead:
        return False
    state, policy = index.state, index.policy
    job = state.jobs[held.job_id]
    return any(
        first in ahead and first.meets(held) and not reservation.passes(state, policy, job, first, now)
        for first in index.reservers.against(job, index.place_of(job, now))
    )


def place_beside(index: Index, job: Job, hold: Run, now: float) -> Placed | None:
    """A placement on what is free now, in place of a hold: not what is reserved for others, and within quota.

    Quota is asked as it is now: whoever leaves for the hold still counts, elsewhere.
    """
    placed = place_free(index, _beside_reservations(index, job, now)[0])
    if placed is None:
        return None
    units = _units(index, job, placed)
    over = quota.refusal_of(index.state, index.policy, job, units, instead_of=hold)
    return placed if over is None else None


def place_free(index: Index, job: Job) -> Placed | None:
    """A placement on what is free now, by the class's strategy; quota is not asked."""
    shape = job.shape
    strategy = class_of(job, index.policy).placement
    members: list[Member] = []
    for _ in range(shape.members):
        member = _place_member(index, job, strategy, members)
        if member is None:
            return None
        members.append(member)
    return Placed(members=tuple(members))


def _no_room(index: Index, job: Job, now: float, keeper: Reservation | None = None) -> Refusal:
    """Nothing suitable is free, and nobody may be asked to leave, on what is not reserved for `keeper`."""
    if job.no_victims_until > now:
        until = moment(job.no_victims_until)
        return Refusal(
            reason=Reason.BACKING_OFF,
            sentence=f"no room is free, and after a failed start it takes no victims until {until}",
        )
    shape = job.shape
    each = quantity(shape.gpus, "GPU")
    what = each if shape.members == 1 else f"{shape.members} x {each}"
    why = f"class {job.class_name} may not preempt now"
    if index.hosts.limit_of(job, now) is not None:
        why = "no set of runs that would make room may be preempted for it now"
    if keeper is not None:
        why = f"{why}; {reservation.kept_for(keeper)}"
    return Refusal(reason=Reason.NO_ROOM, sentence=f"no node has room for {what} now, and {why}")


def _nodes(placed: Placed) -> tuple[str, ...]:
    return tuple(dict.fromkeys(member.node_id for member in placed.members))


def _units(index: Index, job: Job, placed: Placed | None) -> int:
    if placed is None:
        return quota.needed_units(job, None, index.state)
    return quota.units_of_members(index.state, placed.members)


def _place_member(index: Index, job: Job, strategy: Strategy, members: Sequence[Member]) -> Member | None:
    used = dict.fromkeys(member.node_id for member in members)
    if not job.shape.distinct_nodes:
        for node_id in used:
            found = placement.fit(_room(index, node_id, members), job, index.policy, strategy, later=False)
            if found is not None:
                return found.member
    fullest_first = strategy is not Strategy.SPREAD
    for tier in index.tiers_with(job.shape, max(1, job.shape.gpus), fullest_first=fullest_first):
        nodes = (node_id for node_id in tier if node_id not in used)
        if strategy is Strategy.FRAG and index.demand is not None:
            member = least_growth(index, index.demand, job, nodes)
        else:
            member = _first_fit(index, job, strategy, nodes)
        if member is not None:
            return member
    return None


def _first_fit(index: Index, job: Job, strategy: Strategy, nodes: Iterable[str]) -> Member | None:
    for node_id in nodes:
        found = placement.fit(index.room(node_id), job, index.policy, strategy, later=False)
        if found is not None:
            return found.member
    return None


def _room(index: Index, node_id: str, members: Sequence[Member]) -> NodeRoom:
    return trial_room(index.state, index.room(node_id), (), members)
