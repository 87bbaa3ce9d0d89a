"""A bound from below on every set of victims on a node, as a key that compares like those of `victims`."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from heapq import heappop, heappush
from math import isclose

from makeway_policy import costs, placement, protection
from makeway_policy.left_over import least_left_over
from makeway_policy.model import LeaseKind
from makeway_policy.question import Question, SetKey
from makeway_policy.reach import CardReach, cheapest
from makeway_policy.rules import VictimOrder
from makeway_policy.victim_nodes import Host

Least = tuple[int, float, float, int, int, tuple[int, int], float, float, tuple[int, ...]]
"""Soft breaches, highest v, cost, victims, dislike, distance of cards (NVLink groups beyond the first, then indices),
what is left over of the node, -newest submit, and -its admission number."""

_MORE = 1.0 + 1e-6
"""Costs that differ by less are the same."""

_EXACT = 2
_SLACK = 1.0 - 1e-9
"""A cost that is put together from parts may be off by a rounding; a bound must not be above it."""


def cannot_beat(question: Question, host: Host, best_key: SetKey, *, settled: bool = False) -> bool:
    """Whether neither this node nor any after it can have a better set; `settled`: one that loses less."""
    breaches, highest, cost = best_key[:3]
    if question.policy.victims is not VictimOrder.PRIORITY_FIRST or breaches:
        return False
    return (host.v, host.cost * (_MORE if settled else 1.0)) > (highest, cost)


def is_worse(bound: Least | None, best_key: SetKey, *, settled: bool = False) -> bool:
    """Whether no set on the node of that bound compares better.

    `settled`: among sets that lose as much the choice is made, so that one on this node would have to lose less.
    """
    if bound is None or best_key[0]:
        return False
    return bound > best_key[: len(bound)] or (settled and loses_as_much(bound, best_key))


def by_cost_now(question: Question, hosts: Iterable[Host]) -> Iterator[tuple[Host, Least | None]]:
    """The nodes with their bounds as things are now, those first that can have the best sets.

    Unless they come so, they come by bounds that were found some time ago: a node is held back until no other's is
    below its bound now.
    """
    if question.policy.victims is not VictimOrder.PRIORITY_FIRST:
        yield from ((host, None) for host in hosts)
        return
    held: list[tuple[float, float, int, Host, Least | None]] = []
    for number, host in enumerate(hosts):
        if host.current:
            yield host, least(question, host)
            continue
        while held and held[0][:2] <= (host.v, host.cost):
            yield heappop(held)[3:]
        bound = least(question, host)
        cost = host.cost if bound is None else max(host.cost, bound[2])
        heappush(held, (host.v, cost, number, replace(host, cost=cost), bound))
    while held:
        yield heappop(held)[3:]


def loses_as_much(key: SetKey, other: SetKey) -> bool:
    """Whether two sets are equal in soft breaches, highest v, and cost but for a rounding."""
    return key[:2] == other[:2] and isclose(key[2], other[2], rel_tol=_MORE - 1.0)


def least(question: Question, host: Host) -> Least | None:
    """What no set on the node can go below; None where nothing can be said. The order is `priority-first`."""
    shape = question.preemptor.job.shape
    if host.reach is None or placement.kind_of(shape) is not LeaseKind.WHOLE or shape.gpus == 0:
        return None
    overrides = question.preemptor.overrides
    taken: list[CardReach] = []
    empty = 0
    for card in host.reach.cards:
        v = (card.override if overrides else card.plain)[0]
        empty += v < 0
        if 0 <= v < float("inf"):
            taken.append(card)
    needed = shape.gpus - empty
    if needed <= 0 or len(taken) < needed:
        return None
    each_costs = _costs(question, taken)
    chosen = cheapest(each_costs.values(), needed)
    # Two are added up as `victims` does; of more the sum may be off by a rounding.
    cost = sum(chosen) * (1.0 if len(chosen) <= _EXACT else _SLACK)
    # One of those with the highest v is in every set, and is waited for.
    graces = [card.grace for card in taken if (card.override if overrides else card.plain)[0] == host.v]
    distinct = len({card.card.gpu.index for card in host.reach.cards}) == len(host.reach.cards)
    state = question.state
    jobs = [state.jobs[state.runs[run_id].job_id] for staying in each_costs for run_id in staying]
    newest = max(job.submitted_at for job in jobs)
    last = max(job.order for job in jobs)
    return (
        0,
        host.v,
        cost + shape.gpus * min(graces, default=0.0),
        _fewest(taken, needed),
        -len(shape.affinity),
        (0, shape.gpus - 1 if distinct else 0),
        least_left_over(question, host.reach, taken),
        -newest,
        (-last,),
    )


def _costs(question: Question, cards: list[CardReach]) -> dict[tuple[str, ...], tuple[int, float]]:
    """(cards, cost) of what is on the cards now; runs that share a card may be taken for another's sake."""
    state = question.state
    known: dict[tuple[str, ...], tuple[int, float]] = {}
    for card in cards:
        staying = card.card.staying
        if staying in known:
            known[staying] = (known[staying][0] + 1, known[staying][1])
            continue
        run = state.runs[staying[0]]
        free = len(staying) > 1 or protection.is_hold(run)
        lost = 0.0 if free else costs.lost_seconds(state.jobs[run.job_id], run, question.policy, question.now)
        known[staying] = (1, card.gpus * lost)
    return known


def _fewest(cards: list[CardReach], needed: int) -> int:
    """The fewest runs that have so many of the cards."""
    here: dict[str, int] = {}
    for card in cards:
        for run_id in card.card.staying:
            here[run_id] = here.get(run_id, 0) + 1
    count = 0
    for number in sorted(here.values(), reverse=True):
        if needed <= 0:
            break
        needed -= number
        count += 1
    return count
