"""Nodes in the order in which they are worth looking at for victims, for one kind of request.

First by the lowest "highest victim v" that a set on the node can have, then by a bound from below on its cost. Both
only order nodes or leave them out; who may be taken is decided by `victims`.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import heappop, heappush, merge

from makeway_policy import placement
from makeway_policy.copies import value
from makeway_policy.model import LeaseKind, Shape
from makeway_policy.reach import OUT_OF_REACH, CardReach, Level, NodeReach, Rank, Threshold, cheapest
from makeway_policy.rules import Policy

_ENDLESS = float("inf")
_NOBODY: Threshold = (0.0, -_ENDLESS, -_ENDLESS)
"""Below this nobody has to leave."""
_FEW = 4
"""Where fewer than one in so many nodes of a level are within a limit, those are looked up instead of passed over."""


@value(frozen=True, kw_only=True, slots=True)
class Host:
    """A node to look at for victims, with bounds on what it can offer: highest victim v, and cost."""

    node_id: str
    v: float
    cost: float
    reach: NodeReach | None = None


class VictimNodes:
    """All nodes for one kind of request, brought up to date when asked."""

    def __init__(
        self,
        shape: Shape,
        policy: Policy,
        nodes: Collection[str],
        reach_of: Callable[[str], NodeReach | None],
        *,
        overrides: bool,
    ) -> None:
        """`reach_of` gives what a node has to offer as things are, None where it is gone."""
        self._shape = shape
        self._policy = policy
        self._overrides = overrides
        self._reach_of = reach_of
        self._stale: set[str] = set(nodes)
        self._seen: dict[str, NodeReach | None] = {}
        self._lists: dict[Level, list[tuple[float, str]]] = {}
        self._bounds: dict[Level, list[tuple[Threshold, str]]] = {}
        self._levels: list[Level] = []
        self._ranks: dict[str, Rank] = {}
        self.refresh()

    def nodes_changed(self, node_ids: Collection[str]) -> None:
        """These nodes may have more to offer than before."""
        self._stale.update(node_ids)

    @property
    def stale(self) -> int:
        """How many nodes have changed since somebody asked."""
        return len(self._stale)

    def any_within(self, limit: Threshold) -> bool:
        """Whether any node's bound may be within the limit; of a node that was filled, what it was may count too."""
        if self._levels and self._levels[0][0] <= limit[0]:
            return True
        reaches = (self._reach_of(node_id) for node_id in self._stale)
        return any(
            reach is not None and reach.bound(self._shape, overrides=self._overrides) <= limit for reach in reaches
        )

    def within(self, limit: Threshold, now: float) -> Iterator[Host]:
        """Nodes whose bound is within the limit, by highest victim v, then by the bound on cost.

        Nodes that were filled stand too far in front: they are put in their places as they are met.
        """
        self.refresh()
        moved: list[tuple[float, float, str]] = []
        for v in sorted({level[0] for level in self._levels if level[0] <= limit[0]}):
            lists = [self._hosts(level, limit, now) for level in self._levels if level[0] == v]
            for cost, node_id in merge(*lists):
                while moved and moved[0] < (v, cost, node_id):
                    yield self._host(*heappop(moved))
                if self._reach_of(node_id) is self._seen[node_id]:
                    yield self._host(v, cost, node_id)
                    continue
                self._stale.add(node_id)
                rank = self._rank(self._reach_of(node_id))
                if rank is not None and rank.bound <= limit:
                    heappush(moved, (rank.level[0], _cost_at(rank.level, rank.negative_since, now), node_id))
        while moved:
            yield self._host(*heappop(moved))

    def refresh(self) -> None:
        """Bring the nodes that changed up to date."""
        for node_id in self._stale:
            reach = self._seen[node_id] = self._reach_of(node_id)
            rank = self._rank(reach)
            if rank != self._ranks.get(node_id):
                self._move(node_id, rank)
        self._stale.clear()

    def _host(self, v: float, cost: float, node_id: str) -> Host:
        return Host(node_id=node_id, v=v, cost=cost, reach=self._reach_of(node_id))

    def _hosts(self, level: Level, limit: Threshold, now: float) -> Iterator[tuple[float, str]]:
        entries = self._lists[level]
        bounds = self._bounds[level]
        within = len(bounds) if level[0] < limit[0] else bisect_right(bounds, limit, key=_bound)
        if within * _FEW < len(bounds):
            entries = sorted([(self._ranks[node_id].negative_since, node_id) for _, node_id in bounds[:within]])
            within = len(bounds)
        for negative_since, node_id in entries:
            if within == len(bounds) or self._ranks[node_id].bound <= limit:
                yield _cost_at(level, negative_since, now), node_id

    def _move(self, node_id: str, rank: Rank | None) -> None:
        old = self._ranks.pop(node_id, None)
        if old is not None:
            entries, bounds = self._lists[old.level], self._bounds[old.level]
            del entries[bisect_left(entries, (old.negative_since, node_id))]
            del bounds[bisect_left(bounds, (old.bound, node_id))]
            if not entries:
                del self._lists[old.level], self._bounds[old.level]
                del self._levels[bisect_left(self._levels, old.level)]
        if rank is None:
            return
        if rank.level not in self._lists:
            self._lists[rank.level], self._bounds[rank.level] = [], []
            insort(self._levels, rank.level)
        insort(self._lists[rank.level], (rank.negative_since, node_id))
        insort(self._bounds[rank.level], (rank.bound, node_id))
        self._ranks[node_id] = rank

    def _rank(self, reach: NodeReach | None) -> Rank | None:
        if reach is None:
            return None
        shape = self._shape
        if shape.gpus == 0 or placement.kind_of(shape) is not LeaseKind.WHOLE:
            bound = reach.bound(shape, overrides=self._overrides)
            return None if bound >= OUT_OF_REACH else Rank(bound=bound, level=(bound[0], 0), negative_since=0.0)
        cards: Sequence[CardReach] = reach.cards
        if not reach.room.uniform:
            return _rank_of([each for each in cards if self._suits(each)], shape.gpus, overrides=self._overrides)
        if not cards or not self._suits(cards[0]):
            return None
        # On most nodes it is the same for whoever overrides minimum runs.
        key = (shape.gpus, self._overrides and reach.override is not reach.plain)
        if key not in reach.ranks:
            reach.ranks[key] = _rank_of(cards, shape.gpus, overrides=self._overrides)
        return reach.ranks[key]

    def _suits(self, card: CardReach) -> bool:
        return placement.suits(card.card.gpu, self._shape, self._policy)


