"""Nodes in the order in which they are worth looking at for victims, for one kind of request.

First by the lowest "highest victim v" that a set on the node can have, then by a bound from below on its cost. Both
only order nodes or leave them out; who may be taken is decided by `victims`.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge

from makeway_policy import placement
from makeway_policy.model import LeaseKind, Shape
from makeway_policy.reach import OUT_OF_REACH, CardReach, NodeReach, Threshold
from makeway_policy.rules import Policy

_LEFT_STALE = 32
"""So many nodes may have changed before they are looked at although nobody asks, so that nobody waits for more."""

_Level = tuple[float, int]
"""(highest victim v, cards that have to be freed): costs of one level grow alike with time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A node to look at for victims, with bounds on what it can offer: highest victim v, and cost."""

    node_id: str
    v: float
    cost: float
    reach: NodeReach | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rank:
    """A node's place: its cost at a time t is at least level cards x t + `negative_since`."""

    bound: Threshold
    level: _Level
    negative_since: float


class VictimNodes:
    """All nodes for one kind of request, brought up to date when asked."""

    def __init__(self, shape: Shape, policy: Policy, reaches: Mapping[str, NodeReach], *, overrides: bool) -> None:
        self._shape = shape
        self._policy = policy
        self._overrides = overrides
        self._reaches = reaches
        self._stale: set[str] = set(reaches)
        self._lists: dict[_Level, list[tuple[float, str]]] = {}
        self._levels: list[_Level] = []
        self._ranks: dict[str, _Rank] = {}
        self.refresh()

    def nodes_changed(self, node_ids: Collection[str]) -> None:
        """Something on these nodes has changed."""
        self._stale.update(node_ids)
        if len(self._stale) > _LEFT_STALE:
            self.refresh()

    def any_within(self, limit: Threshold) -> bool:
        """Whether any node's bound may be within the limit."""
        self.refresh()
        return bool(self._levels) and self._levels[0][0] <= limit[0]

    def within(self, limit: Threshold, now: float) -> Iterator[Host]:
        """Nodes whose bound is within the limit, by highest victim v, then by the bound on cost."""
        self.refresh()
        values = sorted({level[0] for level in self._levels if level[0] <= limit[0]})
        for v in values:
            lists = [self._hosts(level, limit, now) for level in self._levels if level[0] == v]
            for cost, node_id in merge(*lists):
                yield Host(node_id=node_id, v=v, cost=cost, reach=self._reaches.get(node_id))

    def refresh(self) -> None:
        """Bring the nodes that changed up to date."""
        for node_id in self._stale:
            reach = self._reaches.get(node_id)
            rank = None if reach is None else self._rank(reach)
            if rank != self._ranks.get(node_id):
                self._move(node_id, rank)
        self._stale.clear()

    def _hosts(self, level: _Level, limit: Threshold, now: float) -> Iterator[tuple[float, str]]:
        cards = level[1]
        for negative_since, node_id in self._lists[level]:
            if self._ranks[node_id].bound <= limit:
                yield max(0.0, cards * now + negative_since), node_id

    def _move(self, node_id: str, rank: _Rank | None) -> None:
        old = self._ranks.pop(node_id, None)
        if old is not None:
            entries = self._lists[old.level]
            del entries[bisect_left(entries, (old.negative_since, node_id))]
            if not entries:
                del self._lists[old.level]
                del self._levels[bisect_left(self._levels, old.level)]
        if rank is None:
            return
        if rank.level not in self._lists:
            self._lists[rank.level] = []
            insort(self._levels, rank.level)
        insort(self._lists[rank.level], (rank.negative_since, node_id))
        self._ranks[node_id] = rank

    def _rank(self, reach: NodeReach) -> _Rank | None:
        shape = self._shape
        bound = reach.bound(shape, overrides=self._overrides)
        if bound >= OUT_OF_REACH:
            return None
        if shape.gpus == 0 or placement.kind_of(shape) is not LeaseKind.WHOLE:
            return _Rank(bound=bound, level=(bound[0], 0), negative_since=0.0)
        cards: Sequence[CardReach] = reach.cards
        if not reach.room.uniform:
            cards = [each for each in cards if placement.suits(each.card.gpu, shape, self._policy)]
        elif not placement.suits(cards[0].card.gpu, shape, self._policy):
            return None
        return self._rank_whole(cards, max(1, shape.gpus))

    def _rank_whole(self, cards: Sequence[CardReach], size: int) -> _Rank | None:
        thresholds = [each.override for each in cards] if self._overrides else [each.plain for each in cards]
        ranked = sorted(thresholds)
        if len(ranked) < size or ranked[size - 1] >= OUT_OF_REACH:
            return None
        bound = ranked[size - 1]
        taken = sum(1 for threshold in ranked[:size] if threshold[0] >= 0)
        if not taken:
            return _Rank(bound=bound, level=(bound[0], 0), negative_since=0.0)
        top = bound[0]
        latest = sorted(
            [-each.since(size) for each, threshold in zip(cards, thresholds, strict=True) if 0 <= threshold[0] <= top]
        )
        evictable = [each for each in cards if 0 <= each.nearest[0] <= top]
        graces = [each.grace for each in evictable if each.lost]
        wait = size * min(graces) if graces and len(graces) == len(evictable) else 0.0
        return _Rank(bound=bound, level=(top, taken), negative_since=sum(latest[:taken]) + wait)
