"""Who has to leave so that a job fits: one candidate set a node, compared, and nobody in it who could be spared.

On a node, possible victims are added by v, then cost, then newest, then id, until the job fits with what is free; then
whoever is not needed is put back, highest v first, then highest cost. A gang preemptor goes member by member to the
node whose set compares best, then puts back over all. Sets compare by:
 (a) breaches of soft groups
 (b) highest victim v, lower is better
 (c) cost
 (d) number of victims
 (e) what the preemptor gets: how much it likes the nodes by label, then how far apart the cards are
 (f) newest submit
 (g) id
A set that fails protection or quota yields to the next. Another job's hold is a candidate like a run, at cost 0.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from makeway_policy import affinity, costs, placement, protection, quota
from makeway_policy.least import least
from makeway_policy.model import Group, Job, LeaseKind, Member, NodeHealth, Run
from makeway_policy.priority import class_of, outranks
from makeway_policy.question import Preemptor, Question, preemptor_of
from makeway_policy.rooms import NodeRoom, trial_room
from makeway_policy.rules import VictimOrder
from makeway_policy.state import PoolState, is_leaving
from makeway_policy.victim_nodes import Host

__all__ = ["Candidate", "Plan", "Preemptor", "Question", "best_plan", "preemptor_of"]

_NEAR = 32
"""So many of the most promising nodes say how long a gang may wait for GPUs that are being freed anyway."""

_PLACES = 64
"""Up to so many pairs of a member and a node, other places are tried for a gang if that spares a victim."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A run that may be taken, with what ranks it."""

    run: Run
    cost_gpu_seconds: float
    grace_seconds: float
    rule: str
    key: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A whole placement and who must leave for it; `after` are all runs that must be gone first, victims included."""

    members: tuple[Member, ...]
    after: frozenset[str]
    victims: tuple[Candidate, ...]
    key: tuple[object, ...]
    cost_gpu_seconds: float
    longest_grace_seconds: float

    @property
    def nodes(self) -> tuple[str, ...]:
        """The node of each member."""
        return tuple(member.node_id for member in self.members)


def best_plan(question: Question, hosts: Iterable[Host]) -> Plan | None:
    """The best set over the given nodes, most promising first; None if no legal set makes the job fit."""
    preemptor = question.preemptor
    if not (preemptor.by_priority or preemptor.by_reclaim):
        return None
    if preemptor.job.shape.members > 1:
        return _gang_plan(question, tuple(hosts))
    best: Plan | None = None
    soonest: Plan | None = None
    for host in hosts:
        if best is not None and _cannot_beat(question, host, best):
            break
        if best is not None and _is_worse(question, host, best):
            continue
        plan = _node_plan(question, host.node_id)
        if plan is None:
            continue
        if plan.victims:
            best = plan if best is None or plan.key < best.key else best
        elif soonest is None or _when(question, plan) < _when(question, soonest):
            soonest = plan
    if best is None or soonest is None:
        # Without victims to take, what drains without a holder is kept for the first that may preempt.
        return best or soonest
    in_time = _leaves_by(question, soonest.after) <= question.now + best.longest_grace_seconds
    return soonest if in_time else best


def _when(question: Question, plan: Plan) -> tuple[object, ...]:
    return (_leaves_by(question, plan.after), plan.key)


def _cannot_beat(question: Question, host: Host, best: Plan) -> bool:
    """Whether neither this node nor any after it can have a set that compares better."""
    breaches, highest, cost = best.key[:3]
    if question.policy.victims is not VictimOrder.PRIORITY_FIRST or breaches:
        return False
    return (host.v, host.cost) > (highest, cost)


def _is_worse(question: Question, host: Host, best: Plan) -> bool:
    """Whether no set on this very node compares better, as things are now (the host's own bound on cost is older)."""
    if question.policy.victims is not VictimOrder.PRIORITY_FIRST or best.key[0] or host.reach is None:
        return False
    found = least(question, host)
    return found is not None and found > best.key[: len(found)]


def candidate_of(question: Question, run: Run) -> Candidate | None:
    """The run as a possible victim of the preemptor; None if the rules or its protection forbid it."""
    rule = rule_for(question, run)
    if rule is None or protection_from(question, run) is not None:
        return None
    state, policy = question.state, question.policy
    job = state.jobs[run.job_id]
    hold = protection.is_hold(run)
    cost = 0.0 if hold else costs.cost_of(job, run, policy, question.now)
    return Candidate(
        run=run,
        cost_gpu_seconds=cost,
        grace_seconds=_draining_seconds(question, run) if hold else costs.grace_of(job, policy),
        rule=rule,
        key=(run.v, cost, -job.submitted_at, -job.order),
    )


def _draining_seconds(question: Question, hold: Run) -> float:
    """How long whoever takes the hold over waits for those who still leave for it."""
    return _leaves_by(question, hold.after) - question.now


def rule_for(question: Question, run: Run) -> str | None:
    """By which rule the preemptor may take the run, protection aside: "priority", "reclaim", or None."""
    preemptor, state = question.preemptor, question.state
    victim = state.jobs[run.job_id]
    if victim.job_id == preemptor.job.job_id or is_leaving(run):
        return None
    if any(state.nodes[node_id].health is not NodeHealth.READY for node_id in run.node_ids):
        return None
    if preemptor.by_priority and outranks(preemptor.job, preemptor.v, victim, run.v, question.policy):
        return "priority"
    if preemptor.by_reclaim and victim.team != preemptor.job.team:
        return "reclaim" if run.run_id in quota.borrowed_runs(state, victim.team) else None
    return None


def protection_from(question: Question, run: Run) -> protection.Protection | None:
    """What protects the run against this preemptor, in the order of checks of `protection`."""
    state, policy, preemptor = question.state, question.policy, question.preemptor
    victim = state.jobs[run.job_id]
    own = protection.of_run(state, policy, run, question.now, overrides=preemptor.overrides)
    if own is not None and own.guard is protection.Guard.NOT_PREEMPTIBLE:
        return own
    if _guaranteed_against(question, run, victim):
        return protection.Protection(
            guard=protection.Guard.GUARANTEE,
            until=None,
            sentence=f"it is inside the guarantee of team {victim.team}",
        )
    if own is not None:
        return own
    deadline = preemptor.job.deadline
    if (
        deadline is not None
        and question.now + costs.grace_of(victim, policy) > deadline
        and not protection.is_hold(run)
    ):
        return protection.Protection(
            guard=protection.Guard.DEADLINE, until=None, sentence="it could only leave after the deadline"
        )
    return None


def _guaranteed_against(question: Question, run: Run, victim: Job) -> bool:
    state, preemptor = question.state, question.preemptor
    if state.team(victim.team).guarantee == 0:
        return False
    if victim.team == preemptor.job.team:
        return run.reclaimed and quota.would_borrow(state, preemptor.job, preemptor.v)
    return run.run_id not in quota.borrowed_runs(state, victim.team)


def _node_plan(question: Question, node_id: str) -> Plan | None:
    candidates = _candidates_on(question, (node_id,))
    patience = question.now + max((each.grace_seconds for each in candidates), default=math.inf)
    for _ in range(3):
        plan = _fill(question, node_id, candidates, patience)
        if plan is None or not plan.victims:
            return plan
        in_time = question.now + plan.longest_grace_seconds
        if _leaves_by(question, plan.after - {each.run.run_id for each in plan.victims}) <= in_time:
            return plan
        patience = in_time
    return _fill(question, node_id, candidates, question.now)


def _candidates_on(question: Question, node_ids: Sequence[str]) -> list[Candidate]:
    runs = {run.run_id: run for node_id in node_ids for run in question.state.runs_on_node(node_id)}
    found = [candidate for run in runs.values() if (candidate := candidate_of(question, run)) is not None]
    return sorted(found, key=lambda candidate: candidate.key)


def _fill(question: Question, node_id: str, candidates: Sequence[Candidate], patience: float) -> Plan | None:
    taken: list[Candidate] = []
    for following in (None, *candidates):
        if following is not None:
            taken.append(following)
        if not _could_fit(question, node_id, taken):
            continue
        if _place(question, (node_id,), taken, patience) is not None:
            return _spare(question, (node_id,), taken, patience)
    return None


def _could_fit(question: Question, node_id: str, taken: Sequence[Candidate]) -> bool:
    """Whether enough cards would be empty; asked before the whole placement is tried."""
    shape = question.preemptor.job.shape
    if placement.kind_of(shape) is not LeaseKind.WHOLE:
        return True
    gone = {each.run.run_id for each in taken}
    cards = question.rooms[node_id].cards
    return sum(1 for card in cards if all(run_id in gone for run_id in card.staying)) >= shape.gpus


def _spare(question: Question, nodes: tuple[str, ...], taken: Sequence[Candidate], patience: float) -> Plan | None:
    """Put back whoever is not needed, highest v first, then highest cost; None if the set is not legal."""
    needed = list(taken)
    for candidate in sorted(taken, key=lambda each: (-each.run.v, -each.cost_gpu_seconds, each.key[2:])):
        fewer = [each for each in needed if each is not candidate]
        if _place(question, nodes, fewer, patience) is not None:
            needed = fewer
    fits = _place(question, nodes, needed, patience)
    if fits is None or not _respects_guarantees(question, needed) or not _may_have(question, fits, needed):
        return None
    return _plan(question, fits, needed)


def _place(
    question: Question, nodes: tuple[str, ...], taken: Sequence[Candidate], patience: float
) -> tuple[placement.Fit, ...] | None:
    """The members on their nodes once `taken` have left; None if one does not fit, or a quota or group forbids it."""
    gone = [each.run.run_id for each in taken]
    if _group_broken(question, taken) or not _within_quota(question, gone):
        return None
    job, state = question.preemptor.job, question.state
    strategy = class_of(job, question.policy).placement
    fits: list[placement.Fit] = []
    for node_id in nodes:
        room = trial_room(state, question.rooms[node_id], gone, [each.member for each in fits])
        fitted = placement.fit(_patient(question, room, gone, patience), job, question.policy, strategy, later=True)
        if fitted is None:
            return None
        fits.append(fitted)
    return tuple(fits)


def _patient(question: Question, room: NodeRoom, gone: Sequence[str], patience: float) -> NodeRoom:
    """The room without the cards that others leave only after `patience`; a hold that is taken brings its own wait."""
    going = [run.run_id for run in room.leaving if run.run_id not in gone]
    slow = {run_id for run_id in going if _leaves_by(question, (run_id,)) > patience}
    if not slow:
        return room
    taken = {run_id for run_id in gone if protection.is_hold(question.state.runs[run_id])}
    cards = (card for card in room.cards if not slow.intersection(card.leaving) or taken.intersection(card.leaving))
    return replace(room, cards=tuple(cards))


def _leaves_by(question: Question, run_ids: Iterable[str]) -> float:
    moments = [question.now]
    for run_id in run_ids:
        run = question.state.runs[run_id]
        if run.leaves_by is not None:
            moments.append(run.leaves_by)
        elif run.noticed_at is not None:
            moments.append(run.noticed_at + run.grace_seconds)
    return max(moments)


def _group_broken(question: Question, taken: Sequence[Candidate]) -> bool:
    return any(
        group.hard and count > protection.group_room(question.state, group) for group, count in _groups(question, taken)
    )


def _groups(question: Question, taken: Sequence[Candidate]) -> list[tuple[Group, int]]:
    names = [question.state.jobs[each.run.job_id].group for each in taken if not protection.is_hold(each.run)]
    known = [name for name in dict.fromkeys(names) if name is not None and name in question.state.groups]
    return [(question.state.groups[name], names.count(name)) for name in known]


def _within_quota(question: Question, gone: Sequence[str]) -> bool:
    job = question.preemptor.job
    units = quota.needed_units(job, None, question.state)
    return quota.refusal_of(question.state, question.policy, job, units, gone) is None


def _respects_guarantees(question: Question, taken: Sequence[Candidate]) -> bool:
    """Whether each victim of another team is still borrowed when the other victims have gone."""
    state, own_team = question.state, question.preemptor.job.team
    gone = {each.run.run_id for each in taken}
    for each in taken:
        team = state.jobs[each.run.job_id].team
        if team == own_team or state.team(team).guarantee == 0:
            continue
        if each.run.run_id not in quota.borrowed_runs(state, team, gone - {each.run.run_id}):
            return False
    return True


def _may_have(question: Question, fits: Sequence[placement.Fit], taken: Sequence[Candidate]) -> bool:
    """Quota and, for a reclaim, the guarantee by what the placement takes: of a share that is known only now."""
    state, job = question.state, question.preemptor.job
    if placement.kind_of(job.shape) is LeaseKind.WHOLE:
        return True
    units = quota.units_of_members(state, [each.member for each in fits])
    gone = [each.run.run_id for each in taken]
    if quota.refusal_of(state, question.policy, job, units, gone) is not None:
        return False
    return quota.within_guarantee(state, job, units, gone) or all(each.rule != "reclaim" for each in taken)


def _plan(question: Question, fits: Sequence[placement.Fit], taken: Sequence[Candidate]) -> Plan:
    members = tuple(each.member for each in fits)
    after = frozenset(run_id for each in fits for run_id in each.after)
    longest = max((each.grace_seconds for each in taken), default=0.0)
    gpus = sum(len(member.leases) for member in members)
    cost = sum(each.cost_gpu_seconds for each in taken) + gpus * longest
    return Plan(
        members=members,
        after=after | {each.run.run_id for each in taken},
        victims=tuple(sorted(taken, key=lambda each: each.key)),
        key=_set_key(question, members, taken, cost),
        cost_gpu_seconds=cost,
        longest_grace_seconds=longest,
    )


def _set_key(
    question: Question, members: Sequence[Member], taken: Sequence[Candidate], cost: float
) -> tuple[object, ...]:
    state, policy = question.state, question.policy
    gone = [each.run.run_id for each in taken]
    breaches = sum(max(0, count - protection.group_room(state, group)) for group, count in _groups(question, taken))
    highest = float(max((each.run.v for each in taken), default=-1))
    jobs = [state.jobs[each.run.job_id] for each in taken]
    oldest = min((job.submitted_at for job in jobs), default=0.0)
    tail = (
        len(taken),
        -affinity.score_of_nodes(state, _node_key(members), question.preemptor.job.shape, gone),
        _scatter(state, members),
        -oldest,
        tuple(sorted(-job.order for job in jobs)),
        _node_key(members),
    )
    if policy.victims is VictimOrder.COST_FIRST:
        return (breaches, cost, highest, *tail)
    if policy.victims is VictimOrder.WEIGHTED:
        top = float(max(each.own_value_max for each in policy.classes.values()) or 1)
        hours = cost / 3600.0
        weights = policy.victim_weights
        return (breaches, weights.get("v", 0.0) * highest / top + weights.get("cost", 0.0) * hours, 0.0, *tail)
    return (breaches, highest, cost, *tail)


def _scatter(state: PoolState, members: Sequence[Member]) -> tuple[int, int]:
    """How far apart the cards of each member are: NVLink groups beyond the first, then indices; less is better."""
    groups = distance = 0
    for member in members:
        cards = [state.gpus[lease.gpu_id] for lease in member.leases]
        if cards:
            groups += len({card.link_group for card in cards}) - 1
            distance += max(card.index for card in cards) - min(card.index for card in cards)
    return groups, distance


def _node_key(members: Sequence[Member]) -> tuple[str, ...]:
    return tuple(member.node_id for member in members)


def _gang_plan(question: Question, hosts: tuple[Host, ...]) -> Plan | None:
    """Member by member to the node whose set compares best, then nobody who is not needed over all."""
    shape = question.preemptor.job.shape
    near = tuple(host.node_id for host in hosts[:_NEAR])
    patience = question.now + max((each.grace_seconds for each in _candidates_on(question, near)), default=math.inf)
    taken: list[Candidate] = []
    nodes: tuple[str, ...] = ()
    for _ in range(shape.members):
        best = _best_extension(question, hosts, (nodes, taken), patience)
        if best is None:
            return None
        nodes, taken = best[0].nodes, best[1]
    nodes, taken = _elsewhere(question, nodes, taken, patience)
    return _spare(question, nodes, taken, patience)


def _elsewhere(
    question: Question, nodes: tuple[str, ...], taken: list[Candidate], patience: float
) -> tuple[tuple[str, ...], list[Candidate]]:
    """Spare victims by other places for the members, among the nodes that the others leave.

    Member by member, a gang of victims counts for the node at hand alone; here for all that it frees.
    """
    for candidate in sorted(taken, key=lambda each: (-each.run.v, -each.cost_gpu_seconds, each.key[2:])):
        fewer = [each for each in taken if each is not candidate]
        near = tuple(dict.fromkeys((*nodes, *(node_id for each in fewer for node_id in each.run.node_ids))))
        if not fewer or len(near) * len(nodes) > _PLACES:
            continue
        found = _nodes_for(question, near, fewer, patience)
        if found is not None:
            nodes, taken = found, fewer
    return nodes, taken


def _nodes_for(
    question: Question, near: tuple[str, ...], taken: Sequence[Candidate], patience: float
) -> tuple[str, ...] | None:
    """A node for each member, the first that takes it; None if there is none for one."""
    shape = question.preemptor.job.shape
    chosen: tuple[str, ...] = ()
    for _ in range(shape.members):
        free = (node_id for node_id in near if not (shape.distinct_nodes and node_id in chosen))
        fitting = (node_id for node_id in free if _place(question, (*chosen, node_id), taken, patience) is not None)
        following = next(fitting, None)
        if following is None:
            return None
        chosen = (*chosen, following)
    return chosen


def _best_extension(
    question: Question, hosts: Sequence[Host], so_far: tuple[tuple[str, ...], list[Candidate]], patience: float
) -> tuple[Plan, list[Candidate]] | None:
    nodes, taken = so_far
    highest = float(max((each.run.v for each in taken), default=-1))
    best: tuple[Plan, list[Candidate]] | None = None
    for host in hosts:
        if best is not None and _cannot_beat(question, replace(host, v=max(host.v, highest)), best[0]):
            break
        if question.preemptor.job.shape.distinct_nodes and host.node_id in nodes:
            continue
        option = _extend(question, (*nodes, host.node_id), taken, patience)
        if option is None:
            continue
        if best is None or option[0].key < best[0].key:
            best = option
        if len(option[1]) == len(taken):
            break
    return best


def _extend(
    question: Question, nodes: tuple[str, ...], taken: Sequence[Candidate], patience: float
) -> tuple[Plan, list[Candidate]] | None:
    """The set grown until one more member fits on the last of the nodes."""
    mine = {each.run.run_id for each in taken}
    rest = [each for each in _candidates_on(question, nodes[-1:]) if each.run.run_id not in mine]
    grown = list(taken)
    for following in (None, *rest):
        if following is not None:
            grown.append(following)
        fits = _place(question, nodes, grown, patience)
        if fits is not None:
            return _plan(question, fits, grown), grown
    return None
