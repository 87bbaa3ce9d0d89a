"""The nodes of a packing replay as arrays, and the pods that are put on them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

MILLI: Final = 1000
"""Thousandths of a GPU in a GPU."""

_WORKERS: Final = 16

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Shorts = npt.NDArray[np.int16]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSpec:
    """A node of the trace."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PodShape:
    """What a pod asks for: `gpu_milli` on each of `gpus` distinct GPUs of one of `models` (empty: any)."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: frozenset[str] = field(default_factory=frozenset)

    @property
    def total_milli(self) -> int:
        """Thousandths of a GPU over all its GPUs."""
        return self.gpus * self.gpu_milli

    @property
    def shares(self) -> bool:
        """Whether it asks for a part of one GPU."""
        return self.gpus == 1 and self.gpu_milli < MILLI

    def admits(self, model: str) -> bool:
        """Whether GPUs of the model may serve it."""
        return not self.models or model in self.models


class Fleet:
    """What is left of each node, in order of node name, so that the first best is the one with the smallest name.

    `cpu`, `memory` and `total` (milli-GPU left) have one entry a node, `free` (milli-GPU left) one row a node and one
    column a GPU; columns that a node does not have hold 0. `model` indexes `models`. `shares` counts the pods on each
    node that share a GPU, `whole` those of n whole GPUs in column n. `listed` is each node's place in the list that
    kube-scheduler's filter makes.
    """

    def __init__(self, nodes: Sequence[NodeSpec]) -> None:
        ordered = sorted(nodes, key=lambda node: node.name)
        widest = max((node.gpus for node in ordered), default=0)
        self.names = tuple(node.name for node in ordered)
        self.models = tuple(sorted({node.model for node in ordered}))
        self.model: Ints = np.array([self.models.index(node.model) for node in ordered], dtype=np.int64)
        self.cpu: Ints = np.array([node.cpu_milli for node in ordered], dtype=np.int64)
        self.memory: Ints = np.array([node.memory_mib for node in ordered], dtype=np.int64)
        self.gpus: Ints = np.array([node.gpus for node in ordered], dtype=np.int64)
        self.free: Ints = np.where(np.arange(widest) < self.gpus[:, None], MILLI, 0).astype(np.int64)
        self.total: Ints = self.free.sum(axis=1)
        self.shares: Ints = np.zeros(len(ordered), dtype=np.int64)
        self.whole: Ints = np.zeros((len(ordered), widest + 1), dtype=np.int64)
        self.capacity_milli = int(self.total.sum())
        self.listed: Ints = _listed(len(ordered))

    def __len__(self) -> int:
        return len(self.names)

    def fits(self, nodes: Ints, shape: PodShape) -> Bools:
        """For each of `nodes`, whether the pod fits: CPU, memory, model and enough GPUs with `gpu_milli` free."""
        fits: Bools = (self.cpu[nodes] >= shape.cpu_milli) & (self.memory[nodes] >= shape.memory_mib)
        if shape.gpus == 0:
            return fits
        if shape.models:
            admitted = np.array([shape.admits(model) for model in self.models], dtype=np.bool_)
            fits &= admitted[self.model[nodes]]
        least = max(1, shape.gpu_milli)
        fits &= (self.free[nodes] >= least).sum(axis=1) >= shape.gpus
        return fits

    def put(self, node: int, shape: PodShape, cards: Sequence[int]) -> None:
        """Place the pod on the given GPUs of the node."""
        self.cpu[node] -= shape.cpu_milli
        self.memory[node] -= shape.memory_mib
        for card in cards:
            self.free[node, card] -= shape.gpu_milli
        self.total[node] -= shape.total_milli
        if shape.shares:
            self.shares[node] += 1
        elif shape.gpus:
            self.whole[node, shape.gpus] += 1


def _listed(nodes: int) -> Ints:
    """kube-scheduler's 16 filter workers take chunks of sqrt(n) nodes, side by side, and list what fits as they go."""
    chunk = max(1, min(math.isqrt(nodes), nodes // _WORKERS + 1))
    order = sorted(range(nodes), key=lambda at: (at // chunk // _WORKERS, at % chunk, at // chunk % _WORKERS))
    places: Ints = np.empty(nodes, dtype=np.int64)
    places[order] = np.arange(nodes)
    return places


def tightest_cards(free: Ints, shape: PodShape) -> list[int]:
    """The GPUs of one node with least left that still suffice, the first of equals; `free` is the node's row."""
    able = [card for card in range(len(free)) if free[card] >= max(1, shape.gpu_milli)]
    return sorted(able, key=lambda card: (int(free[card]), card))[: shape.gpus]
