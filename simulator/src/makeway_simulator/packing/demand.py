"""What is asked for, and how much of a node's idle GPU that demand cannot use (its fragmentation)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from makeway_simulator.packing.fleet import MILLI, Bools, Fleet, Floats, Ints, PodShape, Shorts


@dataclass(frozen=True, kw_only=True, slots=True)
class Weighted:
    """A shape with its part of the demand (all parts sum to 1)."""

    shape: PodShape
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Ways to place one pod: fragmentation in milli-GPU of node `nodes[i]` before and after it takes `cards[i]`.

    A share has one option for each different GPU of a node; everything else has one a node (`cards` holds -1).
    """

    nodes: Ints
    cards: Ints
    before: Floats
    after: Floats


def typical(shapes: Iterable[PodShape], coverage: float = 0.95) -> tuple[Weighted, ...]:
    """The most popular shapes (memory aside) that cover the given part of the pods, weights renormalised.

    Equally popular ones: larger requests first, as in the artifact of the paper.
    """
    counts = Counter(replace(shape, memory_mib=0) for shape in shapes)
    total = sum(counts.values())
    chosen: list[tuple[PodShape, int]] = []
    covered = 0
    for shape, count in sorted(counts.items(), key=lambda item: (item[1], _size(item[0])), reverse=True):
        if covered >= coverage * total:
            break
        chosen.append((shape, count))
        covered += count
    return tuple(Weighted(shape=shape, weight=count / covered) for shape, count in chosen)


def _size(shape: PodShape) -> tuple[int, int, int, str]:
    return (shape.cpu_milli, shape.gpu_milli, shape.gpus, "|".join(sorted(shape.models)))


class Fragmentation:
    """How fragmented each node of a fleet is under a demand, and would be with a pod more.

    Over the shapes of the demand: weight x what the shape cannot use of the node's idle GPU, which is all of it where
    CPU, model or GPUs do not suffice (and for shapes without GPUs), else that of GPUs with less than it needs.
    Sums over a node's GPUs are kept; `changed` must be told of every node whose GPUs changed. A sum over the shapes
    depends on its order: what is compared must be rounded first.
    """

    def __init__(self, fleet: Fleet, weighted: Sequence[Weighted]) -> None:
        self._fleet = fleet
        self._weight = sum(each.weight for each in weighted)
        using = [each for each in weighted if each.shape.gpus]
        self._using: Floats = np.array([each.weight for each in using], dtype=np.float64)
        self._cpu: Ints = np.array([each.shape.cpu_milli for each in using], dtype=np.int64)
        self._count: Shorts = np.array([each.shape.gpus for each in using], dtype=np.int16)
        admits = [[each.shape.admits(model) for each in using] for model in fleet.models]
        self._admits: Bools = np.array(admits, dtype=np.bool_).reshape(len(fleet.models), len(using))
        levels = np.arange(MILLI + 1)
        self._serves: Shorts = (levels[:, None] >= [max(1, each.shape.gpu_milli) for each in using]).astype(np.int16)
        self._usable: Shorts = self._usable_of(levels, [max(1, each.shape.gpu_milli) for each in using])
        self._served: Shorts = np.zeros((len(fleet), len(using)), dtype=np.int16)
        self._used: Shorts = np.zeros((len(fleet), len(using)), dtype=np.int16)
        self._before: Floats = np.zeros(len(fleet))
        self.changed(np.arange(len(fleet)))

    def changed(self, nodes: Ints) -> None:
        """Bring the sums of the nodes up to date."""
        free = self._fleet.free[nodes]
        self._served[nodes] = self._serves[free].sum(axis=1)
        self._used[nodes] = self._usable[free].sum(axis=1)
        self._before[nodes] = self._amount(
            nodes, self._fleet.cpu[nodes], self._fleet.total[nodes], self._served[nodes], self._used[nodes]
        )

    def options(self, nodes: Ints, shape: PodShape) -> Options:
        """The ways to place the pod on `nodes`, on all of which it fits, by node and GPU."""
        if shape.shares and shape.gpu_milli:
            return self._share(nodes, shape)
        free = self._fleet.free[nodes]
        served, used = self._served[nodes], self._used[nodes]
        if shape.gpus:
            order = np.argsort(np.where(free >= shape.gpu_milli, free, MILLI + 1), axis=1, kind="stable")
            taken = np.take_along_axis(free, order[:, : shape.gpus], axis=1)
            left = taken - shape.gpu_milli
            served = served + (self._serves[left] - self._serves[taken]).sum(axis=1)
            used = used + (self._usable[left] - self._usable[taken]).sum(axis=1)
        after = self._after(nodes, shape, served, used)
        return Options(nodes=nodes, cards=np.full(len(nodes), -1), before=self._before[nodes], after=after)

    def _share(self, nodes: Ints, shape: PodShape) -> Options:
        free = self._fleet.free[nodes]
        fits = free >= shape.gpu_milli
        for card in range(1, free.shape[1]):
            fits[:, card] &= (free[:, :card] != free[:, card : card + 1]).all(axis=1)
        rows, cards = np.nonzero(fits)
        where = nodes[rows]
        taken = free[rows, cards]
        left = taken - shape.gpu_milli
        served = self._served[where] + (self._serves[left] - self._serves[taken])
        used = self._used[where] + (self._usable[left] - self._usable[taken])
        after = self._after(where, shape, served, used)
        return Options(nodes=where, cards=cards, before=self._before[where], after=after)

    def _after(self, nodes: Ints, shape: PodShape, served: Shorts, used: Shorts) -> Floats:
        cpu = self._fleet.cpu[nodes] - shape.cpu_milli
        return self._amount(nodes, cpu, self._fleet.total[nodes] - shape.total_milli, served, used)

    def _usable_of(self, levels: Ints, milli: Sequence[int]) -> Shorts:
        """What shapes with so much a GPU can use of a GPU, by what is left of it: all, if it suffices."""
        usable: Shorts = (levels[:, None] * self._serves).astype(np.int16)
        return usable

    def _amount(self, nodes: Ints, cpu: Ints, total: Ints, served: Shorts, used: Shorts) -> Floats:
        able = (cpu[:, None] >= self._cpu) & (served >= self._count) & self._admits[self._fleet.model[nodes]]
        amount: Floats = total * self._weight - (able * used) @ self._using
        return amount


