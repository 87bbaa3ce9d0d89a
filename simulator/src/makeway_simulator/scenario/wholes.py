"""Checks that look at all that happened until a moment: each gives a sentence for every thing that is otherwise."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from makeway_policy.quantities import quantity
from makeway_schemas.states import JobState

from makeway_simulator.scenario import notation
from makeway_simulator.scenario.case import CYCLE_SECONDS
from makeway_simulator.scenario.history import History, RunSeen
from makeway_simulator.scenario.wanted import Expectation
from makeway_simulator.scenario.words import ROUNDING, jobs_of, plain, seconds_of, when


@dataclass(frozen=True, kw_only=True, slots=True)
class Past:
    """What was until a moment."""

    history: History
    until: float
    asked: Expectation

    @property
    def runs(self) -> list[RunSeen]:
        return [run for run in self.history.runs if run.started_at <= self.until + ROUNDING]

    @property
    def evicted(self) -> list[RunSeen]:
        return [run for run in self.runs if run.evicted and (run.noticed_at or 0.0) <= self.until + ROUNDING]

    def starts(self, job: str) -> list[float]:
        return sorted(run.started_at for run in self.runs if run.job == job)

    def first(self, job: str) -> float:
        return min(self.starts(job), default=math.inf)

    def is_off(self, found: float, wanted: float) -> bool:
        allowed = seconds_of(self.asked.within, CYCLE_SECONDS) + self.history.slack_seconds
        return not abs(found - wanted) <= allowed + ROUNDING


def _evictions(past: Past, wanted: int | Mapping[str, int]) -> Iterator[str]:
    named = None if past.asked.of is None else set(notation.names(past.asked.of))
    evicted = [run.job for run in past.evicted if named is None or run.job in named]
    if isinstance(wanted, int):
        if len(evicted) != wanted:
            yield f"{len(evicted)} evictions{f': {plain(evicted)}' if evicted else ''}"
        return
    for name, number in notation.by_name(wanted).items():
        if evicted.count(name) != number:
            yield f"{evicted.count(name)} of {name}"


def _evicted(past: Past, wanted: str | tuple[str, ...]) -> Iterator[str]:
    found = {run.job for run in past.evicted}
    if found != set(notation.names(wanted)):
        yield f"evicted were {plain(sorted(found)) or 'none'}"


def _starts(past: Past, wanted: Mapping[str, int]) -> Iterator[str]:
    for name, number in notation.by_name(wanted).items():
        found = past.starts(name)
        if len(found) != number:
            yield f"{name} started {quantity(len(found), 'time')}{f', at {plain(found)}' if found else ''}"


def _moments(of: Callable[[Past, str], list[float]]) -> Callable[[Past, Any], Iterator[str]]:
    def check(past: Past, wanted: Mapping[str, float | str | tuple[float, ...]]) -> Iterator[str]:
        for name, moments in notation.by_name(wanted).items():
            found = sorted(of(past, name))
            told = f"{name}: {plain(found) or 'never'}"
            if isinstance(moments, tuple):
                if len(found) != len(moments) or any(map(past.is_off, found, moments)):
                    yield told
            elif isinstance(moments, str):
                if found:
                    yield told
            elif not found or past.is_off(found[0], moments):
                yield told

    return check


def _of_runs(value: Callable[[RunSeen], float | None]) -> Callable[[Past, str], list[float]]:
    def moments(past: Past, job: str) -> list[float]:
        found = [value(run) for run in past.runs if run.job == job]
        return [each for each in found if each is not None and each <= past.until + ROUNDING]

    return moments


def _ends(past: Past, job: str) -> list[float]:
    ended = past.history.ended.get(job)
    return [] if ended is None or ended > past.until + ROUNDING else [ended]


def _used(past: Past, wanted: Mapping[str, float]) -> Iterator[str]:
    for name, seconds in notation.by_name(wanted).items():
        runs = [run for run in past.runs if run.job == name]
        used = math.fsum(min(past.until, run.ended_at or past.until) - run.started_at for run in runs)
        if past.is_off(used, seconds):
            yield f"{name} has run {used:g} s"


def _order(past: Past, wanted: str | tuple[str, ...]) -> Iterator[str]:
    found = notation.names(wanted)
    for earlier, later in pairwise(found):
        if past.first(earlier) > past.first(later) + past.history.slack_seconds:
            yield f"{later} started at {past.first(later):g}, {earlier} {when(past.first(earlier))}"


def _first_start(past: Past, wanted: str) -> Iterator[str]:
    later = [(run.started_at, run.job) for run in past.runs if run.started_at > past.asked.after + ROUNDING]
    first, name = min(later, default=(math.inf, "none"))
    if name != wanted:
        yield f"{name} was first, {when(first)}"


def _not_before(past: Past, wanted: Mapping[str, str | tuple[str, ...]]) -> Iterator[str]:
    for name, earlier in notation.by_name(wanted).items():
        for other in notation.names(earlier):
            if past.first(name) < past.first(other) - ROUNDING:
                yield f"{name} started at {past.first(name):g}, {other} {when(past.first(other))}"


def _after_end_of(past: Past, wanted: Mapping[str, str | tuple[str, ...]]) -> Iterator[str]:
    for name, earlier in notation.by_name(wanted).items():
        for other in notation.names(earlier):
            ended = min(_ends(past, other), default=math.inf)
            if past.first(name) < ended - past.history.slack_seconds - ROUNDING:
                yield f"{name} started at {past.first(name):g}, {other} ended {when(ended)}"


def _took_over(past: Past, wanted: Mapping[str, str | tuple[str, ...]]) -> Iterator[str]:
    for name, victims in notation.by_name(wanted).items():
        left = {gpu for run in past.evicted if run.job in notation.names(victims) for gpu in run.gpus}
        taken = next((set(run.gpus) for run in past.history.runs_of(name)), set[str]())
        if taken != left:
            yield f"{name} is on {plain(sorted(taken)) or 'nothing'}, what was left is {plain(sorted(left))}"


def _max_running(past: Past, wanted: int) -> Iterator[str]:
    for seen in past.history.snapshots:
        running = sum(seen.jobs[name].state == JobState.RUNNING for name in jobs_of(seen, past.asked))
        if running > wanted and seen.at <= past.until + ROUNDING:
            yield f"{running} ran at {seen.at:g}"
            return


OF_THE_WHOLE: Final[Mapping[str, Callable[[Past, Any], Iterator[str]]]] = {
    "evictions": _evictions,
    "evicted": _evicted,
    "starts": _starts,
    "started_at": _moments(lambda past, job: past.starts(job)),
    "noticed_at": _moments(_of_runs(lambda run: run.noticed_at)),
    "killed_at": _moments(_of_runs(lambda run: run.ended_at if run.forced else None)),
    "left_at": _moments(_of_runs(lambda run: run.ended_at)),
    "ended_at": _moments(_ends),
    "used": _used,
    "order": _order,
    "first_start": _first_start,
    "not_before": _not_before,
    "after_end_of": _after_end_of,
    "took_over": _took_over,
    "max_running": _max_running,
}
