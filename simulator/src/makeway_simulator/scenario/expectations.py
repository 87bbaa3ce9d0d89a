"""Whether a history is as a scenario wants it.

Each check of an `Expectation` is one small function: `moments` has those that see a snapshot, `wholes` those that see
all that was until then.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from makeway_simulator.errors import ScenarioError
from makeway_simulator.scenario import notation
from makeway_simulator.scenario.case import TEAM, Case
from makeway_simulator.scenario.history import WORDS, History
from makeway_simulator.scenario.moments import OF_A_MOMENT, MomentCheck
from makeway_simulator.scenario.wanted import Expectation
from makeway_simulator.scenario.wholes import OF_THE_WHOLE, Past
from makeway_simulator.scenario.words import plain, seconds_of, words_of


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
    return ", ".join(f"{name}: {plain(value)}" for name, value in given.items())


def refuse_unknown(case: Case) -> None:
    """Raises ScenarioError for an expectation or action that names a job, a team or a state that is not there."""
    jobs = {job.name for job in case.jobs}
    for number, each in enumerate(case.expect):
        where = f"expect[{number}]"
        if not each.model_fields_set & (OF_A_MOMENT.keys() | OF_THE_WHOLE.keys()):
            raise ScenarioError(where, "checks nothing")
        for name, found in _jobs_named(each):
            _refuse(f"{where}.{name}", "job", set(found) - jobs)
        words = {word for value in (each.state or {}).values() for word in words_of(value)} | set(each.count or {})
        _refuse(f"{where}", "state", words - WORDS.keys())
        _refuse(f"{where}.usage", "team", set(each.usage or {}) - case.teams.keys() - _teams_of(case))
    for number, action in enumerate(case.actions):
        entry = action.entry
        for verb, given in (("cancel", entry.cancel), ("preempt", entry.preempt)):
            _refuse(f"actions[{number}].{verb}", "job", set(notation.names(given or ())) - jobs)
        _refuse(f"actions[{number}].set_priority", "job", set(notation.by_name(entry.set_priority or {})) - jobs)


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
    for name in given.keys() & OF_A_MOMENT.keys():
        yield from _at_a_moment(history, expectation, OF_A_MOMENT[name], given[name])
    until = (history.until if expectation.at is None else expectation.at) + history.slack_seconds
    for name in given.keys() & OF_THE_WHOLE.keys():
        yield from OF_THE_WHOLE[name](Past(history=history, until=until, asked=expectation), given[name])


def _at_a_moment(history: History, asked: Expectation, check: MomentCheck, value: Any) -> list[str]:
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
    for seen in history.between(at, at + seconds_of(asked.within, 0.0) + slack):
        found = list(check(seen, asked, value))
        if not found:
            return []
    return found


_LISTS_OF_JOBS: Final = frozenset({"of", "running", "not_running", "evicted", "order", "first_start"})
_MAPPINGS_OF_JOBS: Final = frozenset(
    {
        "state", "reason", "priority", "node", "evictions", "starts", "started_at", "noticed_at", "killed_at",
        "left_at", "ended_at", "used", "not_before", "after_end_of", "took_over",
    }
)  # fmt: skip
