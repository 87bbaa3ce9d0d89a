"""The nodes of a scenario in full."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from makeway_simulator.scenario.document import ClusterEntry, NodeEntry

_TYPE: Final = "gpu-x"
_VRAM_MIB: Final = 81_920


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseNode:
    """A node: `vram_mib` is that of a card, `slices` how each of its `gpus` cards is cut (None: it is whole).

    NVLink joins each `linked` cards in a row (None: none are joined).
    """

    name: str
    gpus: int
    type_name: str
    vram_mib: int
    shared: bool = True
    slices: Mapping[str, int] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    cpus: float = 0.0
    memory_mib: int = 0
    start_seconds: float = 0.0
    linked: int | None = None

    @property
    def cards(self) -> int:
        """Its cards and their slices."""
        return self.gpus * (1 + sum((self.slices or {}).values()))


def nodes_of(cluster: ClusterEntry) -> Iterator[CaseNode]:
    """The nodes in full."""
    common = cluster.model_dump(exclude_unset=True, exclude={"nodes", "gpus_each", "node_timeout"})
    for node in cluster.nodes:
        given = {"name": node} if isinstance(node, str) else node.model_dump(exclude_unset=True)
        yield _node({"gpus": cluster.gpus_each, **common, **given})


def node_of(entry: NodeEntry) -> CaseNode:
    """A node that joins."""
    return _node({"gpus": 1, **entry.model_dump(exclude_unset=True)})


def _node(given: Mapping[str, Any]) -> CaseNode:
    vram = given.get("vram_mib") or (round(given["vram"] * 1024) if given.get("vram") else None)
    return CaseNode(
        name=given["name"],
        gpus=given["gpus"],
        type_name=given.get("type") or _TYPE,
        vram_mib=vram or _VRAM_MIB,
        shared=given.get("sharing") is not False,
        slices=given.get("slices"),
        labels=given.get("labels", {}),
        cpus=given.get("cpus") or 0.0,
        memory_mib=round((given.get("memory") or 0.0) * 1024),
        start_seconds=given.get("start_delay") or 0.0,
        linked=given.get("linked"),
    )
