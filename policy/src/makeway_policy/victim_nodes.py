"""Nodes in the order in which they are worth looking at for victims.

First by the lowest "highest victim v" that a set on the node can have, then by a bound from below on its cost. Both
only order nodes or leave them out; who may be taken is decided by `victims`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from heapq import heappop, heappush

import numpy as np

from makeway_policy import placement, victim_costs
from makeway_policy.copies import value
from makeway_policy.costs import heaviest
from makeway_policy.model import LeaseKind, Shape
from makeway_policy.reach import FREE, NodeReach, Threshold
from makeway_policy.reach_table import Card, Floats, ReachTable, Rows, Sorted
from makeway_policy.rules import Policy
from makeway_policy.taking import Taking
from makeway_policy.victim_costs import Bools, Wanted

_ENDLESS = float("inf")
_SLACK = 1.0 - 1e-9
"""A cost that is put together from parts may be off by a rounding; a bound must not be above it."""
_AT_ONCE = 32
_FRONTS = 4
_AFTER = 1024
"""So many nodes at once are picked from all, and so often, before the others are put in order and come by so many:
hardly ever more are looked at, but for gangs."""
_KINDS_KEPT = 32
"""Costs are kept for so many kinds of requests, those that were asked for last."""
_LEFT_CHANGED = 512
"""So many nodes may have changed when a decision ends: nobody may wait for more of them."""
_LEFT_STALE = 16
"""So many nodes that have changed are looked at one by one, to see whether anybody is in reach."""


@value(frozen=True, kw_only=True, slots=True)
class Host:
    """A node to look at for victims, with bounds on what it can offer: highest victim v, and cost.

    `current`: nodes that come later have no lower bounds. `exact`: the set on the node is what counting cards says, so
    that it goes no higher than `v`.
    """

    node_id: str
    v: float
    cost: float
    reach: NodeReach | None = None
    current: bool = False
    exact: bool = False


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

    def within(
        self, shape: Shape, limit: Threshold, now: float, *, overrides: bool, taking: Taking | None = None
    ) -> Iterator[Host]:
        """Nodes whose bound is within the limit, by highest victim v, then by the bound on cost, then by id.

        `taking` says whom of those within the limit the preemptor may take.
        """
        table = self._table
        table.refresh()
        bounds = self._bounds(shape, overrides)
        rows = np.flatnonzero(_within(bounds, limit))
        tops, costs, ids = bounds[0, rows], self._costs(bounds[0], shape, now, overrides)[rows], table.by_id()[rows]
        exact = np.zeros(rows.size, dtype=np.bool_)
        wanted = self._wanted(shape, now, overrides) if self._knows(shape) else None
        held: list[tuple[float, float, int, int, bool]] = []
        for some in _in_order(tops, costs, ids):
            # What was worked out a while ago is too low by now: a node waits until none can be below what it costs now.
            while held and held[0][:2] < (tops[some[0]], costs[some[0]]):
                yield self._host(heappop(held))
            if wanted is not None:
                front = some[tops[some] >= 0]
                found = self._now(rows[front], tops[front], shape, (wanted, limit[0], taking))
                tops[front], costs[front], exact[front] = found
                some = some[tops[some] <= limit[0]]
            columns = (tops[some], costs[some], ids[some], rows[some], exact[some])
            for each in zip(*(column.tolist() for column in columns), strict=True):
                heappush(held, each)
        while held:
            yield self._host(heappop(held))

    def _host(self, found: tuple[float, float, int, int, bool]) -> Host:
        top, cost, _, row, exact = found
        reach = self._table.reaches[row]
        return Host(node_id=self._table.node_ids[row], v=top, cost=cost, reach=reach, current=True, exact=exact)

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
        """Work costs out where so much has changed that the next who asks would wait for it, for one kind at a time."""
        for known in self._known.values():
            if known.version != self._table.version:
                changed = self._table.changed_since(known.version)
                if changed.size > _LEFT_CHANGED:
                    self._work_out(known, self._bounds(known.shape, known.overrides)[0], now)
                    break

    def _costs(self, tops: Floats, shape: Shape, now: float, overrides: bool) -> Floats:
        """(rows,): what the victims on each node cost at least, where the highest v of them is `tops`."""
        if not self._knows(shape):
            return np.zeros(tops.size)
        known = self._known_for(shape, overrides)
        if known.version != self._table.version or known.lines.shape[1] != tops.size:
            self._work_out(known, tops, now)
        cost, growth, since = known.lines
        return (cost + growth * (now - since)) * _SLACK

    def _now(
        self, rows: Rows, tops: Floats, shape: Shape, asked: tuple[Wanted, float, Taking | None]
    ) -> tuple[Floats, Floats, Bools]:
        """(rows,) each: highest victim v and cost at least, as things are now, and where they are what the set has."""
        wanted, highest, taking = asked
        together = np.zeros(rows.size, dtype=np.bool_)
        if taking is None or taking.anybody or not rows.size:
            known = self._known_for(shape, wanted.overrides)
            known.lines[:, rows] = victim_costs.lines(self._table, rows, tops, wanted)
            found: Floats = known.lines[0, rows]
            together[:] = taking is not None
        else:
            spared, together = self._spared(rows, taking)
            wanted = replace(wanted, spared=spared)
            tops = np.maximum(tops, victim_costs.tops(self._table, rows, wanted))
            found = victim_costs.lines(self._table, rows, np.minimum(tops, highest), wanted)[0]
        exact = together
        if taking is not None and taking.only_cards:
            reaches = map(self._table.reaches.__getitem__, rows)
            plain = [reach is not None and placement.only_cards_count(reach.room, shape) for reach in reaches]
            exact = together & np.array(plain, dtype=np.bool_)
            in_order = victim_costs.of_those_in_order(self._table, rows, highest, wanted)
            found = np.where(exact, np.maximum(found, in_order), found)
        else:
            exact = np.zeros(rows.size, dtype=np.bool_)
        return tops, found * _SLACK, exact

    def _spared(self, rows: Rows, taking: Taking) -> tuple[Bools, Bools]:
        """(places, rows): whose run may not be taken; (rows,): where all the others may leave together."""
        spared = np.zeros((self._table.places, rows.size), dtype=np.bool_)
        together = np.zeros(rows.size, dtype=np.bool_)
        for number, row in enumerate(rows):
            reach = self._table.reaches[row]
            if reach is not None:
                places, together[number] = taking.on(reach)
                spared[places, number] = True
        return spared, together

    def _wanted(self, shape: Shape, now: float, overrides: bool) -> Wanted:
        return Wanted(gpus=shape.gpus, now=now, overrides=overrides, heaviest=heaviest(self._policy))

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
        wanted = self._wanted(known.shape, now, known.overrides)
        known.lines[:, rows] = victim_costs.lines(self._table, rows, tops[rows], wanted)


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
    """Where the smallest are, by top, then cost, then id, some at a time."""
    rest = np.arange(tops.size)
    for _ in range(_FRONTS):
        if rest.size <= _AT_ONCE:
            break
        lowest = rest[tops[rest] == tops[rest].min()]
        last = min(_AT_ONCE, lowest.size) - 1
        front = lowest[costs[lowest] <= np.partition(costs[lowest], last)[last]]
        yield front[np.lexsort((ids[front], costs[front]))]
        rest = np.setdiff1d(rest, front, assume_unique=True)
    rest = rest[np.lexsort((ids[rest], costs[rest], tops[rest]))]
    yield from (rest[first : first + _AFTER] for first in range(0, rest.size, _AFTER))