class FilledFragmentation(Fragmentation):
    """Fragmentation as makeway's `frag` has it (`makeway_policy.fragmentation`): the mean of two readings.

    Of a GPU a shape can use whole multiples only. The first reading asks whether one job of the shape fits; the second
    fills the node with such jobs, as far as its GPUs and its CPU suffice.
    """

    def __init__(self, fleet: Fleet, weighted: Sequence[Weighted]) -> None:
        using = [each.shape for each in weighted if each.shape.gpus]
        self._per_job: Floats = np.array([shape.total_milli for shape in using], dtype=np.float64)
        self._cpu_per_job: Floats = np.array([shape.cpu_milli or np.nan for shape in using], dtype=np.float64)
        super().__init__(fleet, weighted)

    def _usable_of(self, levels: Ints, milli: Sequence[int]) -> Shorts:
        per_gpu = np.array(milli, dtype=np.int64).reshape(1, len(milli))
        multiples: Shorts = (levels[:, None] // per_gpu * per_gpu).astype(np.int16)
        return multiples

    def _amount(self, nodes: Ints, cpu: Ints, total: Ints, served: Shorts, used: Shorts) -> Floats:
        single = super()._amount(nodes, cpu, total, served, used)
        by_gpu = np.where(self._count > 1, served // np.maximum(1, self._count) * self._per_job, used)
        # Shapes that ask for no CPU (NaN) are bounded by GPUs alone, also on a node whose CPUs are all in use.
        jobs = np.nan_to_num(np.maximum(cpu, 0)[:, None] // self._cpu_per_job, nan=np.inf)
        by_cpu = jobs * self._per_job
        admits = self._admits[self._fleet.model[nodes]]
        full: Floats = total * self._weight - (admits * np.minimum(by_gpu, by_cpu)) @ self._using
        return (single + full) / 2
