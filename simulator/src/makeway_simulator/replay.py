"""Replays by name: from a trace file and a policy's name to figures that can be printed as JSON."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from makeway_simulator.errors import UnknownChoice
from makeway_simulator.outcome import summarise
from makeway_simulator.packing import study as packing_study
from makeway_simulator.readers.itp import read_itp
from makeway_simulator.readers.muri import read_muri
from makeway_simulator.readers.openb import read_nodes, read_orders, read_pods
from makeway_simulator.readers.table import Skipping
from makeway_simulator.rivals import study as rivals_study
from makeway_simulator.rivals.loop import Cost
from makeway_simulator.trace import Cluster, Trace

Progress = Callable[[int], None]


class TraceFormat(StrEnum):
    """What a trace file can be."""

    MURI = "muri"
    ITP = "itp"
    OPENB = "openb"


_READERS: Final[Mapping[TraceFormat, Callable[[Path, Skipping], Trace]]] = MappingProxyType(
    {TraceFormat.MURI: read_muri, TraceFormat.ITP: read_itp}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class GangSettings:
    """A replay of jobs that come and go."""

    trace: Path
    trace_format: TraceFormat
    nodes: str
    policy: str
    cost: Cost = Cost.RESUME
    skip_broken: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class PackingSettings:
    """A replay of pods that come and stay."""

    folder: Path
    workload: str
    policy: str
    seeds: int | None = None
    orders: Path | None = None
    skip_broken: bool = False


def is_packing(trace_format: TraceFormat) -> bool:
    """Whether the format is of pods that stay."""
    return trace_format is TraceFormat.OPENB


def replay_gangs(settings: GangSettings, progress: Progress | None = None) -> dict[str, Any]:
    """The figures of `outcome.Summary` with the settings that gave them. Raises SimulatorError."""
    cluster = Cluster.parse(settings.nodes)
    trace = read_trace(settings.trace, settings.trace_format, Skipping(allowed=settings.skip_broken))
    outcomes, refused = rivals_study.study(trace, cluster, settings.policy, settings.cost, progress)
    figures = asdict(summarise(outcomes, cluster.gpus, refused))
    return {
        "policy": settings.policy,
        "cost": settings.cost.value,
        "nodes": settings.nodes,
        **figures,
        "skipped_lines": trace.skipped,
    }


def read_trace(path: Path, trace_format: TraceFormat, skipping: Skipping) -> Trace:
    """Read a trace of jobs. Raises SimulatorError."""
    reader = _READERS.get(trace_format)
    if reader is None:
        raise UnknownChoice("reader of jobs for the format", trace_format.value, tuple(_READERS))
    return reader(path, skipping)


def replay_packing(settings: PackingSettings, progress: Progress | None = None) -> dict[str, Any]:
    """Allocated per cent by arrived load: mean and standard deviation over the orders. Raises SimulatorError."""
    skipping = Skipping(allowed=settings.skip_broken)
    nodes = read_nodes(settings.folder, skipping)
    pods = read_pods(settings.folder, settings.workload, skipping)
    orders = read_orders(settings.folder, settings.workload, len(pods), settings.orders)[: settings.seeds]
    result = packing_study.study(nodes, pods, orders, settings.policy, progress)
    return {
        "policy": settings.policy,
        "workload": settings.workload,
        "nodes": len(nodes),
        "gpus": sum(node.gpus for node in nodes),
        "pods": len(pods),
        "seeds": len(result.seeds),
        "allocated_percent": {
            str(load): {"mean": round(each.mean, 4), "sd": round(each.sd, 4)}
            for load, each in result.allocated_percent.items()
        },
        "dropped_pods_mean": result.dropped,
        "skipped_lines": skipping.skipped,
    }
