"""Nodes by how many cards they have free, for one kind of request."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from makeway_policy.model import Shape


class FreeNodes:
    """Nodes ordered by how many cards they have free for one kind of request."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._order: list[tuple[int, str]] = []
        self._count: dict[str, int] = {}

    def update(self, node_id: str, cards: int) -> None:
        """Note how many cards a node has free; 0 takes it out."""
        old = self._count.get(node_id, 0)
        if old == cards:
            return
        if old:
            del self._order[bisect_left(self._order, (old, node_id))]
            del self._count[node_id]
        if cards:
            insort(self._order, (cards, node_id))
            self._count[node_id] = cards

    @property
    def most(self) -> int:
        """How many cards the emptiest node has free."""
        return self._order[-1][0] if self._order else 0

    def any_with(self, cards: int) -> bool:
        """Whether any node has at least so many cards free."""
        return bool(self._order) and self._order[-1][0] >= cards

    def among(self, node_ids: Iterable[str], cards: int, *, fullest_first: bool) -> list[str]:
        """Of these nodes those with at least so many cards, fewest (else most) first, then by id."""
        sign = 1 if fullest_first else -1
        ranked = sorted((sign * self._count.get(node_id, 0), node_id) for node_id in node_ids)
        return [node_id for count, node_id in ranked if sign * count >= cards]

    def at_least(self, cards: int, *, fullest_first: bool) -> Iterator[str]:
        """Node ids with at least so many cards, fewest (else most) first, then by id."""
        start = bisect_left(self._order, (cards, ""))
        if fullest_first:
            for place in range(start, len(self._order)):
                yield self._order[place][1]
            return
        end = len(self._order)
        while end > start:
            first = bisect_left(self._order, (self._order[end - 1][0], ""))
            for place in range(max(first, start), end):
                yield self._order[place][1]
            end = first
