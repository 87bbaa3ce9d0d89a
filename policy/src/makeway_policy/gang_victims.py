"""Who has to leave for a gang: member by member to the node whose set compares best, then nobody who is not needed."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from makeway_policy import placement
from makeway_policy.candidates import Candidate, candidates_on
from makeway_policy.copies import value
from makeway_policy.least import cannot_beat
from makeway_policy.question import Question, SetKey
from makeway_policy.taking import Taking
from makeway_policy.victim_nodes import Host
from makeway_policy.victim_room import Fits, barred, could_fit, legal_plan, place, spare, within_quota
from makeway_policy.victim_sets import Plan, plan_of

_NEAR = 32
"""So many of the most promising nodes say how long a gang may wait for GPUs that are being freed anyway."""

_SETS = 8
"""So many sets are tried on a node, each without those who may not be taken beside the others of the one before."""

_PLACES = 64
"""Up to so many pairs of a member and a node, other places are tried for a gang if that spares a victim."""
_SLACK = 1.0 - 1e-9
"""A cost that is put together from parts may be off by a rounding; a bound must not be above it."""


class _Again:
    """What an iterator gives, from its start as often as it is asked for; no more of it is read than is looked at."""

    def __init__(self, hosts: Iterable[Host]) -> None:
        self._known: list[Host] = []
        self._rest = iter(hosts)

    def __iter__(self) -> Iterator[Host]:
        yield from self._known
        for host in self._rest:
            self._known.append(host)
            yield host


@value(frozen=True, kw_only=True, slots=True)
class _SoFar:
    """The places of some members, and who leaves for them: nobody who is not needed."""

    fits: Fits = ()
    taken: tuple[Candidate, ...] = ()
    key: SetKey = (0.0, -1.0, 0.0)
    cost_gpu_seconds: float = 0.0

    @property
    def nodes(self) -> tuple[str, ...]:
        """The node of each member."""
        return tuple(each.member.node_id for each in self.fits)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Search:
    """What stays the same from member to member.

    `patience`: how long the gang waits for GPUs that are being freed anyway. `apart`: on nodes that have nothing to do
    with each other, who leaves for one member is nothing to the others: nobody has to leave for a quota.
    """

    question: Question
    hosts: _Again
    taking: Taking
    patience: float
    apart: bool


def gang_plan(question: Question, hosts: Iterable[Host]) -> Plan | None:
    """Member by member to the node whose set compares best, then nobody who is not needed over all."""
    known = _Again(hosts)
    near = tuple(host.node_id for host in islice(known, _NEAR))
    patience = question.now + max((each.grace_seconds for each in candidates_on(question, near)), default=math.inf)
    search = _Search(
        question=question, hosts=known, taking=Taking(question), patience=patience, apart=within_quota(question, ())
    )
    so_far = _SoFar()
    for _ in range(question.preemptor.job.shape.members):
        found = _best_extension(search, so_far)
        if found is None:
            return None
        so_far = found
    nodes, taken = _elsewhere(question, so_far.nodes, list(so_far.taken), patience)
    fits = place(question, nodes, taken, patience)
    if fits is None:
        return None
    fits, taken = spare(question, fits, taken, patience)
    return None if barred(question, taken) else legal_plan(question, fits, taken)


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
        fitting = (node_id for node_id in free if place(question, (*chosen, node_id), taken, patience) is not None)
        following = next(fitting, None)
        if following is None:
            return None
        chosen = (*chosen, following)
    return chosen


def _best_extension(search: _Search, so_far: _SoFar) -> _SoFar | None:
    """One more member on the node where the set that is then needed compares best."""
    near = _near(search.question, so_far)
    state, job = search.question.state, search.question.preemptor.job
    beside = [each for each in near if placement.node_allows(state.nodes[each], job)]
    found = [option for node_id in beside if (option := _near_by(search, so_far, node_id)) is not None]
    best = min(found, key=lambda option: option.key, default=None)
    if best is not None and _needs_nobody_else(so_far, best):
        return best
    return _best_further(search, so_far, near, best)


def _best_further(search: _Search, so_far: _SoFar, near: Collection[str], best: _SoFar | None) -> _SoFar | None:
    """The best option so far, or one on a node that has nothing to do with the members that have a place."""
    highest = float(max((each.run.v for each in so_far.taken), default=-1))
    extend, safe = _far_away if search.apart else _near_by, search.apart and search.taking.is_safe(so_far.taken)
    before = so_far.cost_gpu_seconds * _SLACK
    for host in search.hosts:
        if host.node_id in near:
            continue
        if best is not None and safe:
            bound = replace(host, v=max(host.v, highest), cost=before + host.cost)
            worse = cannot_beat(search.question, bound, best.key)
            # What a set costs at least is known of sets that go no higher than the node's v: below the highest that
            # leaves anyway others may, and nodes that come later may cost less.
            if worse and host.v >= highest:
                break
            if worse and host.exact:
                continue
        option = extend(search, so_far, host.node_id)
        if option is None:
            continue
        if best is None or option.key < best.key:
            best = option
        if _needs_nobody_else(so_far, option):
            break
    return best


def _needs_nobody_else(so_far: _SoFar, option: _SoFar) -> bool:
    mine = {each.run.run_id for each in so_far.taken}
    return all(each.run.run_id in mine for each in option.taken)


def _near(question: Question, so_far: _SoFar) -> dict[str, None]:
    """The nodes on which one more member may need others of the set, or make them needless.

    They are those of the members and of who leaves for them, and wherever else those run who are beside the members.
    """
    nodes = so_far.nodes
    beside = [run for node_id in nodes for run in question.state.runs_on_node(node_id)]
    taken = [each.run for each in so_far.taken]
    return dict.fromkeys((*nodes, *(node_id for run in (*taken, *beside) for node_id in run.node_ids)))


def _far_away(search: _Search, so_far: _SoFar, node_id: str) -> _SoFar | None:
    """One more member where nobody of the set so far is: who has to leave there, and nobody who is not needed."""
    found = _legal(search, (node_id,), (), so_far.taken)
    return None if found is None else _option(search.question, (*so_far.fits, *found[0]), found[1])


def _near_by(search: _Search, so_far: _SoFar, node_id: str) -> _SoFar | None:
    """One more member on a node with all that the others' victims leave, and nobody who is not needed over all."""
    if search.question.preemptor.job.shape.distinct_nodes and node_id in so_far.nodes:
        return None
    found = _legal(search, (*so_far.nodes, node_id), so_far.taken, ())
    return None if found is None else _option(search.question, *found)


