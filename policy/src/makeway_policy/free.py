"""Nodes by how many cards they have free, for each kind of request."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping

from makeway_policy import placement
from makeway_policy.model import LeaseKind, Shape
from makeway_policy.rooms import NodeRoom, takes_placements
from makeway_policy.rules import Policy


class FreeNodes:
    """Nodes ordered by how many cards they have free for one kind of request."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.whole = shape.gpus > 0 and placement.kind_of(shape) is LeaseKind.WHOLE
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

    def most_of(self, node_ids: Iterable[str]) -> int:
        """The most cards that one of these nodes has free."""
        return max((self._count.get(node_id, 0) for node_id in node_ids), default=0)

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


class FreeCards:
    """What is free on all nodes, by kind of request."""

    def __init__(self, policy: Policy, rooms: Mapping[str, NodeRoom]) -> None:
        self._policy = policy
        self._rooms = rooms
        self._kinds: dict[placement.OfCard, FreeNodes] = {}

    def update(self, node_id: str, room: NodeRoom | None) -> None:
        """A node has other room than before; None: it is gone."""
        if room is None or not takes_placements(room.node):
            for found in self._kinds.values():
                found.update(node_id, 0)
            return
        for found in self._kinds.values():
            found.update(node_id, self._cards(room, found))

    def of(self, shape: Shape) -> FreeNodes:
        """The nodes with cards free for requests of the shape's kind."""
        key = placement.of_card(shape)
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = FreeNodes(shape)
            for node_id, room in self._rooms.items():
                if takes_placements(room.node):
                    found.update(node_id, self._cards(room, found))
        return found

    def has_room(self, shape: Shape) -> bool:
        """Whether any node has the free cards for one member of the shape."""
        return self.of(shape).any_with(max(1, shape.gpus))

    def _cards(self, room: NodeRoom, kind: FreeNodes) -> int:
        if kind.shape.gpus == 0:
            return 1
        if kind.whole and room.uniform:
            return room.free if room.free and placement.suits(room.cards[0].gpu, kind.shape, self._policy) else 0
        return placement.fitting_cards(room, kind.shape, self._policy, later=False)
