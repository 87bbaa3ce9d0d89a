"""What victims cost at least, on many nodes in one step, from the columns of `reach_table`.

All costs are in GPU-seconds. A node is a column here, its cards are places in it; a run's cost stands at its first
place and is infinite at any other.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from makeway_policy.reach_table import Floats, ReachTable, Rows

Bools = npt.NDArray[np.bool_]

_ENDLESS = float("inf")
_ALIKE = 1e-9
"""Costs that differ by no more, relatively, may come in another order where they are added up in another way."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """How many whole cards somebody wants now, and whether its class overrides minimum runs.

    `heaviest`: what a second that is lost counts at most (`costs.heaviest`). `spared`: (places, rows), whose run may
    not be taken though it is in reach.
    """

    gpus: int
    now: float
    overrides: bool
    heaviest: float
    spared: Bools | None = None


def lines(table: ReachTable, rows: Rows, tops: Floats, wanted: Wanted) -> Floats:
    """(3, rows): the cost now, how much it grows every second at least, and now.

    `tops` are the highest v of the victims, which everybody within them may be.
    """
    values, costs, rates, grace, cards = _of_runs(table, rows, wanted)
    costs = np.where(values <= tops, costs, _ENDLESS)
    empty = (values < 0).sum(axis=0)
    lost = _cheapest(costs, cards, empty, wanted.gpus)
    # One of those with the highest v is in every set, and is waited for.
    waits = np.where(values == tops, grace, _ENDLESS).min(axis=0)
    # As many as may be of the cards that are taken cost no more later.
    possible = costs < _ENDLESS
    steady = np.where(possible & (rates == 0), cards, 0).sum(axis=0)
    growing = wanted.gpus - empty - steady
    slowest = np.where(possible & (rates > 0), rates, _ENDLESS).min(axis=0)
    growth = np.where(growing > 0, np.maximum(growing, slowest), 0.0)
    found: Floats = np.stack([lost + wanted.gpus * waits, growth, np.full(rows.size, wanted.now)])
    mixed = table.mixed()
    if mixed.size:
        # On a node of several models some cards may not suit: nothing is said there.
        found[:, np.isin(rows, mixed)] = 0.0
    return found


def tops(table: ReachTable, rows: Rows, wanted: Wanted) -> Floats:
    """(rows,): the highest v that at least is among the victims, where every card suits; else nothing is said."""
    values = np.sort(_of_runs(table, rows, wanted)[0], axis=0)[wanted.gpus - 1]
    found: Floats = np.where(np.isin(rows, table.mixed()), -_ENDLESS, values)
    return found


def of_those_in_order(table: ReachTable, rows: Rows, highest: float, wanted: Wanted) -> Floats:
    """(rows,): the cost of the set that `whole_cards.taken` finds on each node; 0 where nothing is said of it.

    For nodes on which only cards count (`placement.only_cards_count`), if everybody up to v `highest` may be taken.
    """
    values, costs, _, grace, numbers = _of_runs(table, rows, wanted)
    costs = np.where((values >= 0) & (values <= highest), costs, _ENDLESS)
    empty = (values < 0).sum(axis=0)
    order = np.lexsort((costs, np.where(costs < _ENDLESS, values, _ENDLESS)), axis=0)
    values, costs, grace = (np.take_along_axis(each, order, axis=0) for each in (values, costs, grace))
    cards = np.where(costs < _ENDLESS, np.take_along_axis(numbers, order, axis=0), 0)
    taken = (empty + np.cumsum(cards, axis=0) - cards < wanted.gpus) & (cards > 0)
    freed = empty + np.where(taken, cards, 0).sum(axis=0)
    enough = freed >= wanted.gpus
    for place in range(costs.shape[0] - 1, -1, -1):
        spared = taken[place] & (freed - cards[place] >= wanted.gpus)
        freed = freed - np.where(spared, cards[place], 0)
        taken[place] &= ~spared
    cost = np.where(taken, costs, 0.0).sum(axis=0) + wanted.gpus * np.where(taken, grace, 0.0).max(axis=0)
    found: Floats = np.where(enough & _is_order_certain(values, costs), cost, 0.0)
    return found


def _of_runs(table: ReachTable, rows: Rows, wanted: Wanted) -> tuple[Floats, Floats, Floats, Floats, Rows]:
    """(places, rows) each: v, the cost now and how fast it grows, grace, and how many of the cards the run has."""
    plain, override, since, lost, weight, bend, gpus, grace, cards = table.of_cards(rows)
    seconds = np.maximum(wanted.now - since, 0.0)
    lost = lost + seconds
    costs = gpus * lost * np.minimum(weight + bend * seconds, wanted.heaviest)
    first = lost < _ENDLESS
    grows = first & (since <= wanted.now)
    growth = np.minimum(weight + bend * (np.where(first, lost, 0.0) + seconds), wanted.heaviest)
    values = override if wanted.overrides else plain
    if wanted.spared is not None:
        values = np.where(wanted.spared, _ENDLESS, values)
    return values, costs, np.where(grows, gpus * growth, 0.0), grace, cards.astype(np.intp)


def _is_order_certain(values: Floats, costs: Floats) -> Bools:
    """(rows,): whether no two runs that follow each other are so much alike that a rounding decides."""
    same = (values[1:] == values[:-1]) & (costs[1:] < _ENDLESS)
    with np.errstate(invalid="ignore"):
        alike = costs[1:] - costs[:-1] <= _ALIKE * costs[1:]
    certain: Bools = ~(same & alike).any(axis=0)
    return certain


def _cheapest(costs: Floats, cards: Rows, empty: Rows, needed: int) -> Floats:
    """(rows,): the cost of the cheapest set of runs that frees so many cards beside the empty ones.

    By dynamic programming over the cards that are covered, for all nodes at once.
    """
    covered = np.arange(1, needed + 1)[:, None]
    rows = np.arange(empty.size)
    best = np.where(np.arange(needed + 1)[:, None] <= empty, 0.0, _ENDLESS)
    for cost, number in zip(costs, cards, strict=True):
        best[1:] = np.minimum(best[1:], best[np.maximum(covered - number, 0), rows] + cost)
    found: Floats = best[needed]
    return found
