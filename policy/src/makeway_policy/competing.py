"""Which jobs could want the same GPUs: for each shape the cards that suit it on nodes that could host a member.

Cards of one model on one node are one bit of a number, so that what two shapes have in common costs next to nothing.
Only nodes that take placements count; a bit stands for the node alone where no GPU is asked for.
"""

from collections.abc import Mapping

from makeway_policy import placement
from makeway_policy.model import Shape
from makeway_policy.rooms import NodeRoom, takes_placements
from makeway_policy.rules import Policy

Cards = int
"""A set of cards, model by model and node by node; 0 is none."""

_SHAPES_KEPT = 1024

_Model = tuple[str, int, str | None] | None
"""None: the node itself, for jobs of CPU and memory only."""


class Competing:
    """The cards that each shape could want. What is kept is brought up to date when a node's hardware changes."""

    def __init__(self, rooms: Mapping[str, NodeRoom], policy: Policy) -> None:
        self._rooms = rooms
        self._policy = policy
        self._bits: dict[str, dict[_Model, Cards]] = {}
        self._count = 0
        self._wanted: dict[Shape, Cards] = {}

    def wanted_by(self, shape: Shape) -> Cards:
        """The cards that a member of the shape could run on, whatever is on them."""
        found = self._wanted.get(shape)
        if found is None:
            if len(self._wanted) >= _SHAPES_KEPT:
                self._wanted.clear()
            found = 0
            for node_id in self._rooms:
                found |= self._on(node_id, shape)
            self._wanted[shape] = found
        return found

    def hardware_changed(self, node_id: str) -> None:
        """A node or its cards have come, gone, or take placements again or no more."""
        here = 0
        for bit in self._bits.get(node_id, {}).values():
            here |= bit
        for shape, wanted in self._wanted.items():
            self._wanted[shape] = wanted & ~here | self._on(node_id, shape)

    def is_among(self, node_id: str, cards: Cards) -> bool:
        """Whether any of the cards is on the node."""
        return any(bit & cards for bit in self._bits.get(node_id, {}).values())

    def _on(self, node_id: str, shape: Shape) -> Cards:
        room = self._rooms.get(node_id)
        if room is None or not takes_placements(room.node) or not placement.node_admits(room.node, shape):
            return 0
        if shape.gpus == 0:
            return self._bit(node_id, None)
        cards = placement.suitable(room, shape, self._policy)
        if len(cards) < shape.gpus:
            return 0
        found = 0
        for model in {(card.gpu.type_name, card.gpu.vram_mib, card.gpu.mig_profile) for card in cards}:
            found |= self._bit(node_id, model)
        return found

    def _bit(self, node_id: str, model: _Model) -> Cards:
        bits = self._bits.setdefault(node_id, {})
        if model not in bits:
            bits[model] = 1 << self._count
            self._count += 1
        return bits[model]
