"""What all nodes have to offer to preemptors, in columns of numbers: thousands of nodes are compared in one step.

A node is a row; its cards are places in it. A feature of all nodes' first cards, say, is one array. Rows are brought up
to date together, when somebody asks.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import IntEnum
from itertools import chain, zip_longest

import numpy as np
import numpy.typing as npt

from makeway_policy.model import Gpu
from makeway_policy.reach import CardReach, NodeReach

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]

_ENDLESS = float("inf")


class Sorted(IntEnum):
    """The thresholds of a node's cards, smallest first, three features each: v, -submit time, -admission number."""

    PLAIN = 0
    OVERRIDE = 3
    PART = 6


class Card(IntEnum):
    """What is known of each card.

    `RUN_CARDS`: how many of the node's cards its run has. What stopping the run costs each of its `GPUS`, on whichever
    nodes, takes its course from `SINCE` on (see `CardReach`); `LOST` is said at the first of its cards, and infinite at
    any other.
    """

    PLAIN_V = 9
    OVERRIDE_V = 10
    SINCE = 11
    LOST = 12
    WEIGHT = 13
    BEND = 14
    GPUS = 15
    GRACE = 16
    RUN_CARDS = 17


_NO_FIGURES = (*(_ENDLESS, 0.0, 0.0) * len(Sorted), _ENDLESS, 0.0, 1.0, 0.0, 1.0, _ENDLESS, -1.0)
"""What `CardReach.figures` would be of no card."""
_NO_MODEL = -1
_PLACES, _ROWS = 8, 16
_AT_ONCE = 256
"""So many nodes are compared card by card with themselves at once, which takes memory."""


