"""Checks that look at one moment: each gives a sentence for every thing that is otherwise."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from makeway_policy.quantities import quantity
from makeway_schemas.states import JobState

from makeway_simulator.scenario import notation
from makeway_simulator.scenario.history import WORDS, JobSeen, Snapshot
from makeway_simulator.scenario.wanted import Expectation
from makeway_simulator.scenario.words import jobs_of, plain, told_of, words_of

_ABSENT: Final = JobSeen(state="not submitted", priority=0)

MomentCheck = Callable[[Snapshot, Expectation, Any], Iterator[str]]


def _state(seen: Snapshot, _: Expectation, wanted: Mapping[str, str | tuple[str, ...]]) -> Iterator[str]:
    for name, words in notation.by_name(wanted).items():
        job = seen.jobs.get(name, _ABSENT)
        if not any(job.state in WORDS[word] for word in words_of(words)):
            yield f"{name} is {told_of(job)}"


def _running(seen: Snapshot, asked: Expectation, wanted: tuple[str, ...]) -> Iterator[str]:
    found = {name for name in jobs_of(seen, asked) if seen.jobs[name].state == JobState.RUNNING}
    if found != set(notation.names(wanted)):
        yield f"running are {plain(sorted(found))}"


def _not_running(seen: Snapshot, _: Expectation, unwanted: str | tuple[str, ...]) -> Iterator[str]:
    for name in notation.names(unwanted):
        if seen.jobs.get(name, _ABSENT).state == JobState.RUNNING:
            yield f"{name} runs"


def _count(seen: Snapshot, asked: Expectation, wanted: Mapping[str, int]) -> Iterator[str]:
    states = [seen.jobs[name].state for name in jobs_of(seen, asked)]
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
            yield f"team {team} uses {quantity(found, 'GPU')}"


def _capacity(seen: Snapshot, _: Expectation, wanted: Mapping[str, int]) -> Iterator[str]:
    for what, number in wanted.items():
        if seen.capacity.get(what, 0) != number:
            yield f"{seen.capacity.get(what, 0)} x {what}"


def _reason(seen: Snapshot, _: Expectation, wanted: Mapping[str, str | tuple[str, ...]]) -> Iterator[str]:
    for name, words in notation.by_name(wanted).items():
        reason = seen.jobs.get(name, _ABSENT).reason
        for word in words_of(words):
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
            yield f"{name} is on {plain(found) if found else 'no node'}"


OF_A_MOMENT: Final[Mapping[str, MomentCheck]] = {
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
