"""Placements that exist only to be compared with: random, dot product, clustering, packing, best fit, FGD, first fit.

Scores follow the artifact of "Beware of Fragmentation" (USENIX ATC'23): whole numbers, higher is better; dot product is
Tetris (SIGCOMM'14), clustering Gandiva's affinity (OSDI'18). The artifact is a kube-scheduler whose filter workers
race, so of equal nodes the first of a list wins that is not quite in the order of names; `Fleet.listed` is that list
without the race. Which policy breaks ties by it and which by name was chosen to come closest to the published table
(docs/simulator.md has the figures of both): with names packing and clustering come out up to 1.3 points lower.
"""

from collections.abc import Sequence
from random import Random
from typing import Final, Protocol

import numpy as np

from makeway_simulator.packing.demand import Fragmentation, Options
from makeway_simulator.packing.fleet import MILLI, Fleet, Floats, Ints, PodShape, tightest_cards

_CPU_MOST: Final = 128_000
_GPU_MOST: Final = 8_000


class Placement(Protocol):
    """Scores nodes for a pod, and chooses GPUs on the node that won. A score may depend only on the node itself."""

    def scores(self, fleet: Fleet, nodes: Ints, shape: PodShape) -> Floats:
        """A score for each of `nodes`, on all of which the pod fits; the highest wins."""
        ...

    def choose(self, fleet: Fleet, scores: Floats, fitting: Ints) -> int:
        """The winner among `fitting`, given the scores of all nodes."""
        ...

    def cards(self, fleet: Fleet, node: int, shape: PodShape) -> Sequence[int]:
        """The GPUs that the pod gets."""
        ...

    def arrived(self, shape: PodShape) -> bool:
        """Takes note of an arrival; True where that changes the scores given so far."""
        ...

    def placed(self, node: int) -> None:
        """Takes note of a node that holds a pod more."""
        ...


class Scored:
    """The common part: the highest score, then the place in the list; the tightest GPUs."""

    def choose(self, fleet: Fleet, scores: Floats, fitting: Ints) -> int:
        """Of the nodes with the highest score the one listed first."""
        best = fitting[scores[fitting] == scores[fitting].max()]
        return int(best[np.argmin(fleet.listed[best])])

    def cards(self, fleet: Fleet, node: int, shape: PodShape) -> Sequence[int]:
        """The tightest GPUs."""
        return tightest_cards(fleet.free[node], shape)

    def arrived(self, shape: PodShape) -> bool:
        """Nothing changes."""
        return False

    def placed(self, node: int) -> None:
        """Nothing to note."""


class FirstFit(Scored):
    """The node with the smallest name."""

    def scores(self, fleet: Fleet, nodes: Ints, shape: PodShape) -> Floats:
        """All the same."""
        return np.zeros(len(nodes))

    def choose(self, fleet: Fleet, scores: Floats, fitting: Ints) -> int:
        """The first by name."""
        return int(fitting[0])


