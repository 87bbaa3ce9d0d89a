"""What all nodes have to offer to preemptors, in columns of numbers: thousands of nodes are compared in one step.

A node is a row; its cards are places in it. A feature of all nodes' first cards, say, is one array. Rows are brought up
to date together, when somebody asks.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from makeway_policy.model import Gpu
from makeway_policy.reach import CardReach, NodeReach, Threshold

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]

_ENDLESS = float("inf")
_NO_MODEL = -1.0


class Sorted(IntEnum):
    """The thresholds of a node's cards, smallest first, three features each: v, -submit time, -admission number."""

    PLAIN = 0
    OVERRIDE = 3
    PART = 6


class Card(IntEnum):
    """What is known of each card.

    `RUN_CARDS`: how many of the node's cards its run has (0 but for the first of them). Stopping the run costs each of
    its `RUN_GPUS` at least `LOST` seconds, and a second more every second from `SINCE` on, where that is not infinite.
    """

    PLAIN_V = 9
    OVERRIDE_V = 10
    LOST = 11
    SINCE = 12
    RUN_GPUS = 13
    RUN_CARDS = 14
    GRACE = 15
    MODEL = 16


_NO_CARD = [*(_ENDLESS, 0.0, 0.0) * len(Sorted), _ENDLESS, _ENDLESS, 0.0, _ENDLESS, 0.0, 0.0, _ENDLESS, _NO_MODEL]
_PLACES, _ROWS = 8, 16


class ReachTable:
    """A row for each node. `reach_of` gives what a node has to offer as things are, None where it is gone."""

    def __init__(self, nodes: Iterable[str], reach_of: Callable[[str], NodeReach | None]) -> None:
        self.stale: dict[str, None] = dict.fromkeys(nodes)
        self.node_ids: list[str] = []
        self.reaches: list[NodeReach | None] = []
        self.models: list[Gpu] = []
        self._reach_of = reach_of
        self._rows: dict[str, int] = {}
        self._model_numbers: dict[tuple[object, ...], float] = {}
        self._values = _blank(_PLACES, _ROWS)
        self._mixed: set[int] = set()
        self._order: Rows | None = None

    @property
    def places(self) -> int:
        """How many cards there is a place for."""
        places: int = self._values.shape[1]
        return places

    def thresholds(self, kind: Sorted, number: int) -> Floats:
        """(3, rows): the so many smallest threshold of each node; `number` from 1 to `places`."""
        return self._values[kind : kind + 3, number - 1, : len(self.node_ids)]

    def cards(self, feature: Card) -> Floats:
        """(places, rows): a feature of each card."""
        return self._values[feature, :, : len(self.node_ids)]

    def mixed(self) -> Rows:
        """The rows of nodes whose cards are not all of one model."""
        return np.array(sorted(self._mixed), dtype=np.intp)

    def by_id(self) -> Rows:
        """(rows,): the place of each node in the order of their ids."""
        if self._order is None:
            self._order = np.empty(len(self.node_ids), dtype=np.intp)
            self._order[np.argsort(np.array(self.node_ids), kind="stable")] = np.arange(len(self.node_ids))
        return self._order

    def refresh(self) -> None:
        """Bring the rows of the nodes that changed up to date."""
        if not self.stale:
            return
        found = {node_id: self._reach_of(node_id) for node_id in tuple(self.stale)}
        self.stale.clear()
        for node_id in found:
            if node_id not in self._rows:
                self._rows[node_id] = len(self.node_ids)
                self.node_ids.append(node_id)
                self.reaches.append(None)
                self._order = None
        self._make_room(max((len(reach.cards) for reach in found.values() if reach is not None), default=0))
        rows = [self._rows[node_id] for node_id in found]
        for row, reach in zip(rows, found.values(), strict=True):
            self.reaches[row] = reach
            if reach is not None and reach.cards and not reach.room.uniform:
                self._mixed.add(row)
            else:
                self._mixed.discard(row)
        self._values[:, :, rows] = np.array([self._features(each) for each in found.values()]).transpose(1, 2, 0)

    def _make_room(self, places: int) -> None:
        _, old_places, old_rows = self._values.shape
        if places <= old_places and len(self.node_ids) <= old_rows:
            return
        rows = old_rows if len(self.node_ids) <= old_rows else 2 * len(self.node_ids)
        grown = _blank(max(places, old_places), rows)
        grown[:, :old_places, :old_rows] = self._values
        self._values = grown

    def _features(self, reach: NodeReach | None) -> list[list[float]]:
        """One list a feature, with a figure for each place."""
        if reach is None or not reach.cards:
            return [[each] * self.places for each in _NO_CARD]
        cards = reach.cards
        here: dict[tuple[str, ...], int] = {}
        for card in cards:
            here[card.card.staying] = here.get(card.card.staying, 0) + 1
        part = sorted([card.part for card in cards])
        features: list[list[float]] = [
            *_columns(reach.plain),
            *_columns(reach.override),
            *_columns(part),
            [card.plain[0] for card in cards],
            [card.override[0] for card in cards],
            [card.lost for card in cards],
            [card.at if card.lost > 0 else _ENDLESS for card in cards],
            [float(card.gpus) for card in cards],
            [float(here.pop(card.card.staying, 0)) for card in cards],
            [card.grace for card in cards],
            [self._model_number(card) for card in cards],
        ]
        missing = self.places - len(cards)
        if missing:
            for feature, none in zip(features, _NO_CARD, strict=True):
                feature.extend([none] * missing)
        return features

    def _model_number(self, card: CardReach) -> float:
        gpu = card.card.gpu
        model = (gpu.type_name, gpu.vram_mib, gpu.mig_profile)
        number = self._model_numbers.get(model)
        if number is None:
            number = self._model_numbers[model] = float(len(self.models))
            self.models.append(gpu)
        return number


def _columns(thresholds: Sequence[Threshold]) -> list[list[float]]:
    return [[each[0] for each in thresholds], [each[1] for each in thresholds], [each[2] for each in thresholds]]


def _blank(places: int, rows: int) -> Floats:
    blank = np.empty((len(_NO_CARD), places, rows))
    blank[:] = np.array(_NO_CARD)[:, None, None]
    return blank
