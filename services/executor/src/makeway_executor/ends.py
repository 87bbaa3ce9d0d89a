"""Ends: what a shim wrote down, and what is written where there was no shim to do it."""

from __future__ import annotations

import errno
from typing import Any, Final

from makeway_schemas.facts import Ack, RunEnd
from makeway_schemas.plans import PlannedRun
from makeway_schemas.states import StopCause

from makeway_executor.run_folder import Journal, Record

_NS_PER_SECOND: Final = 1_000_000_000
_TEXT_MAX: Final = 2000


def ack_of(record: Record) -> Ack:
    """An ack as the shim keeps it."""
    epoch = record.get("epoch")
    return Ack(
        step=record["step"],
        epoch=None if epoch is None else int(epoch),
        bytes=record.get("bytes"),
        fraction=record.get("fraction"),
    )


def end_of(record: Record, planned: PlannedRun | None) -> RunEnd:
    """The end that a shim or an agent wrote."""
    if "outcome" in record:
        return RunEnd.model_validate(record["end"])
    failed = record["start_error"]
    return RunEnd(
        outcome="exited" if failed is None else "start_failed",
        exit_code=record["exit_code"],
        signal=record["signal"],
        cause=_cause(record["stop_cause"]),
        notice_delivered=record["notice_delivered"],
        done=record["done"],
        forced=record["forced"],
        ack=None if record["ack"] is None else ack_of(record["ack"]),
        run_seconds=_between(record["started"], record["exited"]),
        log_bytes=record["log_bytes"],
        message=_message(record, planned),
    )


def ended_at_ns(record: Record) -> int | None:
    """When the run's tree was gone, on this boot's clock; None when that is not known."""
    emptied = record.get("emptied")
    return None if emptied is None else int(emptied["boottime_ns"])


def never_started(cause: StopCause | None, message: str = "") -> RunEnd:
    """A run that never had a process here and never will."""
    return RunEnd(outcome="never_started", cause=cause, message=message[:_TEXT_MAX])


def start_failed(message: str) -> RunEnd:
    """A run that asks for what nobody could start."""
    return RunEnd(outcome="start_failed", message=message[:_TEXT_MAX])


def start_lost(message: str) -> RunEnd:
    """A run that this node could not start: it goes back into the queue without counting against its job."""
    return RunEnd(outcome="lost", message=message[:_TEXT_MAX])


def lost(message: str, journal: Journal, log_bytes: int, run_seconds: float) -> RunEnd:
    """A run whose exit nobody saw; how long it ran and what its job was promised to be kept still count."""
    return RunEnd(
        outcome="lost",
        run_seconds=run_seconds,
        done=journal.done,
        ack=None if journal.ack is None else ack_of(journal.ack),
        log_bytes=log_bytes,
        message=message[:_TEXT_MAX],
    )


def seconds_known(started: Record | None, journal: Journal, *, until_ns: int | None) -> float:
    """How long a run ran at least: until `until_ns` of this boot's clock, or (None: a former boot) its last word."""
    if started is None:
        return 0.0
    if until_ns is not None:
        return max(0, until_ns - int(started["boottime_ns"])) / _NS_PER_SECOND
    words = [int(word["boottime_ns"]) for word in (journal.ack, journal.resumed) if word is not None]
    return max(0, *words, int(started["boottime_ns"])) / _NS_PER_SECOND - int(started["boottime_ns"]) / _NS_PER_SECOND


def record_of(end: RunEnd, planned: PlannedRun | None) -> Record:
    """What an agent writes as `end.json`."""
    return {
        "version": 1,
        "outcome": end.outcome,
        "end": end.model_dump(mode="json"),
        "planned": None if planned is None else planned.model_dump(mode="json", exclude={"launch"}),
    }


def _cause(text: str | None) -> StopCause | None:
    return None if text is None else StopCause(text)


def _between(first: dict[str, Any] | None, last: dict[str, Any] | None) -> float:
    if first is None or last is None:
        return 0.0
    return max(0, int(last["boottime_ns"]) - int(first["boottime_ns"])) / _NS_PER_SECOND


def _message(record: Record, planned: PlannedRun | None) -> str:
    lost_bytes = record["log_lost_bytes"]
    failed = record["start_error"]
    if failed is None:
        return f"{lost_bytes} bytes of its log could not be written" if lost_bytes else ""
    launch = None if planned is None else planned.launch
    what = f"step {failed['step']}"
    if failed["step"] == "working_dir":
        named = None if launch is None else launch.working_dir
        what = f"working folder {named}" if named else "working folder"
    elif failed["step"] == "exec":
        what = f"program {launch.command[0]}" if launch is not None and launch.command else "script"
    name = errno.errorcode.get(failed["errno"], str(failed["errno"]))
    return f"{what}: {failed['text']} ({name})"[:_TEXT_MAX]
