"""The pictures of a report as inline SVG: who ran where, steps over time, how waits are spread, bars.

A picture is `WIDTH` wide and scales with the page. Every text in it is escaped.
"""

import html
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, TypeVar

from makeway_policy.quantities import quantity, verb

from makeway_simulator.outcome import EndKind, JobOutcome, quantile
from makeway_simulator.record import Moment, Record, Segment

Item = TypeVar("Item")

WIDTH: Final = 1100
_LEFT: Final = 96
_ROW: Final = 14
_MOST_POINTS: Final = 1200
_MOST_ROWS: Final = 256
_BINS: Final = 200
_UNCUT: Final = frozenset({EndKind.FINISHED, EndKind.MOVED})
_WAIT_MARKS: Final = (1.0, 10.0, 60.0, 600.0, 3_600.0, 36_000.0, 86_400.0, 864_000.0, 8_640_000.0)


def timeline(segments: Iterable[Segment], record: Record, end: float) -> str:
    """A row a GPU, a bar a run. Rows beyond the most that a page can show are left out, and it is said how many."""
    rows = _rows(record)
    bars = "".join(_bars(segment, rows, end) for segment in segments)
    height = len(rows) * _ROW + 24
    marks = "".join(
        f'<text x="0" y="{at * _ROW + 11}" class="label">{text(gpu)}</text>'
        for gpu, at in rows.items()
        if len(rows) <= 64 or at % 8 == 0
    )
    more = record.cluster.gpus - len(rows)
    note = f"<p class='note'>{quantity(more, 'more GPU')} {verb(more)} not drawn.</p>" if more > 0 else ""
    return f"{_svg(height, marks + bars + _time_axis(height, end))}{note}"


def _rows(record: Record) -> dict[str, int]:
    cluster = record.cluster
    names = (f"node-{node:04d}/{index}" for node in range(cluster.nodes) for index in range(cluster.gpus_per_node))
    return {name: at for at, name in enumerate(names) if at < _MOST_ROWS}


def _bars(segment: Segment, rows: Mapping[str, int], end: float) -> str:
    """One bar over neighbouring GPUs; a start-up in grey at its left, a preemption as its red right edge."""
    x, ready, right = (_x(at, end) for at in (segment.started_at, segment.ready_at, segment.ended_at))
    width = max(0.6, right - x)
    told = (
        f"{segment.job_id}, run {segment.run}, {quantity(len(segment.gpus), 'GPU')}: {span(segment.started_at)} to "
        f"{span(segment.ended_at)}, {segment.kind.value}"
    )
    fill = f"hsl({_hue(segment.job_id)} 55% 60%)"
    cut = 0.0 if segment.kind in _UNCUT else min(2.0, width / 3)
    parts = []
    for first, count in _stretches(sorted(rows[gpu] for gpu in segment.gpus if gpu in rows)):
        place = f'y="{first * _ROW + 1}" height="{count * _ROW - 2}"'
        parts.append(f'<rect x="{x:.1f}" width="{width:.1f}" {place} fill="{fill}"/>')
        if ready - x > 0.5:
            parts.append(f'<rect x="{x:.1f}" width="{min(width, ready - x):.1f}" {place} class="startup"/>')
        if cut:
            parts.append(f'<rect x="{x + width - cut:.1f}" width="{cut:.1f}" {place} class="cut"/>')
    return f"<g><title>{text(told)}</title>{''.join(parts)}</g>" if parts else ""


