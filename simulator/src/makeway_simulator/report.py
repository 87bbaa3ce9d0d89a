"""One self-contained HTML page of a replay: inline SVG and script, no network, every text escaped.

The figures; who ran where, with preemptions marked; queue and GPUs over time; waits per class. Long replays are drawn
from samples, and the page says so.
"""

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from makeway_simulator.outcome import EndKind, JobOutcome
from makeway_simulator.page import page
from makeway_simulator.record import Moment, Record, Segment

Item = TypeVar("Item")

WIDTH: Final = 1100
_ROW: Final = 14
_MOST_SEGMENTS: Final = 6000
_MOST_POINTS: Final = 1200
_MOST_ROWS: Final = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A part of the page: `body` is HTML already, `title` and `note` are plain text."""

    title: str
    body: str
    note: str = ""


def replays_page(replays: Sequence[tuple[str, Mapping[str, Any], Record | None]]) -> str:
    """The page of one replay or several: title, figures, and what makeway's policy left behind where it ran."""
    sections = [section for each in replays for section in _sections(*each)]
    title = ", ".join(name for name, _, _ in replays)
    return page(f"Replay of {title}", ((each.title, each.body, each.note) for each in sections))


def _sections(name: str, figures: Mapping[str, Any], record: Record | None) -> list[Section]:
    sections = [Section(title=f"{name}: figures", body=figures_table(figures))]
    if "allocated_percent" in figures:
        sections.append(Section(title="Allocated by arrived load", body=shares_table(figures["allocated_percent"])))
    if "waits" in figures:
        sections.append(Section(title="Waits per class", body=waits_table(figures["waits"])))
    if record is None:
        return sections
    end = max((segment.ended_at for segment in record.segments), default=1.0) or 1.0
    drawn = thinned(record.segments, _MOST_SEGMENTS)
    note = f"{len(drawn)} of {len(record.segments)} runs drawn. " if len(drawn) < len(record.segments) else ""
    return [
        *sections,
        Section(title="How waits are spread", body=waits_svg(record.outcomes), note="Part of jobs over longest wait."),
        Section(
            title="Who ran where",
            body=timeline_svg(drawn, record, end),
            note=f"{note}A row a GPU; a red edge is a preemption, a grey start is start-up or restore. Point at a bar.",
        ),
        Section(title="Waiting jobs over time", body=steps_svg(record.moments, end, "waiting")),
        Section(title="GPUs in use over time", body=steps_svg(record.moments, end, "busy_gpus", record.cluster.gpus)),
        Section(title="GPU-seconds", body=spent_svg(record.outcomes)),
    ]


def shares_table(shares: Mapping[str, Mapping[str, float]]) -> str:
    """Mean and standard deviation by load."""
    rows = [
        f"<tr><th>{_text(load)} %</th><td>{each['mean']:.2f}</td><td>{each['sd']:.2f}</td></tr>"
        for load, each in shares.items()
    ]
    return f"<table><tr><th>arrived</th><th>allocated</th><th>sd</th></tr>{''.join(rows)}</table>"


def figures_table(figures: Mapping[str, Any]) -> str:
    """Name and value of every plain figure."""
    rows = [
        f"<tr><th>{_text(name)}</th><td>{_text(_shown(value))}</td></tr>"
        for name, value in figures.items()
        if isinstance(value, (int, float, str))
    ]
    return f"<table>{''.join(rows)}</table>"


def timeline_svg(segments: Iterable[Segment], record: Record, end: float) -> str:
    """A row a GPU, a bar a run. Rows beyond the most that a page can show are left out."""
    rows = _rows(record)
    bars = []
    for segment in segments:
        for gpu in segment.gpus:
            if gpu in rows:
                bars.append(_bar(segment, rows[gpu], end))
    height = len(rows) * _ROW + 24
    marks = "".join(
        f'<text x="0" y="{at * _ROW + 11}" class="label">{_text(gpu)}</text>'
        for gpu, at in rows.items()
        if len(rows) <= 64 or at % 8 == 0
    )
    more = record.cluster.gpus - len(rows)
    note = f"<p class='note'>{more} more GPUs are not drawn.</p>" if more > 0 else ""
    return f"{_svg(height, marks + ''.join(bars) + _axis(height, end))}{note}"


def _rows(record: Record) -> dict[str, int]:
    cluster = record.cluster
    names = (f"node-{node:04d}/{index}" for node in range(cluster.nodes) for index in range(cluster.gpus_per_node))
    return {name: at for at, name in enumerate(names) if at < _MOST_ROWS}


def _bar(segment: Segment, row: int, end: float) -> str:
    x, right = _x(segment.started_at, end), _x(segment.ended_at, end)
    ready = _x(segment.ready_at, end)
    y = row * _ROW + 1
    told = (
        f"{segment.job_id}, run {segment.run}: {_time(segment.started_at)} to {_time(segment.ended_at)}, "
        f"{segment.kind.value}"
    )
    colour = f"hsl({_hue(segment.job_id)} 55% 60%)"
    body = f'<rect x="{x:.1f}" y="{y}" width="{max(0.6, right - x):.1f}" height="{_ROW - 2}" fill="{colour}"/>'
    if ready - x > 0.5:
        body += f'<rect x="{x:.1f}" y="{y}" width="{ready - x:.1f}" height="{_ROW - 2}" class="startup"/>'
    if segment.kind is not EndKind.FINISHED:
        body += f'<rect x="{max(x, right - 2):.1f}" y="{y}" width="2" height="{_ROW - 2}" class="cut"/>'
    return f"<g><title>{_text(told)}</title>{body}</g>"