class RandomFit(FirstFit):
    """Any node on which the pod fits, any GPU that suffices."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def choose(self, fleet: Fleet, scores: Floats, fitting: Ints) -> int:
        """A node by lot."""
        return int(fitting[self._random.randrange(len(fitting))])

    def cards(self, fleet: Fleet, node: int, shape: PodShape) -> Sequence[int]:
        """A GPU by lot for a share; the first free ones for whole GPUs."""
        if not shape.shares:
            return tightest_cards(fleet.free[node], shape)
        able = np.flatnonzero(fleet.free[node] >= max(1, shape.gpu_milli))
        return [int(able[self._random.randrange(len(able))])]


class BestFit(Scored):
    """Least CPU and GPU left over, weighed half and half."""

    def scores(self, fleet: Fleet, nodes: Ints, shape: PodShape) -> Floats:
        """100 minus the part of the largest node that is left over."""
        cpu = (fleet.cpu[nodes] - shape.cpu_milli) / _CPU_MOST * 0.5
        gpu = (fleet.total[nodes] - shape.total_milli) / _GPU_MOST * 0.5
        return np.trunc((1.0 - (cpu + gpu)) * 100)


class DotProduct(Scored):
    """Smallest dot product of what is left and what is asked for; of equal nodes the first by name."""

    def choose(self, fleet: Fleet, scores: Floats, fitting: Ints) -> int:
        """The highest score, then the smallest name."""
        return int(fitting[np.argmax(scores[fitting])])

    def scores(self, fleet: Fleet, nodes: Ints, shape: PodShape) -> Floats:
        """100 minus the mean of the products, each of its part of the largest node."""
        cpu = (fleet.cpu[nodes] / _CPU_MOST) * (shape.cpu_milli / _CPU_MOST)
        gpu = (fleet.total[nodes] / _GPU_MOST) * (shape.total_milli / _GPU_MOST)
        return np.trunc(100.0 * (1 - (cpu + gpu) / 2))


class Clustering(Scored):
    """Pods of one kind together: shares with shares, n whole GPUs with n whole GPUs."""

    def scores(self, fleet: Fleet, nodes: Ints, shape: PodShape) -> Floats:
        """Bands of 25: same kind only, same kind among others, empty, other kinds; fuller nodes higher in a band."""
        if shape.gpus == 0:
            return np.zeros(len(nodes))
        kinds = (fleet.shares[nodes] > 0).astype(np.int64) + (fleet.whole[nodes] > 0).sum(axis=1)
        same = fleet.shares[nodes] > 0 if shape.shares else fleet.whole[nodes, shape.gpus] > 0
        band = np.where(same, np.where(kinds == 1, 75, 50), np.where(kinds == 0, 25, 0))
        return (25 * (_GPU_MOST - fleet.total[nodes]) // _GPU_MOST + band).astype(np.float64)


class Packing(Scored):
    """Shared GPUs first, then free GPUs of nodes in use, then free nodes."""

    def scores(self, fleet: Fleet, nodes: Ints, shape: PodShape) -> Floats:
        """Above 50 on shared GPUs, 33 to 50 on free GPUs of a node in use, up to 33 on a free node."""
        if shape.gpu_milli <= 0 or shape.gpus == 0:
            return np.zeros(len(nodes))
        free = fleet.free[nodes]
        idle = (free == MILLI).sum(axis=1)
        able = np.sort(np.where(free >= shape.gpu_milli, free, MILLI + 1), axis=1)[:, : shape.gpus]
        fresh = (able == MILLI).sum(axis=1)
        left = (able * 100 // MILLI).sum(axis=1)
        on_shared = np.maximum(100 - left // 10, 50)
        on_used = np.maximum(50 - fresh, 33)
        on_idle = np.maximum(33 - idle, idle)
        scores: Floats = np.where(idle == fleet.gpus[nodes], on_idle, np.where(fresh > 0, on_used, on_shared)).astype(
            np.float64
        )
        return scores


class FragmentationGradientDescent(Scored):
    """FGD: the node whose fragmentation grows least, over the typical pods of the whole workload."""

    def __init__(self, fragmentation: Fragmentation) -> None:
        self._fragmentation = fragmentation

    def scores(self, fleet: Fleet, nodes: Ints, shape: PodShape) -> Floats:
        """The sigmoid of the fragmentation's decrease in GPUs, in whole hundredths."""
        options = self._fragmentation.options(nodes, shape)
        best: Floats = np.full(len(fleet), -np.inf)
        np.maximum.at(best, options.nodes, _sigmoid_score(options))
        chosen: Floats = best[nodes]
        return chosen

    def cards(self, fleet: Fleet, node: int, shape: PodShape) -> Sequence[int]:
        """The GPU with the best score for a share, the first of equals."""
        if not shape.shares:
            return tightest_cards(fleet.free[node], shape)
        options = self._fragmentation.options(np.array([node]), shape)
        return [int(options.cards[_sigmoid_score(options).argmax()])]

    def placed(self, node: int) -> None:
        """The node's sums are taken anew."""
        self._fragmentation.changed(np.array([node]))


def _sigmoid_score(options: Options) -> Floats:
    # Rounded first: what is equal but for the order of a sum must stay equal.
    return np.trunc(100 / (1 + np.exp(np.round(options.after - options.before, 6) / MILLI)))