def _stretches(rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring rows as (first, count)."""
    for _, found in groupby(enumerate(rows), key=lambda each: each[1] - each[0]):
        stretch = list(found)
        yield stretch[0][1], len(stretch)


def largest(segments: Sequence[Segment], most: int) -> list[Segment]:
    """At most so many runs: those that cover most of the picture, in their order."""
    if len(segments) <= most:
        return list(segments)
    by_area = sorted(
        range(len(segments)),
        key=lambda at: (segments[at].started_at - segments[at].ended_at) * len(segments[at].gpus),
    )
    return [segments[at] for at in sorted(by_area[:most])]


def steps(moments: Sequence[Moment], end: float, field: str, most: int | None = None) -> str:
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
    return _svg(height, f'<text x="0" y="14" class="label">{top:,}</text>{line}{_time_axis(height, end)}')


def preempted_runs(segments: Sequence[Segment], end: float) -> str:
    """How many runs were cut off in each part of the time."""
    counts = [0] * _BINS
    for segment in segments:
        if segment.kind is EndKind.PREEMPTED:
            counts[min(_BINS - 1, int(_BINS * segment.ended_at / end))] += 1
    top, height, width = max(1, *counts), 90, (WIDTH - _LEFT) / _BINS
    bars = "".join(
        f'<rect x="{_LEFT + at * width:.1f}" y="{10 + (height - 34) * (1 - count / top):.1f}" width="{width:.1f}" '
        f'height="{(height - 34) * count / top:.1f}" class="cut"><title>{count} preempted</title></rect>'
        for at, count in enumerate(counts)
        if count
    )
    return _svg(height, f'<text x="0" y="14" class="label">{max(counts)}</text>{bars}{_time_axis(height, end)}')


def waits(outcomes: Sequence[JobOutcome]) -> str:
    """The part of each class's jobs that waited at most so long, over a scale of powers, with the 95th percentile."""
    found: dict[str, list[float]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.class_name, []).append(outcome.waited_seconds)
    longest = max((max(each) for each in found.values()), default=0.0) or 1.0
    height = 180
    drawn: list[str] = []
    for at, (name, each) in enumerate(sorted(found.items())):
        colour = f"hsl({_hue(name)} 60% 45%)"
        points = thinned(sorted(each), 300)
        last = max(1, len(points) - 1)
        line = " ".join(
            f"{_log_x(wait, longest):.1f},{10 + (height - 34) * (1 - number / last):.1f}"
            for number, wait in enumerate(points)
        )
        late = quantile(each, 0.95)
        mark = f'cx="{_log_x(late, longest):.1f}" cy="{10 + (height - 34) * 0.05:.1f}" r="4" style="fill:{colour}"'
        drawn.append(f'<polyline points="{line}" class="line" style="stroke:{colour}"/>')
        drawn.append(f"<circle {mark}><title>{text(name)}: P95 {span(late)}</title></circle>")
        drawn.append(f'<text x="0" y="{30 + 14 * at}" style="fill:{colour}">{text(name)}</text>')
    marks = [mark for mark in _WAIT_MARKS if _log_x(mark, longest) < WIDTH - 70]
    axis = _axis(height, [(_log_x(mark, longest), span(mark)) for mark in (0.0, *marks, longest)])
    return _svg(height, '<text x="0" y="14" class="label">all jobs</text>' + "".join(drawn) + axis)


def shares(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Allocated per cent over arrived load, a line a placement: mean, and a bar of one standard deviation each way."""
    loads = sorted({float(load) for each in found.values() for load in each})
    means = [point["mean"] for each in found.values() for point in each.values()]
    low, high = math.floor(min(means, default=0.0)) - 1, math.ceil(max(means, default=100.0)) + 1
    height, first, width = 320, min(loads, default=0.0), (max(loads, default=1.0) - min(loads, default=0.0)) or 1.0

    def x(load: float) -> float:
        return _LEFT + (WIDTH - _LEFT - 120) * (load - first) / width

    def y(value: float) -> float:
        return 10 + (height - 34) * (high - value) / (high - low)

    drawn = [
        f'<line x1="{_LEFT}" y1="{y(at):.1f}" x2="{WIDTH - 120}" y2="{y(at):.1f}" class="grid"/>'
        f'<text x="0" y="{y(at) + 4:.1f}" class="label">{at} %</text>'
        for at in range(low, high + 1, max(1, (high - low) // 6))
    ]
    ends: list[float] = []
    for name, each in sorted(found.items(), key=lambda item: -list(item[1].values())[-1]["mean"]):
        colour = f"hsl({_hue(name)} 60% 45%)"
        points = [(x(float(load)), point["mean"], point["sd"]) for load, point in each.items()]
        line = " ".join(f"{at:.1f},{y(mean):.1f}" for at, mean, _ in points)
        drawn.append(f'<polyline points="{line}" class="line" style="stroke:{colour}"/>')
        drawn += [
            f'<line x1="{at:.1f}" y1="{y(mean - sd):.1f}" x2="{at:.1f}" y2="{y(mean + sd):.1f}" '
            f'class="line" style="stroke:{colour}"/>'
            for at, mean, sd in points
        ]
        ends.append(max(y(points[-1][1]) + 4, ends[-1] + 13 if ends else 0.0))
        drawn.append(f'<text x="{WIDTH - 110}" y="{ends[-1]:.1f}" style="fill:{colour}">{text(name)}</text>')
    return _svg(height, "".join(drawn) + _axis(height, [(x(load), f"{load:g} %") for load in loads]))


def spent(outcomes: Sequence[JobOutcome]) -> str:
    """GPU-seconds that brought jobs on, and that were lost, per class."""
    found: dict[str, list[float]] = {}
    for outcome in outcomes:
        sums = found.setdefault(outcome.class_name, [0.0, 0.0])
        sums[0] += outcome.held_gpu_seconds - outcome.lost_gpu_seconds
        sums[1] += outcome.lost_gpu_seconds
    top = max((sum(sums) for sums in found.values()), default=0.0) or 1.0
    bars: list[str] = []
    width = WIDTH - 470
    for at, (name, (useful, lost)) in enumerate(sorted(found.items())):
        y, cut, right = at * 22 + 4, 110 + width * useful / top, 110 + width * (useful + lost) / top
        bars.append(
            f'<text x="0" y="{y + 12}">{text(name)}</text>'
            f'<rect x="110" y="{y}" width="{max(0.0, cut - 110):.1f}" height="16" class="useful"/>'
            f'<rect x="{cut:.1f}" y="{y}" width="{right - cut:.1f}" height="16" class="cut"/>'
            f'<text x="{right + 10:.1f}" y="{y + 12}">{useful:,.0f} useful, {lost:,.0f} lost '
            f"({100 * lost / ((useful + lost) or 1.0):.1f} %)</text>"
        )
    return _svg(len(found) * 22 + 10, "".join(bars))


def thinned(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many items, evenly spread, the last one kept."""
    if len(items) <= most:
        return list(items)
    step = (len(items) - 1) / (most - 1)
    return [items[round(at * step)] for at in range(most)]


def span(seconds: float) -> str:
    """Seconds for reading: `90 s`, `3.5 min`, `2.1 h`, `4 d`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size or seconds == size:
            return f"{seconds / size:,.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:,.3g} s" if seconds < 100 else f"{seconds:,.0f} s"


def text(value: str) -> str:
    """A value as text of a page."""
    return html.escape(value, quote=True)


def _svg(height: int, body: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" role="img">{body}</svg>'


def _time_axis(height: int, end: float) -> str:
    return _axis(height, [(_x(at, end), span(at)) for at in (end * part / 8 for part in range(9))])


def _axis(height: int, marks: Sequence[tuple[float, str]]) -> str:
    """Lines with their texts; those of the right edge end there."""
    return "".join(
        f'<line x1="{x:.1f}" y1="8" x2="{x:.1f}" y2="{height - 20}" class="grid"/>'
        f'<text x="{x:.1f}" y="{height - 4}" class="label" text-anchor="{"end" if x > WIDTH - 40 else "middle"}">'
        f"{text(said)}</text>"
        for x, said in marks
    )


def _x(at: float, end: float) -> float:
    return _LEFT + (WIDTH - _LEFT) * at / end


def _log_x(seconds: float, longest: float) -> float:
    return _LEFT + (WIDTH - _LEFT) * math.log1p(max(0.0, seconds)) / math.log1p(longest)


def _hue(name: str) -> int:
    return sum(byte * (at + 7) * 37 for at, byte in enumerate(name.encode())) % 360
