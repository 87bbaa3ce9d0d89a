"""Who has to leave for a gang: member by member to the node whose set compares best, then nobody who is not needed."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from makeway_policy.candidates import Candidate, candidates_on
from makeway_policy.least import cannot_beat
from makeway_policy.question import Question
from makeway_policy.victim_nodes import Host
from makeway_policy.victim_room import barred, legal_plan, place, spare
from makeway_policy.victim_sets import Plan, plan_of

_NEAR = 32
"""So many of the most promising nodes say how long a gang may wait for GPUs that are being freed anyway."""

_PLACES = 64
"""Up to so many pairs of a member and a node, other places are tried for a gang if that spares a victim."""
_SLACK = 1.0 - 1e-9
"""A cost that is put together from parts may be off by a rounding; a bound must not be above it."""

_SoFar = tuple[Plan, list[Candidate]]
"""The members that have a place, and who leaves for them."""


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


def gang_plan(question: Question, hosts: Iterable[Host]) -> Plan | None:
    """Member by member to the node whose set compares best, then nobody who is not needed over all."""
    shape, hosts = question.preemptor.job.shape, _Again(hosts)
    near = tuple(host.node_id for host in islice(hosts, _NEAR))
    patience = question.now + max((each.grace_seconds for each in candidates_on(question, near)), default=math.inf)
    so_far: _SoFar | None = None
    for _ in range(shape.members):
        so_far = _best_extension(question, hosts, so_far, patience)
        if so_far is None:
            return None
    nodes, taken = ((), []) if so_far is None else _elsewhere(question, so_far[0].nodes, so_far[1], patience)
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


def _best_extension(question: Question, hosts: Iterable[Host], so_far: _SoFar | None, patience: float) -> _SoFar | None:
    nodes, taken = ((), []) if so_far is None else (so_far[0].nodes, so_far[1])
    highest = float(max((each.run.v for each in taken), default=-1))
    # Where victims of the other members were, or these are, one more may need nobody: such nodes are all tried.
    near = {*nodes, *(node_id for each in taken for node_id in each.run.node_ids)}
    unseen, settled = set(near), False
    before = 0.0 if so_far is None or not _all_stay_taken(question) else so_far[0].cost_gpu_seconds * _SLACK
    best: _SoFar | None = None
    for host in hosts:
        # What a set costs at least is known of sets that go no higher than the node's v: below the highest others may.
        if best is not None and host.node_id not in near and host.v >= highest:
            settled = settled or cannot_beat(question, replace(host, cost=before + host.cost), best[0].key)
        if settled and not unseen:
            break
        if settled and host.node_id not in near:
            continue
        unseen.discard(host.node_id)
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


def _all_stay_taken(question: Question) -> bool:
    """Whether nobody who leaves for some members is spared when others get their place (see `victim_room.barred`)."""
    state = question.state
    hard = any(group.hard for group in state.groups.values())
    return not hard and not any(team.guarantee for team in state.teams.values())


def _extend(question: Question, nodes: tuple[str, ...], taken: Sequence[Candidate], patience: float) -> _SoFar | None:
    """The set grown until one more member fits on the last of the nodes."""
    mine = {each.run.run_id for each in taken}
    rest = [each for each in candidates_on(question, nodes[-1:]) if each.run.run_id not in mine]
    grown = list(taken)
    for following in (None, *rest):
        if following is not None:
            grown.append(following)
        fits = place(question, nodes, grown, patience)
        if fits is None:
            continue
        if barred(question, grown):
            fits, grown = spare(question, fits, grown, patience)
        return None if barred(question, grown) else (plan_of(question, fits, grown), grown)
    return None
