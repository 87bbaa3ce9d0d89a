"""Nodes in the order in which they are worth looking at for victims.

First by the lowest "highest victim v" that a set on the node can have, then by a bound from below on its cost. Both
only order nodes or leave them out; who may be taken is decided by `victims`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from makeway_policy import placement
from makeway_policy.copies import value
from makeway_policy.model import LeaseKind, Shape
from makeway_policy.reach import FREE, NodeReach, Threshold
from makeway_policy.reach_table import Card, Floats, ReachTable, Rows, Sorted
from makeway_policy.rules import Policy

_ENDLESS = float("inf")
_SLACK = 1.0 - 1e-9
"""A cost that is put together from parts may be off by a rounding; a bound must not be above it."""
_AT_ONCE = 64
"""Hardly ever more nodes are looked at: the others are put in order only then."""
_KINDS_KEPT = 32
"""Costs are kept for so many kinds of requests, those that were asked for last."""
_LEFT_CHANGED = 512
"""So many nodes may have changed when a decision ends: nobody may wait for more of them."""
_LEFT_STALE = 16
"""So many nodes that have changed are looked at one by one, to see whether anybody is in reach."""

Bools = npt.NDArray[np.bool_]


@value(frozen=True, kw_only=True, slots=True)
class Host:
    """A node to look at for victims, with bounds on what it can offer: highest victim v, and cost."""

    node_id: str
    v: float
    cost: float
    reach: NodeReach | None = None


class VictimNodes:
    """All nodes, for whoever asks. `reach_of` gives what a node has to offer at most, None where it is gone."""

    def __init__(self, policy: Policy, nodes: Iterable[str], reach_of: Callable[[str], NodeReach | None]) -> None:
        self._policy = policy
        self._table = ReachTable(nodes, reach_of)
        self._known: dict[tuple[object, ...], _KnownCosts] = {}
        self._suited: dict[tuple[object, ...], Bools] = {}

    def nodes_changed(self, node_ids: Iterable[str]) -> None:
        """These nodes may have something else to offer than before."""
        self._table.stale.update(dict.fromkeys(node_ids))

    @property
    def stale(self) -> Collection[str]:
        """The nodes that have changed since somebody asked."""
        return self._table.stale.keys()

    def refresh(self) -> None:
        """Look at the nodes that have changed."""
        self._table.refresh()

    def perhaps_within(
        self, shape: Shape, limit: Threshold, filled: Collection[str], *, overrides: bool
    ) -> Iterator[str]:
        """Nodes whose bound may be within the limit, in no order; among them some that have changed and may not be.

        Of those that are `filled` meanwhile nothing is found out for that.
        """
        if len(self._table.stale) > _LEFT_STALE:
            self._table.refresh(filled)
        for row in np.flatnonzero(_within(self._bounds(shape, overrides), limit)):
            yield self._table.node_ids[row]
        yield from tuple(self._table.stale)

    def within(self, shape: Shape, limit: Threshold, now: float, *, overrides: bool) -> Iterator[Host]:
        """Nodes whose bound is within the limit, by highest victim v, then by the bound on cost, then by id."""
        table = self._table
        table.refresh()
        bounds = self._bounds(shape, overrides)
        rows = np.flatnonzero(_within(bounds, limit))
        tops, costs = bounds[0, rows], self._costs(bounds[0], shape, now, overrides)[rows]
        if rows.size and self._knows(shape):
            # What was worked out a while ago is too low by now: those in front would be looked at for nothing.
            front = next(_in_order(tops, costs, table.by_id()[rows]))[:_AT_ONCE]
            front = front[tops[front] >= 0]
            costs[front] = self._costs_now(rows[front], tops[front], self._known_for(shape, overrides), now)
        for some in _in_order(tops, costs, table.by_id()[rows]):
            for row, top, cost in zip(rows[some].tolist(), tops[some].tolist(), costs[some].tolist(), strict=True):
                yield Host(node_id=table.node_ids[row], v=top, cost=cost, reach=table.reaches[row])

    def _bounds(self, shape: Shape, overrides: bool) -> Floats:
        """(3, rows): what at least has to leave on each node for one member of the shape."""
        table = self._table
        if shape.gpus == 0:
            known = [float("inf") if reach is None else FREE[0] for reach in table.reaches]
            return np.array([known, [0.0] * len(known), [0.0] * len(known)])
        if shape.gpus > table.places:
            return np.full((3, len(table.node_ids)), _ENDLESS)
        if placement.kind_of(shape) is not LeaseKind.WHOLE:
            return table.thresholds(Sorted.PART, shape.gpus)
        bounds = table.thresholds(Sorted.OVERRIDE if overrides else Sorted.PLAIN, shape.gpus)
        suited = self._suits(shape)
        return bounds if suited.all() else self._of_suited(bounds, suited, shape.gpus, overrides)

    def _of_suited(self, bounds: Floats, suited: Bools, number: int, overrides: bool) -> Floats:
        """The bounds where not every card suits."""
        table = self._table
        models = table.model()
        bounds = np.where(suited[models[0]], bounds, _ENDLESS)
        mixed = table.mixed()
        fitting = suited[models[:, mixed]]
        values = np.where(fitting, table.cards(Card.OVERRIDE_V if overrides else Card.PLAIN_V)[:, mixed], _ENDLESS)
        bounds[0, mixed] = np.sort(values, axis=0)[number - 1]
        # Nothing but their v is known of these: among equal values, any may be within reach.
        bounds[1:, mixed] = -_ENDLESS
        return bounds

    def _suits(self, shape: Shape) -> Bools:
        """(models + 1,): whether a card of each model suits; the last stands for no card."""
        models = self._table.models
        key = (shape.gpu_type, shape.min_vram_mib, shape.vram_mib, shape.mig)
        found = self._suited.get(key)
        if found is None or found.size != len(models) + 1:
            found = np.array([*(placement.suits(gpu, shape, self._policy) for gpu in models), True])
            self._suited[key] = found
        return found

    def keep_up(self, now: float) -> None:
        """Work costs out where so much has changed that the next who asks would wait for it."""
        for known in self._known.values():
            if known.version != self._table.version:
                changed = self._table.changed_since(known.version)
                if changed.size > _LEFT_CHANGED:
                    self._work_out(known, self._bounds(known.shape, known.overrides)[0], now)

    def _costs(self, tops: Floats, shape: Shape, now: float, overrides: bool) -> Floats:
        """(rows,): what the victims on each node cost at least, where the highest v of them is `tops`."""
        if not self._knows(shape):
            return np.zeros(tops.size)
        known = self._known_for(shape, overrides)
        if known.version != self._table.version or known.lines.shape[1] != tops.size:
            self._work_out(known, tops, now)
        cost, growth, since = known.lines
        return (cost + growth * (now - since)) * _SLACK

    def _costs_now(self, rows: Rows, tops: Floats, known: "_KnownCosts", now: float) -> Floats:
        known.lines[:, rows] = self._lines(rows, tops, (known.shape.gpus, now), known.overrides)
        found: Floats = known.lines[0, rows] * _SLACK
        return found

    def _knows(self, shape: Shape) -> bool:
        """Whether anything is said of what victims for the shape cost."""
        return shape.gpus > 0 and placement.kind_of(shape) is LeaseKind.WHOLE

    def _known_for(self, shape: Shape, overrides: bool) -> "_KnownCosts":
        """What is known for a kind of request, from the first that asks on also for the others of its shape."""
        kind = (shape.gpu_type, shape.min_vram_mib, shape.mig, shape.gpus)
        for each in {overrides, *(rules.overrides_minimum_run for rules in self._policy.classes.values())}:
            if (*kind, each) not in self._known:
                self._known[(*kind, each)] = _KnownCosts(shape, each)
        # Whoever was asked for last is last: the others go first.
        known = self._known[(*kind, overrides)] = self._known.pop((*kind, overrides))
        while len(self._known) > _KINDS_KEPT:
            del self._known[next(iter(self._known))]
        return known

    def _work_out(self, known: "_KnownCosts", tops: Floats, now: float) -> None:
        known.make_room(tops.size)
        changed = self._table.changed_since(known.version)
        known.version = self._table.version
        known.lines[:, changed] = 0.0
        rows = changed[(tops[changed] >= 0) & (tops[changed] < _ENDLESS)]
        known.lines[:, rows] = self._lines(rows, tops[rows], (known.shape.gpus, now), known.overrides)

    def _lines(self, rows: Rows, tops: Floats, needed_and_now: tuple[int, float], overrides: bool) -> Floats:
        """(3, rows): the cost now, how much it grows every second at least, and now."""
        needed, now = needed_and_now
        plain, override, fixed, rates, grace, cards = self._table.of_cards(rows)
        values = override if overrides else plain
        costs = np.where(values <= tops, fixed + rates * (now - self._table.since), _ENDLESS)
        empty = (values < 0).sum(axis=0)
        lost = _cheapest(costs, cards.astype(np.intp), empty, needed)
        # One of those with the highest v is in every set, and is waited for.
        waits = np.where(values == tops, grace, _ENDLESS).min(axis=0)
        # As many as may be of the cards that are taken cost no more later.
        possible = costs < _ENDLESS
        steady = np.where(possible & (rates == 0), cards, 0.0).sum(axis=0)
        growing = needed - empty - steady
        slowest = np.where(possible & (rates > 0), rates, _ENDLESS).min(axis=0)
        growth = np.where(growing > 0, np.maximum(growing, slowest), 0.0)
        lines: Floats = np.stack([lost + needed * waits, growth, np.full(rows.size, now)])
        mixed = self._table.mixed()
        if mixed.size:
            # On a node of several models some cards may not suit: nothing is said there.
            lines[:, np.isin(rows, mixed)] = 0.0
        return lines


class _KnownCosts:
    """What is known of each node's cost for one kind of request, as a line in time (cost, growth, since when)."""

    def __init__(self, shape: Shape, overrides: bool) -> None:
        self.shape = shape
        self.overrides = overrides
        self.version = 0
        self.lines = np.zeros((3, 0))

    def make_room(self, rows: int) -> None:
        """Nothing is known of rows that were added."""
        missing = rows - self.lines.shape[1]
        if missing:
            self.lines = np.concatenate([self.lines, np.zeros((3, missing))], axis=1)