def _cost_at(level: Level, negative_since: float, now: float) -> float:
    return max(0.0, level[1] * now + negative_since)


def _rank_of(cards: Sequence[CardReach], size: int, *, overrides: bool) -> Rank | None:
    """The rank of a node with these cards for a request of so many whole ones; None where it is out of reach."""
    if len(cards) < size:
        return None
    thresholds = [each.override for each in cards] if overrides else [each.plain for each in cards]
    ranked = sorted(thresholds)
    bound = ranked[size - 1]
    if bound >= OUT_OF_REACH:
        return None
    top = bound[0]
    taken = size - bisect_left(ranked, _NOBODY, 0, size)
    if not taken:
        return Rank(bound=bound, level=(top, 0), negative_since=0.0)
    at = max((each.at for each in cards if each.grows), default=0.0)
    costs: dict[tuple[str, ...], tuple[int, float]] = {}
    wait, growing = _ENDLESS, taken
    for each, threshold in zip(cards, thresholds, strict=True):
        if 0 <= threshold[0] <= top:
            number, _ = costs.get(each.card.staying, (0, 0.0))
            costs[each.card.staying] = (number + 1, each.cost_at(at))
            growing -= not each.grows
        # One of those with the highest v is in every set, and is waited for.
        if threshold[0] == top:
            wait = min(wait, each.grace)
    cost = sum(cheapest(costs.values(), taken)) + size * wait
    growing = max(0, growing)
    return Rank(bound=bound, level=(top, growing), negative_since=cost - growing * at)


def _bound(entry: tuple[Threshold, str]) -> Threshold:
    return entry[0]