def _legal(
    search: _Search, nodes: tuple[str, ...], taken: Sequence[Candidate], beside: Sequence[Candidate]
) -> tuple[Fits, list[Candidate]] | None:
    """Where the members are once `taken` and others on the last node have left, and who of these has to.

    `beside` leave in any case. A set that is not legal yields to the next, without whoever may not be taken beside the
    others.
    """
    question, mine = search.question, {each.run.run_id for each in (*taken, *beside)}
    rest = [each for each in candidates_on(question, nodes[-1:]) if each.run.run_id not in mine]
    for _ in range(_SETS):
        grown = _grown(search, nodes, taken, rest)
        if grown is None:
            return None
        fits, needed = spare(question, *grown, search.patience)
        leaving = [*beside, *needed]
        without = barred(question, leaving)
        if not without:
            return fits, leaving
        left = [each for each in rest if each not in without]
        if len(left) == len(rest):
            return None
        rest = left
    return None


def _grown(
    search: _Search, nodes: tuple[str, ...], taken: Sequence[Candidate], rest: Sequence[Candidate]
) -> tuple[Fits, list[Candidate]] | None:
    """As many of the rest as it takes until the last member fits, and where the members are then."""
    grown = list(taken)
    for following in (None, *rest):
        if following is not None:
            grown.append(following)
        if len(nodes) == 1 and not could_fit(search.question, nodes[0], grown):
            continue
        fits = place(search.question, nodes, grown, search.patience)
        if fits is not None:
            return fits, grown
    return None


def _option(question: Question, fits: Fits, taken: Sequence[Candidate]) -> _SoFar:
    plan = plan_of(question, fits, taken)
    return _SoFar(fits=fits, taken=tuple(taken), key=plan.key, cost_gpu_seconds=plan.cost_gpu_seconds)