class ReachTable:
    """A row for each node. `reach_of` gives what a node has to offer at most, None where it is gone.

    `version` rises with every refresh.
    """

    def __init__(self, nodes: Iterable[str], reach_of: Callable[[str], NodeReach | None]) -> None:
        self.stale: dict[str, None] = dict.fromkeys(nodes)
        self.node_ids: list[str] = []
        self.reaches: list[NodeReach | None] = []
        self.models: list[Gpu] = []
        self._reach_of = reach_of
        self._rows: dict[str, int] = {}
        self._free_rows: list[int] = []
        self._model_numbers: dict[tuple[object, ...], int] = {}
        self.version = 0
        self._mixed: set[int] = set()
        self._order: Rows | None = None
        self._lay_out(_PLACES, _ROWS)

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

    def of_cards(self, rows: Rows) -> Floats:
        """(features, places, rows): all of `Card` for some rows, in its order."""
        return self._values[len(Sorted) * 3 :, :, rows]

    def model(self) -> Rows:
        """(places, rows): which of `models` each card is; -1 where there is none."""
        return self._model[:, : len(self.node_ids)]

    def mixed(self) -> Rows:
        """The rows of nodes whose cards are not all of one model."""
        return np.array(sorted(self._mixed), dtype=np.intp)

    def changed_since(self, version: int) -> Rows:
        """The rows that have changed after a version."""
        return np.flatnonzero(self._changed_in[: len(self.node_ids)] > version)

    def by_id(self) -> Rows:
        """(rows,): the place of each node in the order of their ids."""
        if self._order is None:
            self._order = np.empty(len(self.node_ids), dtype=np.intp)
            self._order[np.argsort(np.array(self.node_ids), kind="stable")] = np.arange(len(self.node_ids))
        return self._order

    def refresh(self, but: Collection[str] = ()) -> None:
        """Bring the rows of the nodes that changed up to date, of some nodes later."""
        found = {node_id: self._reach_of(node_id) for node_id in self.stale if node_id not in but}
        if not found:
            return
        self.stale = {node_id: None for node_id in self.stale if node_id in but}
        rows = [self._row_of(node_id, gone=reach is None) for node_id, reach in found.items()]
        self._make_room(max(0 if reach is None else len(reach.cards) for reach in found.values()))
        self._note_figures(rows, list(found.values()))
        self.version += 1
        self._changed_in[rows] = self.version
        for first in range(0, len(rows), _AT_ONCE):
            some = rows[first : first + _AT_ONCE]
            known = self._figures[:, some].transpose(1, 0, 2)
            self._values[:, :, some] = _features(known).transpose(2, 1, 0)
        self._free_rows.extend(row for row, reach in zip(rows, found.values(), strict=True) if reach is None)

    def _row_of(self, node_id: str, *, gone: bool) -> int:
        """The node's row; a new one, or that of a node that is gone, where it has none yet."""
        row = self._rows.pop(node_id, None) if gone else self._rows.get(node_id)
        if row is None:
            if self._free_rows:
                row = self._free_rows.pop()
                self.node_ids[row] = node_id
            else:
                row = len(self.node_ids)
                self.node_ids.append(node_id)
                self.reaches.append(None)
            self._order = None
            if not gone:
                self._rows[node_id] = row
        return row

    def _note_figures(self, rows: Sequence[int], reaches: Sequence[NodeReach | None]) -> None:
        """Write down the cards that have changed."""
        places: list[int] = []
        rows_of: list[int] = []
        figures: list[tuple[float, ...]] = []
        for row, reach in zip(rows, reaches, strict=True):
            known = self.reaches[row]
            self.reaches[row] = reach
            before, after = _cards_of(known), _cards_of(reach)
            for place, (old, new) in enumerate(zip_longest(before, after)):
                if new is not old:
                    places.append(place)
                    rows_of.append(row)
                    figures.append(_NO_FIGURES if new is None else new.figures)
            if (
                known is None
                or reach is None
                or known.room.gpu_ids is not reach.room.gpu_ids
                or len(before) != len(after)
            ):
                self._note_hardware(row, [card.card.gpu for card in after])
        if places:
            flat = np.fromiter(chain.from_iterable(figures), np.float64, len(figures) * len(_NO_FIGURES))
            self._figures[np.array(places), np.array(rows_of)] = flat.reshape(-1, len(_NO_FIGURES))

    def _make_room(self, places: int) -> None:
        old_places, old_rows, _ = self._figures.shape
        if places <= old_places and len(self.node_ids) <= old_rows:
            return
        places = max(places, old_places)
        rows = old_rows if len(self.node_ids) <= old_rows else 2 * len(self.node_ids)
        before = self._figures, self._values, self._model, self._changed_in
        self._lay_out(places, rows)
        self._figures[:old_places, :old_rows], self._values[:, :old_places, :old_rows] = before[:2]
        self._model[:old_places, :old_rows], self._changed_in[:old_rows] = before[2:]

    def _lay_out(self, places: int, rows: int) -> None:
        self._figures = np.broadcast_to(np.array(_NO_FIGURES), (places, rows, len(_NO_FIGURES))).copy()
        none = _features(self._figures[:1, :1])[0, 0]
        self._values = np.broadcast_to(none[:, None, None], (none.size, places, rows)).copy()
        self._model = np.full((places, rows), _NO_MODEL, dtype=np.intp)
        self._changed_in = np.zeros(rows, dtype=np.intp)

    def _note_hardware(self, row: int, gpus: list[Gpu]) -> None:
        numbers = [self._model_number(gpu) for gpu in gpus]
        self._model[:, row] = numbers + [_NO_MODEL] * (self.places - len(gpus))
        if len(set(numbers)) > 1:
            self._mixed.add(row)
        else:
            self._mixed.discard(row)

    def _model_number(self, gpu: Gpu) -> int:
        model = (gpu.type_name, gpu.vram_mib, gpu.mig_profile)
        number = self._model_numbers.setdefault(model, len(self.models))
        if number == len(self.models):
            self.models.append(gpu)
        return number


def _cards_of(reach: NodeReach | None) -> tuple[CardReach, ...]:
    return () if reach is None else reach.cards


def _features(figures: Floats) -> Floats:
    """(nodes, places, features) of the (nodes, places, figures) of their cards."""
    nodes = np.arange(figures.shape[0])[:, None]
    features = []
    for kind in Sorted:
        smallest_first = np.lexsort((figures[:, :, kind + 2], figures[:, :, kind + 1], figures[:, :, kind]), axis=1)
        features.append(figures[nodes, smallest_first, kind : kind + 3])
    since, lost, weight, bend, gpus, grace, run = figures[:, :, len(Sorted) * 3 :].transpose(2, 0, 1)
    same = run[:, :, None] == run[:, None, :]
    first = (same.argmax(axis=2) == np.arange(run.shape[1])) & (run >= 0)
    of_card = (
        figures[:, :, Sorted.PLAIN],
        figures[:, :, Sorted.OVERRIDE],
        since,
        np.where(first, lost, _ENDLESS),
        weight,
        bend,
        gpus,
        grace,
        same.sum(axis=2),
    )
    return np.concatenate([*features, np.stack(of_card, axis=2)], axis=2)
