"""Replays arrival orders: each pod is placed or dropped as it arrives, and none leaves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Final

import numpy as np

from makeway_simulator.packing.fleet import Fleet, Floats, Ints, NodeSpec, PodShape
from makeway_simulator.packing.rivals import Placement

LOADS: Final = (80, 90, 95, 100, 110, 120, 130)
"""Arrived load, in per cent of the fleet's GPUs, at which allocation is told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """One arrival order: indices into the workload's pods sorted by name. `lot` seeds what is left to chance."""

    seed: int
    order: tuple[int, ...]
    lot: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Mean and population standard deviation over the seeds."""

    mean: float
    sd: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PackingResult:
    """Allocated per cent by arrived load (a load that no order reaches is left out), over all orders."""

    seeds: tuple[int, ...]
    allocated_percent: Mapping[int, Spread]
    pods: int
    dropped: float


class Packer:
    """One replay. Scores are kept by shape and brought up to date for the nodes that changed since."""

    def __init__(self, fleet: Fleet, placement: Placement) -> None:
        self._fleet = fleet
        self._placement = placement
        self._all: Ints = np.arange(len(fleet))
        self._changed: list[int] = []
        self._known: dict[PodShape, tuple[int, Floats]] = {}

    def place(self, shape: PodShape) -> bool:
        """Place one pod; False where it does not fit anywhere."""
        if self._placement.arrived(shape):
            self._known.clear()
        scores = self._scores(shape)
        fitting = np.flatnonzero(scores > -np.inf)
        if len(fitting) == 0:
            return False
        node = self._placement.choose(self._fleet, scores, fitting)
        self._fleet.put(node, shape, self._placement.cards(self._fleet, node, shape))
        self._placement.placed(node)
        self._changed.append(node)
        return True

    def _scores(self, shape: PodShape) -> Floats:
        seen, scores = self._known.get(shape) or self._unknown()
        stale = self._all if seen < 0 else np.unique(np.array(self._changed[seen:], dtype=np.int64))
        if len(stale):
            fits = self._fleet.fits(stale, shape)
            scores[stale[~fits]] = -np.inf
            fitting = stale[fits]
            if len(fitting):
                scores[fitting] = self._placement.scores(self._fleet, fitting, shape)
        self._known[shape] = (len(self._changed), scores)
        return scores

    def _unknown(self) -> tuple[int, Floats]:
        return -1, np.full(len(self._fleet), -np.inf)


def replay_orders(
    nodes: Sequence[NodeSpec],
    pods: Sequence[PodShape],
    orders: Sequence[Order],
    placement: Callable[[Fleet, Order], Placement],
    progress: Callable[[int], None] | None = None,
) -> PackingResult:
    """Replay each order on an empty fleet. `pods` are sorted by name; `progress` is told how many pods are done."""
    curves: list[Mapping[int, float]] = []
    dropped: list[int] = []
    done = 0
    for order in orders:
        fleet = Fleet(nodes)
        packer = Packer(fleet, placement(fleet, order))
        curve = _Curve(fleet.capacity_milli)
        for index in order.order:
            shape = pods[index]
            curve.add(shape.total_milli, packer.place(shape))
            done += 1
            if progress is not None and done % 500 == 0:
                progress(done)
        curves.append(curve.allocated())
        dropped.append(curve.dropped)
    return PackingResult(
        seeds=tuple(dict.fromkeys(order.seed for order in orders)),
        allocated_percent=_merge(curves),
        pods=done,
        dropped=fmean(dropped) if dropped else 0.0,
    )


class _Curve:
    """Allocation over arrived load, as the artifact tells it: the mean over all pods of a whole per cent of load."""

    def __init__(self, capacity_milli: int) -> None:
        self._capacity = capacity_milli
        self._arrived = 0
        self._allocated = 0
        self._bins: dict[int, list[float]] = {}
        self.dropped = 0

    def add(self, milli: int, placed: bool) -> None:
        self._arrived += milli
        self._allocated += milli if placed else 0
        self.dropped += 0 if placed else 1
        load = round(100 * self._arrived / self._capacity)
        self._bins.setdefault(load, []).append(round(100 * self._allocated / self._capacity, 2))

    def allocated(self) -> Mapping[int, float]:
        return {load: round(fmean(shares), 2) for load, shares in self._bins.items()}


def _merge(curves: Iterable[Mapping[int, float]]) -> Mapping[int, Spread]:
    found: dict[int, list[float]] = {}
    for curve in curves:
        for load in LOADS:
            near = [curve[each] for each in (load, load - 1, load + 1) if each in curve]
            if near:
                found.setdefault(load, []).append(near[0])
    return {load: Spread(mean=fmean(each), sd=pstdev(each)) for load, each in found.items()}