def _within(bounds: Floats, limit: Threshold) -> Bools:
    """(rows,): whether each node's bound is within the limit, compared figure by figure."""
    v, submitted, order = bounds
    same = (submitted < limit[1]) | ((submitted == limit[1]) & (order <= limit[2]))
    inside: Bools = (v < limit[0]) | ((v == limit[0]) & same)
    return inside


def _in_order(tops: Floats, costs: Floats, ids: Rows) -> Iterator[Rows]:
    """Where the smallest are, by top, then cost, then id; the first few before the others are put in order."""
    rest = np.ones(tops.size, dtype=np.bool_)
    if tops.size > _AT_ONCE:
        lowest = np.flatnonzero(tops == tops.min())
        last = min(_AT_ONCE, lowest.size) - 1
        front = lowest[costs[lowest] <= np.partition(costs[lowest], last)[last]]
        yield front[np.lexsort((ids[front], costs[front]))]
        rest[front] = False
    others = np.flatnonzero(rest)
    yield others[np.lexsort((ids[others], costs[others], tops[others]))]


def _cheapest(costs: Floats, cards: Rows, empty: Rows, needed: int) -> Floats:
    """(rows,): the cost of the cheapest set of runs that frees so many cards beside the empty ones.

    `costs` and `cards` (places, rows) are those of a run at its first place, the costs infinite at any other. By
    dynamic programming over the cards that are covered, for all nodes at once.
    """
    covered = np.arange(1, needed + 1)[:, None]
    rows = np.arange(empty.size)
    best = np.where(np.arange(needed + 1)[:, None] <= empty, 0.0, _ENDLESS)
    for cost, number in zip(costs, cards, strict=True):
        best[1:] = np.minimum(best[1:], best[np.maximum(covered - number, 0), rows] + cost)
    found: Floats = best[needed]
    return found
