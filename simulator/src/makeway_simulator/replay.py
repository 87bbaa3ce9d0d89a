"""Replays by name: from a trace file and a policy's name to figures that can be printed as JSON."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from makeway_policy.rules import Policy

from makeway_simulator import report
from makeway_simulator.engine import Engine
from makeway_simulator.errors import TraceError, UnknownChoice
from makeway_simulator.outcome import EndKind, summarise, waits_by_class
from makeway_simulator.packing import study as packing_study
from makeway_simulator.physics import Physics
from makeway_simulator.readers import openb
from makeway_simulator.readers.event_log import read_event_log
from makeway_simulator.readers.itp import read_itp
from makeway_simulator.readers.muri import read_muri
from makeway_simulator.readers.openb import read_nodes, read_orders, read_pods
from makeway_simulator.readers.sacct import read_sacct
from makeway_simulator.readers.swf import read_swf
from makeway_simulator.readers.table import Skipping
from makeway_simulator.record import Record
from makeway_simulator.rivals import study as rivals_study
from makeway_simulator.rivals.loop import Charge, Cost
from makeway_simulator.setting import Setting
from makeway_simulator.trace import Cluster, Trace

NODES: Final = "8x8"
"""The cluster where neither the caller nor the trace names one."""

Progress = Callable[[int, int], None]
"""Is told how much is done, of how much."""


class TraceFormat(StrEnum):
    """What a trace file can be."""

    EVENTS = "events"
    MURI = "muri"
    ITP = "itp"
    SWF = "swf"
    SACCT = "sacct"
    OPENB = "openb"


_READERS: Final[Mapping[TraceFormat, Callable[[Path, Skipping], Trace]]] = MappingProxyType(
    {
        TraceFormat.EVENTS: read_event_log,
        TraceFormat.MURI: read_muri,
        TraceFormat.ITP: read_itp,
        TraceFormat.SWF: read_swf,
        TraceFormat.SACCT: read_sacct,
    }
)


@dataclass(frozen=True, slots=True)
class GangSettings:
    """A replay of jobs that come and go, under a rival by name or under `rules`, which `policy` then only names.

    Without `nodes` the cluster is the trace's own, or `NODES` where it names none.
    """

    trace: Path
    trace_format: TraceFormat
    nodes: str | None
    policy: str
    rules: Policy | None = None
    cost: Cost = Cost.RESUME
    physics: Physics = field(default_factory=Physics)
    skip_broken: bool = False


@dataclass(frozen=True, slots=True)
class PackingSettings:
    """A replay of pods that come and stay."""

    folder: Path
    workload: str
    policy: str
    seeds: int | None = None
    orders: Path | None = None
    skip_broken: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """What one replay of a trace came to. `figures` can be printed as JSON; with jobs that end there is a `record`."""

    trace: str
    figures: dict[str, Any]
    record: Record | None = None


def is_packing(trace_format: TraceFormat) -> bool:
    """Whether the format is of pods that stay."""
    return trace_format is TraceFormat.OPENB


def replay_gangs(settings: GangSettings, progress: Progress | None = None) -> Replay:
    """The figures of `outcome.Summary` with the settings that gave them. Raises SimulatorError."""
    trace = read_trace(settings.trace, settings.trace_format, Skipping(allowed=settings.skip_broken))
    cluster = trace.cluster_of(settings.nodes, NODES)
    told = _of(progress, len(trace.jobs))
    if settings.policy in rivals_study.RIVALS:
        record = rivals_study.study(trace, cluster, settings.policy, _charge(settings), told)
    else:
        record = record_of(trace, cluster, settings, told)
    finished = [outcome for outcome in record.outcomes if outcome.kind is EndKind.FINISHED]
    figures = {
        "policy": settings.policy,
        "cost": settings.cost.value,
        "nodes": str(cluster),
        **asdict(summarise(finished, cluster.gpus, record.refused)),
        "waits": waits_by_class(record.outcomes),
        "ended": {kind.value: count for kind, count in sorted(record.ended.items())}
        | {"unfinished": record.unfinished},
        "skipped_lines": trace.skipped,
    }
    return Replay(trace=settings.trace.name, figures=figures, record=record)


def _charge(settings: GangSettings) -> Charge:
    return Charge(cost=settings.cost, restart_seconds=settings.physics.restore_seconds)


def record_of(
    trace: Trace, cluster: Cluster, settings: GangSettings, progress: Callable[[int], None] | None = None
) -> Record:
    """Run makeway's own policy on a trace. Raises SimulatorError."""
    if settings.rules is None:
        raise UnknownChoice("rival policy", settings.policy, tuple(rivals_study.RIVALS))
    setting = Setting(cluster=cluster, policy=settings.rules, physics=settings.physics, cost=settings.cost)
    return Engine(trace.jobs, setting).run(progress)


def rivals() -> tuple[str, ...]:
    """The policies that exist only to be compared with."""
    return tuple(rivals_study.RIVALS)


def is_rival(name: str) -> bool:
    """Whether the name is of a policy that exists only to be compared with."""
    return name in rivals_study.RIVALS


def files_of(path: Path, trace_format: TraceFormat) -> tuple[Path, ...]:
    """The files that a trace may be read from: `path` itself, or those of a folder."""
    return openb.files_of(path) if trace_format is TraceFormat.OPENB else (path,)


def read_trace(path: Path, trace_format: TraceFormat, skipping: Skipping) -> Trace:
    """Read a trace of jobs, of which there is at least one. Raises SimulatorError."""
    reader = _READERS.get(trace_format)
    if reader is None:
        raise UnknownChoice("reader of jobs for the format", trace_format.value, tuple(_READERS))
    trace = reader(path, skipping)
    if not trace.jobs:
        skipped = f"; lines skipped as broken: {trace.skipped}" if trace.skipped else ""
        raise TraceError(str(path), 0, 0, f"has no job to replay, read as {trace_format}{skipped}")
    return trace


def replay_packing(settings: PackingSettings, progress: Progress | None = None) -> Replay:
    """Allocated per cent by arrived load: mean and standard deviation over the orders. Raises SimulatorError."""
    skipping = Skipping(allowed=settings.skip_broken)
    nodes = read_nodes(settings.folder, skipping)
    pods = read_pods(settings.folder, settings.workload, skipping)
    if not nodes or not pods:
        raise TraceError(str(settings.folder), 0, 0, f"has no {'pod' if nodes else 'node'} to replay")
    orders = read_orders(settings.folder, settings.workload, len(pods), settings.orders)[: settings.seeds]
    arrivals = sum(len(order.order) for order in orders)
    result = packing_study.study(nodes, pods, orders, settings.policy, _of(progress, arrivals))
    figures = {
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
    return Replay(trace=f"openb {settings.workload}", figures=figures)


def page_of(found: Sequence[Replay]) -> str:
    """One page for all replays."""
    traces = ", ".join(dict.fromkeys(each.trace for each in found))
    shown = [report.Shown(name=each.figures["policy"], figures=each.figures, record=each.record) for each in found]
    return report.replays_page(f"Replay of {traces}", shown)


def _of(progress: Progress | None, total: int) -> Callable[[int], None] | None:
    return None if progress is None else lambda done: progress(done, total)
