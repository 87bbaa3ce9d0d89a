"""Whether a history is as a scenario wants it: one small function for each check of an `Expectation`.

Checks of a moment see a snapshot; checks of the whole see the history until then. Each gives a sentence for every
thing that is otherwise.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from makeway_schemas.states import JobState

from makeway_simulator.errors import ScenarioError
from makeway_simulator.scenario import notation
from makeway_simulator.scenario.case import CYCLE_SECONDS, TEAM, Case
from makeway_simulator.scenario.document import Expectation
from makeway_simulator.scenario.history import WORDS, History, JobSeen, RunSeen, Snapshot

_ROUNDING: Final = 1e-6
_ABSENT: Final = JobSeen(state="not submitted", priority=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """One expectation: what was wanted, and what was otherwise (nothing: it is as wanted)."""

    wanted: str
    problems: tuple[str, ...]


def judge(history: History, case: Case, kind: str) -> tuple[Verdict, ...]:
    """All expectations of a case that are asked where it was played, and the invariants as the last one."""
    asked = [each for each in case.expect if each.only in (None, kind)]
    verdicts = [Verdict(wanted=wanted_of(each), problems=tuple(_problems(history, each))) for each in asked]
    return (*verdicts, Verdict(wanted="the invariants", problems=history.violations))


def wanted_of(expectation: Expectation) -> str:
    """The expectation as it stands in the file, in one line."""
    given = expectation.model_dump(exclude_unset=True)
    return ", ".join(f"{name}: {_plain(value)}" for name, value in given.items())


def refuse_unknown(case: Case) -> None:
    """Raises ScenarioError for an expectation or action that names a job, a team or a state that is not there."""
    jobs = {job.name for job in case.jobs}
    for number, each in enumerate(case.expect):
        where = f"expect[{number}]"
        if not each.model_fields_set & (_OF_A_MOMENT.keys() | _OF_THE_WHOLE.keys()):
            raise ScenarioError(where, "checks nothing")
        for name, found in _jobs_named(each):
            _refuse(f"{where}.{name}", "job", set(found) - jobs)
        words = {word for value in (each.state or {}).values() for word in _words(value)} | set(each.count or {})
        _refuse(f"{where}", "state", words - WORDS.keys())
        _refuse(f"{where}.usage", "team", set(each.usage or {}) - case.teams.keys() - _teams_of(case))
    for number, action in enumerate(case.actions):
        named = [*notation.names(action.entry.cancel or ()), *notation.by_name(action.entry.set_priority or {})]
        _refuse(f"actions[{number}]", "job", set(named) - jobs)


def _teams_of(case: Case) -> set[str]:
    return {str(job.spec.get("team", TEAM)) for job in case.jobs}


def _refuse(where: str, what: str, unknown: set[str]) -> None:
    if unknown:
        raise ScenarioError(where, f"there is no {what} {', '.join(sorted(unknown))}")


def _jobs_named(expectation: Expectation) -> Iterator[tuple[str, Iterable[str]]]:
    for name in expectation.model_fields_set:
        value = getattr(expectation, name)
        if name in _LISTS_OF_JOBS:
            yield name, notation.names(value)
        elif name in _MAPPINGS_OF_JOBS and isinstance(value, Mapping):
            yield name, notation.by_name(value)
        if name in ("not_before", "after_end_of", "took_over"):
            yield name, [other for others in value.values() for other in notation.names(others)]


def _problems(history: History, expectation: Expectation) -> Iterator[str]:
    given = {name: getattr(expectation, name) for name in expectation.model_fields_set}
    for name in given.keys() & _OF_A_MOMENT.keys():
        yield from _at_a_moment(history, expectation, _OF_A_MOMENT[name], given[name])
    until = (history.until if expectation.at is None else expectation.at) + history.slack_seconds
    for name in given.keys() & _OF_THE_WHOLE.keys():
        yield from _OF_THE_WHOLE[name](_Past(history=history, until=until, asked=expectation), given[name])


def _at_a_moment(history: History, asked: Expectation, check: "_MomentCheck", value: Any) -> list[str]:
    slack = history.slack_seconds
    if asked.during is not None:
        first, last = asked.during[0] + slack, asked.during[1] - slack
        for seen in history.between(first, max(first, last)):
            found = list(check(seen, asked, value))
            if found:
                return [f"at {max(first, seen.at):g}: {sentence}" for sentence in found]
        return []
    at = history.until if asked.at is None else asked.at
    found = []
    for seen in history.between(at, at + _seconds(asked.within, 0.0) + slack):
        found = list(check(seen, asked, value))
        if not found:
            return []
    return found


def _seconds(within: float | str | None, default: float) -> float:
    if within is None:
        return default
    return CYCLE_SECONDS if isinstance(within, str) else within


# Checks of a moment

_MomentCheck = Callable[[Snapshot, Expectation, Any], Iterator[str]]


def _state(seen: Snapshot, _: Expectation, wanted: Mapping[str, str | tuple[str, ...]]) -> Iterator[str]:
    for name, words in notation.by_name(wanted).items():
        job = seen.jobs.get(name, _ABSENT)
        if not any(job.state in WORDS[word] for word in _words(words)):
            yield f"{name} is {_told(job)}"


def _running(seen: Snapshot, asked: Expectation, wanted: tuple[str, ...]) -> Iterator[str]:
    found = {name for name in _of(seen, asked) if seen.jobs[name].state == JobState.RUNNING}
    if found != set(notation.names(wanted)):
        yield f"running are {_plain(sorted(found))}"


def _not_running(seen: Snapshot, _: Expectation, unwanted: str | tuple[str, ...]) -> Iterator[str]:
    for name in notation.names(unwanted):
        if seen.jobs.get(name, _ABSENT).state == JobState.RUNNING:
            yield f"{name} runs"


def _count(seen: Snapshot, asked: Expectation, wanted: Mapping[str, int]) -> Iterator[str]:
    states = [seen.jobs[name].state for name in _of(seen, asked)]
    for word, number in wanted.items():
        found = sum(state in WORDS[word] for state in states)
        if found != number:
            yield f"{found} are {word}"


def _granted(seen: Snapshot, _: Expectation, wanted: int | Mapping[str, int]) -> Iterator[str]:
    if isinstance(wanted, int):
        total = sum(seen.granted_mib.values())
        if total != wanted:
            yield f"{total} MiB are granted"
        return
    for node, number in wanted.items():
        if seen.granted_mib.get(node, 0) != number:
            yield f"{seen.granted_mib.get(node, 0)} MiB are granted on {node}"


def _usage(seen: Snapshot, _: Expectation, wanted: Mapping[str, float]) -> Iterator[str]:
    for team, number in wanted.items():
        found = seen.usage.get(team, 0.0)
        if not abs(found - number) < 1e-3:
            yield f"team {team} uses {found:g} GPUs"


def _capacity(seen: Snapshot, _: Expectation, wanted: Mapping[str, int]) -> Iterator[str]:
    for what, number in wanted.items():
        if seen.capacity.get(what, 0) != number:
            yield f"{seen.capacity.get(what, 0)} x {what}"


def _reason(seen: Snapshot, _: Expectation, wanted: Mapping[str, str | tuple[str, ...]]) -> Iterator[str]:
    for name, words in notation.by_name(wanted).items():
        reason = seen.jobs.get(name, _ABSENT).reason
        for word in _words(words):
            if not any(each.strip().casefold() in reason.casefold() for each in word.split("|")):
                yield f"the reason of {name} does not say {word}: {reason or 'nothing'}"


def _priority(seen: Snapshot, _: Expectation, wanted: Mapping[str, int]) -> Iterator[str]:
    for name, number in notation.by_name(wanted).items():
        found = seen.jobs.get(name, _ABSENT).priority
        if found != number:
            yield f"{name} shows {found}"


def _node(seen: Snapshot, _: Expectation, wanted: Mapping[str, str | tuple[str, ...]]) -> Iterator[str]:
    for name, nodes in notation.by_name(wanted).items():
        found = seen.jobs.get(name, _ABSENT).nodes
        if not found or not set(found) <= set(notation.names(nodes)):
            yield f"{name} is on {_plain(found) if found else 'no node'}"


def _of(seen: Snapshot, asked: Expectation) -> list[str]:
    named = None if asked.of is None else set(notation.names(asked.of))
    return [name for name in seen.jobs if named is None or name in named]


# Checks of the whole


@dataclass(frozen=True, kw_only=True, slots=True)
class _Past:
    """What was until a moment."""

    history: History
    until: float
    asked: Expectation

    @property
    def runs(self) -> list[RunSeen]:
        return [run for run in self.history.runs if run.started_at <= self.until + _ROUNDING]

    @property
    def evicted(self) -> list[RunSeen]:
        return [run for run in self.runs if run.evicted and (run.noticed_at or 0.0) <= self.until + _ROUNDING]

    def starts(self, job: str) -> list[float]:
        return sorted(run.started_at for run in self.runs if run.job == job)

    def first(self, job: str) -> float:
        return min(self.starts(job), default=math.inf)

    def is_off(self, found: float, wanted: float) -> bool:
        allowed = _seconds(self.asked.within, CYCLE_SECONDS) + self.history.slack_seconds
        return not abs(found - wanted) <= allowed + _ROUNDING


def _evictions(past: _Past, wanted: int | Mapping[str, int]) -> Iterator[str]:
    named = None if past.asked.of is None else set(notation.names(past.asked.of))
    evicted = [run.job for run in past.evicted if named is None or run.job in named]
    if isinstance(wanted, int):
        if len(evicted) != wanted:
            yield f"{len(evicted)} evictions{f': {_plain(evicted)}' if evicted else ''}"
        return
    for name, number in notation.by_name(wanted).items():
        if evicted.count(name) != number:
            yield f"{evicted.count(name)} of {name}"


def _evicted(past: _Past, wanted: str | tuple[str, ...]) -> Iterator[str]:
    found = {run.job for run in past.evicted}
    if found != set(notation.names(wanted)):
        yield f"evicted were {_plain(sorted(found)) or 'none'}"


def _starts(past: _Past, wanted: Mapping[str, int]) -> Iterator[str]:
    for name, number in notation.by_name(wanted).items():
        found = past.starts(name)
        if len(found) != number:
            yield f"{name} started {len(found)} times{f', at {_plain(found)}' if found else ''}"


def _moments(of: Callable[[_Past, str], list[float]]) -> Callable[[_Past, Any], Iterator[str]]:
    def check(past: _Past, wanted: Mapping[str, float | str | tuple[float, ...]]) -> Iterator[str]:
        for name, moments in notation.by_name(wanted).items():
            found = sorted(of(past, name))
            told = f"{name}: {_plain(found) or 'never'}"
            if isinstance(moments, tuple):
                if len(found) != len(moments) or any(map(past.is_off, found, moments)):
                    yield told
            elif isinstance(moments, str):
                if found:
                    yield told
            elif not found or past.is_off(found[0], moments):
                yield told

    return check


def _of_runs(value: Callable[[RunSeen], float | None]) -> Callable[[_Past, str], list[float]]:
    def moments(past: _Past, job: str) -> list[float]:
        found = [value(run) for run in past.runs if run.job == job]
        return [each for each in found if each is not None and each <= past.until + _ROUNDING]

    return moments


def _ends(past: _Past, job: str) -> list[float]:
    ended = past.history.ended.get(job)
    return [] if ended is None or ended > past.until + _ROUNDING else [ended]


def _used(past: _Past, wanted: Mapping[str, float]) -> Iterator[str]:
    for name, seconds in notation.by_name(wanted).items():
        runs = [run for run in past.runs if run.job == name]
        used = math.fsum(min(past.until, run.ended_at or past.until) - run.started_at for run in runs)
        if past.is_off(used, seconds):
            yield f"{name} has run {used:g} s"


def _order(past: _Past, wanted: str | tuple[str, ...]) -> Iterator[str]:
    found = notation.names(wanted)
    for earlier, later in pairwise(found):
        if past.first(earlier) > past.first(later) + past.history.slack_seconds:
            yield f"{later} started at {past.first(later):g}, {earlier} {_when(past.first(earlier))}"


def _first_start(past: _Past, wanted: str) -> Iterator[str]:
    later = [(run.started_at, run.job) for run in past.runs if run.started_at > past.asked.after + _ROUNDING]
    first, name = min(later, default=(math.inf, "none"))
    if name != wanted:
        yield f"{name} was first, {_when(first)}"


def _not_before(past: _Past, wanted: Mapping[str, str | tuple[str, ...]]) -> Iterator[str]:
    for name, earlier in notation.by_name(wanted).items():
        for other in notation.names(earlier):
            if past.first(name) < past.first(other) - _ROUNDING:
                yield f"{name} started at {past.first(name):g}, {other} {_when(past.first(other))}"


def _after_end_of(past: _Past, wanted: Mapping[str, str | tuple[str, ...]]) -> Iterator[str]:
    for name, earlier in notation.by_name(wanted).items():
        for other in notation.names(earlier):
            ended = min(_ends(past, other), default=math.inf)
            if past.first(name) < ended - past.history.slack_seconds - _ROUNDING:
                yield f"{name} started at {past.first(name):g}, {other} ended {_when(ended)}"


def _took_over(past: _Past, wanted: Mapping[str, str | tuple[str, ...]]) -> Iterator[str]:
    for name, victims in notation.by_name(wanted).items():
        left = {gpu for run in past.evicted if run.job in notation.names(victims) for gpu in run.gpus}
        taken = next((set(run.gpus) for run in past.history.runs_of(name)), set[str]())
        if taken != left:
            yield f"{name} is on {_plain(sorted(taken)) or 'nothing'}, what was left is {_plain(sorted(left))}"


def _max_running(past: _Past, wanted: int) -> Iterator[str]:
    for seen in past.history.snapshots:
        running = sum(seen.jobs[name].state == JobState.RUNNING for name in _of(seen, past.asked))
        if running > wanted and seen.at <= past.until + _ROUNDING:
            yield f"{running} ran at {seen.at:g}"
            return


# Words


def _words(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given


def _told(job: JobSeen) -> str:
    return f"{job.state} ({job.reason})" if job.reason else job.state


def _when(at: float) -> str:
    return "never" if math.isinf(at) else f"at {at:g}"


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return " ".join(_plain(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


_OF_A_MOMENT: Final[Mapping[str, _MomentCheck]] = {
    "state": _state,
    "running": _running,
    "not_running": _not_running,
    "count": _count,
    "granted_mib": _granted,
    "usage": _usage,
    "capacity": _capacity,
    "reason": _reason,
    "priority": _priority,
    "node": _node,
}
_OF_THE_WHOLE: Final[Mapping[str, Callable[[_Past, Any], Iterator[str]]]] = {
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
_LISTS_OF_JOBS: Final = frozenset({"of", "running", "not_running", "evicted", "order", "first_start"})
_MAPPINGS_OF_JOBS: Final = frozenset(
    {
        "state", "reason", "priority", "node", "evictions", "starts", "started_at", "noticed_at", "killed_at",
        "left_at", "ended_at", "used", "not_before", "after_end_of", "took_over",
    }
)  # fmt: skip
