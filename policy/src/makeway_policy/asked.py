"""From a job's specification, whatever model it comes in, to the shape that is judged.

Here because this is the one room that everybody who decides stands on; the policy knows no model of a specification, so
it says what it reads of one.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from makeway_policy.model import Shape, Topology

Pairs = tuple[tuple[str, str], ...]


class Where(Protocol):
    """Where a job may run, and where it would rather."""

    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def nodes(self) -> Iterable[str]: ...
    @property
    def exclude_nodes(self) -> Iterable[str]: ...
    @property
    def affinity(self) -> Mapping[str, str]: ...
    @property
    def anti_affinity(self) -> Mapping[str, str]: ...


class Asked(Protocol):
    """What a job asks for. `memory` is MiB; None leaves it to the policy."""

    @property
    def gpus(self) -> int: ...
    @property
    def gpus_max(self) -> int | None: ...
    @property
    def gpu_type(self) -> str | None: ...
    @property
    def min_vram_mib(self) -> int | None: ...
    @property
    def vram_mib(self) -> int | None: ...
    @property
    def shares(self) -> int | None: ...
    @property
    def mig(self) -> str | None: ...
    @property
    def cpus(self) -> float | None: ...
    @property
    def memory(self) -> int | None: ...
    @property
    def topology(self) -> str: ...
    @property
    def constraints(self) -> Where: ...


def shape_of(asked: Asked, *, members: int = 1, distinct_nodes: bool = False) -> Shape:
    """What a job asks for. Equal specifications give equal shapes, so that identical jobs are judged once."""
    where = asked.constraints
    return Shape(
        gpus=asked.gpus,
        gpus_max=asked.gpus_max,
        gpu_type=asked.gpu_type,
        min_vram_mib=asked.min_vram_mib or 0,
        vram_mib=asked.vram_mib,
        shares=asked.shares,
        mig=asked.mig,
        cpus=asked.cpus,
        memory_mib=asked.memory,
        members=members,
        distinct_nodes=distinct_nodes,
        topology=Topology(asked.topology),
        labels=pairs(where.labels),
        nodes=frozenset(where.nodes),
        exclude_nodes=frozenset(where.exclude_nodes),
        affinity=pairs(where.affinity),
        anti_affinity=pairs(where.anti_affinity),
    )


def pairs(labels: Mapping[str, str]) -> Pairs:
    """Labels as a value that can be compared, in order."""
    return tuple(sorted(labels.items()))
