"""makeway's own history, as `makeway export` writes it: one job event a line, JSON, in any order of jobs.

A line is an event as docs/events.md has it: `job_id`, `at`, `kind`, `state`, `run`, `data`, `sequence`. The first
`queued` event of a job carries in `data` what it asked for: `gpus`, `members`, `class`, `priority`, `team`,
`time_limit_seconds`, `submitted_at` (else the event's own time counts). The work of a job is the run time that brought
it on: of a run that was cut off the part up to its last ack, of the last run all. Jobs without GPUs, that never
started, or that are still going, are left out.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from makeway_schemas.job_spec import PRIORITY_MAX
from makeway_schemas.states import TERMINAL, JobState

from makeway_simulator.errors import TraceError
from makeway_simulator.limits import GPUS_MOST, SECONDS_MOST
from makeway_simulator.readers.table import Skipping, clipped, control_in, json_of, lines_of, seconds_of, shown
from makeway_simulator.trace import Trace, TraceJob

_STARTS_RUN: Final = frozenset({"running", "started"})
_ENDS_RUN: Final = frozenset({"requeued", "held"})
_TERMINAL: Final = frozenset(state.value for state in TERMINAL)
_STATES: Final = frozenset(state.value for state in JobState)
_NUMBER_MOST: Final = 2**53


@dataclass(frozen=True, kw_only=True, slots=True)
class _Event:
    job_id: str
    at: float
    sequence: int
    kind: str
    terminal: bool
    run: int | None
    data: Mapping[str, Any]


@dataclass(kw_only=True, slots=True)
class _History:
    asked: Mapping[str, Any] | None = None
    submitted_at: float = 0.0
    run: int | None = None
    started_at: float | None = None
    acked_at: float | None = None
    work: float = 0.0
    ended: bool = False
    events: list[_Event] = field(default_factory=list)


def read_event_log(path: Path, skipping: Skipping) -> Trace:
    """Read one log. Times count from the first submission. Raises TraceError."""
    histories: dict[str, _History] = {}
    for number, text in lines_of(path):
        if not text.strip():
            continue
        try:
            event = _event(str(path), number, text)
        except TraceError as error:
            skipping.note(error)
            continue
        histories.setdefault(event.job_id, _History()).events.append(event)
    found = [each for each in histories.items() if _told(each[1])]
    start = min((history.submitted_at for _, history in found), default=0.0)
    jobs = sorted((_job(job_id, history, start) for job_id, history in found), key=lambda job: job.submitted_at)
    return Trace(jobs=tuple(jobs), skipped=skipping.skipped)


def _event(path: str, number: int, text: str) -> _Event:
    value = json_of(path, number, text)
    if not isinstance(value, dict):
        raise TraceError(path, number, 1, "is no JSON object")
    job_id, kind, data = value.get("job_id"), value.get("kind"), value.get("data", {})
    if not isinstance(job_id, str) or not isinstance(kind, str) or not isinstance(data, dict):
        raise TraceError(path, number, 1, "needs `job_id` and `kind` as texts and `data` as an object")
    _check_texts(path, number, text, {"job_id": job_id, "kind": kind})
    if kind == "queued":
        _check(path, number, text, data)
    at = _moment(path, number, text, value.get("at"))
    sequence, run = (_number_of(path, number, text, value, name) for name in ("sequence", "run"))
    if kind == "queued" and "submitted_at" in data:
        at = _moment(path, number, text, data["submitted_at"], "submitted_at")
    state = value.get("state")
    if state is not None and (not isinstance(state, str) or state not in _STATES):
        problem = f"`state` {clipped(json.dumps(state))} is no state of a job"
        raise TraceError(path, number, _column(text, "state"), problem)
    return _Event(
        job_id=job_id, at=at, sequence=sequence or 0, kind=kind, terminal=state in _TERMINAL, run=run, data=data
    )  # fmt: skip


def _number_of(path: str, number: int, text: str, value: Mapping[str, Any], name: str) -> int | None:
    """A count that an event may have; null is none."""
    found = value.get(name)
    if found is not None and not (type(found) is int and 0 <= found <= _NUMBER_MOST):
        problem = f"`{name}` {clipped(json.dumps(found))} is no whole number within 0 to {_NUMBER_MOST}"
        raise TraceError(path, number, _column(text, name), problem)
    return found


def _check_texts(path: str, number: int, text: str, texts: Mapping[str, str]) -> None:
    """JSON can write any character in signs that are harmless themselves."""
    for name, each in texts.items():
        if (found := control_in(each)) is not None:
            problem = f"`{name}` holds the control character U+{ord(found):04X}"
            raise TraceError(path, number, _column(text, name), problem)


def _check(path: str, number: int, text: str, data: Mapping[str, Any]) -> None:
    for name in ("gpus", "members"):
        count = data.get(name, 1)
        if type(count) is not int or not 0 <= count <= GPUS_MOST:
            problem = f"`data.{name}` {clipped(json.dumps(count))} is no count up to {GPUS_MOST}"
            raise TraceError(path, number, _column(text, name), problem)
    if _gpus(data) > GPUS_MOST:
        raise TraceError(path, number, _column(text, "gpus"), f"`data.gpus` x members is more than {GPUS_MOST}")
    for name in ("class", "team"):
        if not isinstance(data.get(name), str | None):
            raise TraceError(path, number, _column(text, name), f"`data.{name}` is no text")
        _check_texts(path, number, text, {name: data.get(name) or ""})
    priority, limit = data.get("priority"), data.get("time_limit_seconds")
    if priority is not None and not (type(priority) is int and 0 <= priority <= PRIORITY_MAX):
        problem = f"`data.priority` is no whole number within 0 to {PRIORITY_MAX}"
        raise TraceError(path, number, _column(text, "priority"), problem)
    if limit is not None and not (type(limit) in (int, float) and 0 < limit <= SECONDS_MOST):
        problem = f"`data.time_limit_seconds` is no number above 0 and up to {SECONDS_MOST:g}"
        raise TraceError(path, number, _column(text, "time_limit_seconds"), problem)


def _moment(path: str, number: int, text: str, value: Any, name: str = "at") -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not abs(value) <= SECONDS_MOST:
            problem = f"`{name}` is no time: it is beyond {SECONDS_MOST:g} seconds"
            raise TraceError(path, number, _column(text, name), problem)
        return float(value)
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError as error:
        problem = f"`{name}` {shown(str(value))} is no date and time"
        raise TraceError(path, number, _column(text, name), problem) from error
    try:
        return seconds_of(at)
    except ValueError as error:
        raise TraceError(path, number, _column(text, name), f"`{name}` {error}") from error


def _column(text: str, name: str) -> int:
    return max(0, text.find(f'"{name}"')) + 1


def _told(history: _History) -> bool:
    """Go through a job's events in order; True if it came to an end and ran on GPUs."""
    for event in sorted(history.events, key=lambda each: (each.at, each.sequence)):
        if event.kind == "queued" and history.asked is None:
            history.asked, history.submitted_at = event.data, event.at
        elif event.kind in _STARTS_RUN:
            # A node that was silent tells again of a run that goes on: it has started once.
            if history.started_at is None or event.run != history.run:
                history.run, history.started_at, history.acked_at = event.run, event.at, None
        elif event.kind == "acked":
            history.acked_at = event.at
        elif history.started_at is not None and (event.terminal or event.kind in _ENDS_RUN):
            upto = event.at if event.terminal else history.acked_at
            history.work += max(0.0, upto - history.started_at) if upto is not None else 0.0
            history.started_at = None
            history.ended = history.ended or event.terminal
    return history.ended and history.asked is not None and history.work > 0 and _gpus(history.asked) > 0


def _gpus(asked: Mapping[str, Any]) -> int:
    return int(asked.get("gpus", 1) * asked.get("members", 1))


def _job(job_id: str, history: _History, start: float) -> TraceJob:
    asked = history.asked or {}
    limit = asked.get("time_limit_seconds")
    return TraceJob(
        job_id=job_id,
        submitted_at=history.submitted_at - start,
        gpus=_gpus(asked),
        work_seconds=history.work,
        class_name=asked.get("class"),
        priority=asked.get("priority"),
        team=asked.get("team") or "default",
        time_limit_seconds=float(limit) if limit is not None else None,
    )
