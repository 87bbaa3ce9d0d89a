"""Ends as they are told, from what the shim or an agent wrote."""

from __future__ import annotations

from typing import Any

import pytest
from makeway_executor import ends
from makeway_executor.run_folder import Journal
from makeway_schemas.plans import Launch
from makeway_schemas.states import StopCause
from plans import planned


def record(**fields: Any) -> dict[str, Any]:
    moment = {"realtime_ns": 1, "boottime_ns": 1_000_000_000}
    return {
        "version": 1,
        "exit_code": 0,
        "signal": None,
        "start_error": None,
        "started": moment,
        "exited": {"realtime_ns": 2, "boottime_ns": 3_500_000_000},
        "emptied": {"realtime_ns": 3, "boottime_ns": 4_000_000_000},
        "stop_cause": None,
        "notice_delivered": False,
        "forced": False,
        "done": False,
        "ack": None,
        "log_bytes": 0,
        "log_lost_bytes": 0,
        **fields,
    }


def test_an_exit_is_told_with_its_time_and_result() -> None:
    end = ends.end_of(record(exit_code=3, log_bytes=7), planned(1))
    assert (end.outcome, end.exit_code, end.run_seconds, end.log_bytes) == ("exited", 3, 2.5, 7)
    assert ends.ended_at_ns(record()) == 4_000_000_000


def test_a_notice_and_what_was_acked_are_told() -> None:
    ack = {"step": 5, "bytes": 9, "fraction": 0.5, "epoch": 2.0, "boottime_ns": 1, "realtime_ns": 1}
    end = ends.end_of(record(stop_cause="cancel", notice_delivered=True, forced=True, ack=ack), planned(1))
    assert (end.cause, end.notice_delivered, end.forced) == (StopCause.CANCEL, True, True)
    assert end.ack is not None
    assert (end.ack.step, end.ack.epoch) == (5, 2)


@pytest.mark.parametrize(
    ("launch", "failed", "says"),
    [
        (Launch(command=("a", "b")), "exec", "program a: No such file or directory (ENOENT)"),
        (Launch(script="x"), "exec", "script: No such file or directory (ENOENT)"),
        (Launch(command=("a",), working_dir="/w"), "working_dir", "working folder /w: No such file"),
        (None, "fork", "step fork: "),
    ],
)
def test_a_failed_start_names_what_failed(launch: Launch | None, failed: str, says: str) -> None:
    start_error = {"step": failed, "errno": 2, "text": "No such file or directory"}
    end = ends.end_of(record(start_error=start_error, exit_code=None, started=None), planned(1, launch=launch))
    assert end.outcome == "start_failed"
    assert end.message.startswith(says)
    assert end.run_seconds == 0


def test_lost_log_bytes_are_said() -> None:
    assert "12 bytes" in ends.end_of(record(log_lost_bytes=12), None).message


def test_a_lost_run_keeps_what_its_job_was_promised() -> None:
    end = ends.lost("its shim died", Journal(ack={"step": 4}, done=True), 10, 7.0)
    assert end.ack is not None
    assert (end.outcome, end.done, end.ack.step, end.log_bytes, end.run_seconds) == ("lost", True, 4, 10, 7.0)


def test_a_lost_run_has_run_until_it_was_found_or_until_its_last_word_before_the_reboot() -> None:
    started, journal = {"boottime_ns": 5_000_000_000}, Journal(ack={"step": 4, "boottime_ns": 65_000_000_000})
    assert ends.seconds_known(started, journal, until_ns=95_000_000_000) == 90
    assert ends.seconds_known(started, journal, until_ns=None) == 60
    assert ends.seconds_known(started, Journal(), until_ns=None) == 0
    assert ends.seconds_known(None, journal, until_ns=95_000_000_000) == 0


def test_an_end_that_an_agent_wrote_comes_back_as_it_was() -> None:
    end = ends.never_started(StopCause.CANCEL, "why")
    assert ends.end_of(ends.record_of(end, planned(1)), None) == end