def steps_svg(moments: Sequence[Moment], end: float, field: str, most: int | None = None) -> str:
    """A stepped line of one field of the moments."""
    points = thinned(moments, _MOST_POINTS)
    top = max(most or 0, max((getattr(point, field) for point in points), default=0), 1)
    height = 140
    path: list[str] = []
    last = 0.0
    for point in points:
        x = _x(point.at, end)
        y = 10 + (height - 34) * (1 - getattr(point, field) / top)
        path.append(f"L{x:.1f},{last:.1f}L{x:.1f},{y:.1f}" if path else f"M{x:.1f},{y:.1f}")
        last = y
    line = f'<path d="{"".join(path)}L{WIDTH},{last:.1f}" class="line"/>' if path else ""
    return _svg(height, f'<text x="0" y="10" class="label">{top}</text>{line}{_axis(height, end)}')


def waits_table(waits: Mapping[str, Mapping[str, float]]) -> str:
    """Jobs, mean, median, P95 and longest wait of each class."""
    head = "<tr><th>class</th><th>jobs</th><th>mean</th><th>P50</th><th>P95</th><th>longest</th></tr>"
    rows = [
        f"<tr><th>{_text(name)}</th><td>{found['jobs']:.0f}</td>"
        + "".join(
            f"<td>{_time(found[key])}</td>" for key in ("mean_seconds", "p50_seconds", "p95_seconds", "max_seconds")
        )
        + "</tr>"
        for name, found in waits.items()
    ]
    return f"<table>{head}{''.join(rows)}</table>"


def waits_svg(outcomes: Sequence[JobOutcome]) -> str:
    """How the waits of each class are spread: a line of the part of jobs that waited at most so long."""
    waits: dict[str, list[float]] = {}
    for outcome in outcomes:
        waits.setdefault(outcome.class_name, []).append(outcome.waited_seconds)
    longest = max((max(each) for each in waits.values()), default=0.0) or 1.0
    height = 160
    lines: list[str] = []
    for at, (name, found) in enumerate(sorted(waits.items())):
        points = thinned(sorted(found), 300)
        last = max(1, len(points) - 1)
        path = " ".join(
            f"{_x(wait, longest):.1f},{10 + (height - 34) * (1 - number / last):.1f}"
            for number, wait in enumerate(points)
        )
        colour = f"hsl({_hue(name)} 60% 45%)"
        lines.append(f'<polyline points="{path}" class="line" style="stroke:{colour}"/>')
        lines.append(f'<text x="{WIDTH - 120}" y="{height - 40 - 14 * at}" style="fill:{colour}">{_text(name)}</text>')
    return _svg(height, "".join(lines) + _axis(height, longest))


def spent_svg(outcomes: Sequence[JobOutcome]) -> str:
    """GPU-seconds that brought jobs on, and that were lost, per class."""
    spent: dict[str, list[float]] = {}
    for outcome in outcomes:
        sums = spent.setdefault(outcome.class_name, [0.0, 0.0])
        sums[0] += outcome.held_gpu_seconds - outcome.lost_gpu_seconds
        sums[1] += outcome.lost_gpu_seconds
    top = max((sum(sums) for sums in spent.values()), default=0.0) or 1.0
    bars: list[str] = []
    span = WIDTH - 420
    for at, (name, (useful, lost)) in enumerate(sorted(spent.items())):
        y, cut, right = at * 22 + 4, 110 + span * useful / top, 110 + span * (useful + lost) / top
        bars.append(
            f'<text x="0" y="{y + 12}">{_text(name)}</text>'
            f'<rect x="110" y="{y}" width="{cut - 110:.1f}" height="16" class="useful"/>'
            f'<rect x="{cut:.1f}" y="{y}" width="{right - cut:.1f}" height="16" class="cut"/>'
            f'<text x="{right + 10:.1f}" y="{y + 12}">{useful:,.0f} useful, {lost:,.0f} lost</text>'
        )
    return _svg(len(spent) * 22 + 10, "".join(bars))


def thinned(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many items, evenly spread, the last one kept."""
    if len(items) <= most:
        return list(items)
    step = (len(items) - 1) / (most - 1)
    return [items[round(at * step)] for at in range(most)]


def script_data(value: Any) -> str:
    """JSON that is safe inside a script element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _svg(height: int, body: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" role="img">{body}</svg>'


def _axis(height: int, end: float) -> str:
    marks: list[str] = []
    for tenth in range(11):
        at = end * tenth / 10
        x = _x(at, end)
        marks.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 16}" class="grid"/>')
        place = min(x + 2, WIDTH - 46)
        marks.append(f'<text x="{place:.1f}" y="{height - 4}" class="label">{_time(at)}</text>')
    return "".join(marks)


def _x(at: float, end: float) -> float:
    return 96 + (WIDTH - 96) * at / end


def _hue(name: str) -> int:
    return sum(byte * (at + 7) * 37 for at, byte in enumerate(name.encode())) % 360


def _time(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.4g} s"


def _shown(value: float | str) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def _text(value: str) -> str:
    return html.escape(value, quote=True)
