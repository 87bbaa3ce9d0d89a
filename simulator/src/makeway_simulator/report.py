"""One self-contained HTML page of a replay: inline SVG, no network, every text escaped.

Several replays stand side by side in one table of figures; then for each: who ran where, with preemptions marked,
queue, GPUs and preemptions over time, waits per class, GPU-seconds lost. Long replays are drawn from their largest
runs, and the page says so.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from makeway_simulator import pictures
from makeway_simulator.page import page
from makeway_simulator.pictures import span, text
from makeway_simulator.record import Record

_MOST_SEGMENTS: Final = 6000
_WORDS: Final = {
    "jobs": "jobs that finished",
    "average_jct_seconds": "average completion time",
    "p99_jct_seconds": "99th percentile of it",
    "makespan_seconds": "first submission to last end",
    "preemptions": "preemptions",
    "gpu_utilisation": "GPU-seconds that jobs held",
    "gpu_goodput": "GPU-seconds that brought jobs on",
    "average_wait_seconds": "average wait for the first start",
    "p95_wait_seconds": "95th percentile of it",
    "lost_gpu_seconds": "GPU-seconds lost",
    "refused": "jobs that could never fit",
    "skipped_lines": "lines skipped",
    "gpus": "GPUs",
    "dropped_pods_mean": "pods dropped, mean",
}
_PARTS: Final = frozenset({"gpu_utilisation", "gpu_goodput"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A part of the page: `body` is HTML already, `title` and `note` are plain text."""

    title: str
    body: str
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """One replay on the page: a short `name`, its figures, and what it left behind, where jobs ran and ended."""

    name: str
    figures: Mapping[str, Any]
    record: Record | None = None


def replays_page(title: str, replays: Sequence[Shown]) -> str:
    """The page of one replay or several of the same trace."""
    sections = [Section(title="Figures", body=figures_table(replays))]
    shares = {each.name: each.figures["allocated_percent"] for each in replays if "allocated_percent" in each.figures}
    if shares:
        body = shares_table(shares) + pictures.shares(shares)
        note = "Mean of the orders, ± one standard deviation."
        sections.append(Section(title="Allocated GPU % by arrived load", body=body, note=note))
    for each in replays:
        sections += _sections(each)
    return page(title, ((each.title, each.body, each.note) for each in sections))


def _sections(shown: Shown) -> list[Section]:
    name, record = shown.name, shown.record
    if record is None:
        return []
    end = max((segment.ended_at for segment in record.segments), default=1.0) or 1.0
    drawn = pictures.largest(record.segments, _MOST_SEGMENTS)
    fewer = len(record.segments) - len(drawn)
    note = f"The {fewer:,} shortest of {len(record.segments):,} runs are not drawn. " if fewer else ""
    return [
        Section(
            title=f"{name}: who ran where",
            body=pictures.timeline(drawn, record, end),
            note=f"{note}A row a GPU; a red edge is a preemption, a grey start is start-up or restore. Point at a bar.",
        ),
        Section(title=f"{name}: jobs that wait", body=pictures.steps(record.moments, end, "waiting")),
        Section(
            title=f"{name}: GPUs in use", body=pictures.steps(record.moments, end, "busy_gpus", record.cluster.gpus)
        ),
        Section(title=f"{name}: runs preempted", body=pictures.preempted_runs(record.segments, end)),
        Section(
            title=f"{name}: waits per class",
            body=waits_table(shown.figures.get("waits", {})) + pictures.waits(record.outcomes),
            note="Part of the jobs whose first start took at most so long; the dot is the 95th percentile.",
        ),
        Section(title=f"{name}: GPU-seconds", body=pictures.spent(record.outcomes), note="Red: held, but lost."),
    ]


def figures_table(replays: Sequence[Shown]) -> str:
    """Every plain figure, a column a replay."""
    head = "".join(f"<td>{text(each.name)}</td>" for each in replays)
    names = [name for name, value in replays[0].figures.items() if isinstance(value, (int, float, str))]
    rows = [
        f"<tr><th>{text(_WORDS.get(name, name.replace('_', ' ')))}</th>"
        + "".join(f"<td>{text(_figure(name, each.figures.get(name, '-')))}</td>" for each in replays)
        + "</tr>"
        for name in names
        if name != "policy"
    ]
    return f"<table><tr><th></th>{head}</tr>{''.join(rows)}</table>"


def _figure(name: str, value: float | str) -> str:
    if isinstance(value, str):
        return value
    if name in _PARTS:
        return f"{100 * value:.1f} %"
    if name.endswith("_seconds") and not name.endswith("gpu_seconds"):
        return span(value)
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.4g}"


def shares_table(shares: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Mean and standard deviation by load, a row a placement."""
    loads = list(next(iter(shares.values())))
    head = "".join(f"<td>{text(load)} %</td>" for load in loads)
    rows = [
        f"<tr><th>{text(name)}</th>"
        + "".join(f"<td>{each[load]['mean']:.2f} ±{each[load]['sd']:.2f}</td>" for load in loads)
        + "</tr>"
        for name, each in shares.items()
    ]
    return f"<table><tr><th></th>{head}</tr>{''.join(rows)}</table>"


def waits_table(waits: Mapping[str, Mapping[str, float]]) -> str:
    """Jobs, mean, median, P95 and longest wait of each class."""
    head = "<tr><th>class</th><td>jobs</td><td>mean</td><td>P50</td><td>P95</td><td>longest</td></tr>"
    keys = ("mean_seconds", "p50_seconds", "p95_seconds", "max_seconds")
    rows = [
        f"<tr><th>{text(name)}</th><td>{found['jobs']:,.0f}</td>"
        + "".join(f"<td>{span(found[key])}</td>" for key in keys)
        + "</tr>"
        for name, found in waits.items()
    ]
    return f"<table>{head}{''.join(rows)}</table>"


def script_data(value: Any) -> str:
    """JSON that is safe inside a script element."""
    told = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    return told.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
