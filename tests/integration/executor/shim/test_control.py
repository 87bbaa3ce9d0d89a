"""The control socket: what the job may say, what only the agent may, and that nothing said there does harm."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from makeway_executor.run_folder import Journal
from makeway_executor.shim import watch_line
from shim_runs import KEY, JobSide, ShimRun, Shims, until

SHIM_SOURCES = Path(__file__).parents[4] / "services" / "executor" / "shim"


@pytest.fixture
def run(shims: Shims) -> ShimRun:
    run = shims.start("/bin/sleep", "300")
    run.event("started")
    return run


def test_an_ack_is_answered_once_it_is_kept(run: ShimRun) -> None:
    job = run.job()
    assert job.ask({"op": "ack", "step": 40, "bytes": 1024, "fraction": 0.25, "epoch": 2}) == {"ok": True}
    kept = run.folder.read_journal().ack
    assert kept is not None
    assert (kept["step"], kept["bytes"], kept["fraction"], kept["epoch"]) == (40, 1024, 0.25, 2)
    assert run.event("ack")["step"] == 40


def test_what_an_ack_does_not_say_is_left_out(run: ShimRun) -> None:
    run.job().ask({"op": "ack", "step": 0})
    assert set(run.event("ack")) == {"step", "realtime_ns", "boottime_ns"}


def test_acks_resume_and_done_are_in_the_end(run: ShimRun) -> None:
    job = run.job()
    assert job.ask({"op": "resumed", "step": 7, "load_seconds": 1.5})["ok"]
    assert job.ask({"op": "ack", "step": 8})["ok"]
    assert job.ask({"op": "ack", "step": 9})["ok"]
    assert job.ask({"op": "done"})["ok"]
    run.stop(grace=30)
    end = run.end()
    assert (end["resumed"]["step"], end["resumed"]["load_seconds"]) == (7, 1.5)
    assert (end["ack"]["step"], end["done"], end["notice_delivered"]) == (9, True, True)


def test_what_was_promised_survives_the_death_of_the_shim(run: ShimRun) -> None:
    job = run.job()
    job.ask({"op": "ack", "step": 3})
    job.ask({"op": "done"})
    pid = run.event("started")["pid"]
    os.kill(run.pid, signal.SIGKILL)
    until(run.exited)
    os.kill(pid, signal.SIGKILL)
    run.hung_up = True
    journal = run.folder.read_journal()
    assert journal.ack is not None
    assert (journal.ack["step"], journal.done) == (3, True)
    assert run.folder.read_started()["pid"] == pid
    os.close(until(run.folder.try_lock))


def test_a_half_written_last_line_of_the_journal_is_ignored(run: ShimRun) -> None:
    run.job().ask({"op": "ack", "step": 3})
    path = run.folder.path / "journal.jsonl"
    path.write_bytes(path.read_bytes() + b'{"ack":{"step":99')
    kept = run.folder.read_journal().ack
    assert kept is not None
    assert kept["step"] == 3


def test_an_empty_folder_has_an_empty_journal(run: ShimRun) -> None:
    assert run.folder.read_journal() == Journal()


def test_a_long_journal_starts_afresh_and_keeps_what_counts(run: ShimRun) -> None:
    job = run.job()
    job.ask({"op": "resumed", "step": 1})
    for step in range(1200):
        job.ask({"op": "ack", "step": step})
    assert (run.folder.path / "journal.jsonl").stat().st_size < 80_000
    journal = run.folder.read_journal()
    assert journal.ack is not None
    assert journal.resumed is not None
    assert (journal.ack["step"], journal.resumed["step"]) == (1199, 1)


def test_an_ack_on_a_full_disk_is_answered_with_an_error_and_counts_for_nothing(run: ShimRun) -> None:
    job = run.job()
    before = resource.prlimit(run.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    answer = job.ask({"op": "ack", "step": 4})
    assert not answer["ok"]
    assert "not kept" in answer["error"]
    resource.prlimit(run.pid, resource.RLIMIT_FSIZE, before)
    assert run.folder.read_journal() == Journal()
    assert job.ask({"op": "ack", "step": 5})["ok"]
    run.stop(grace=30)
    assert run.end()["ack"]["step"] == 5


def test_status_says_whether_a_stop_is_wanted(shims: Shims) -> None:
    run = shims.shell("trap '' TERM; echo ready; sleep 300 & wait; sleep 300")
    until(run.log)
    job = run.job()
    assert job.ask({"op": "status"}) == {"ok": True, "stop": False}
    run.stop(grace=30)
    run.event("notice_delivered")
    answer = job.ask({"op": "status"})
    assert (answer["stop"], answer["cause"]) == (True, "preempt")
    assert 25 < answer["grace_left_seconds"] <= 30


def test_a_job_can_wait_for_the_notice(shims: Shims) -> None:
    run = shims.shell("trap '' TERM; echo ready; sleep 300 & wait; sleep 300")
    until(run.log)
    waiting, other = run.job(), run.job()
    waiting.socket.sendall(b'{"op":"wait"}\n')
    assert other.ask({"op": "status"})["stop"] is False
    run.stop(grace=30)
    assert waiting.answer()["cause"] == "preempt"
    assert other.ask({"op": "wait"})["stop"] is True


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"nonsense",
        b"[1]",
        b'{"op":"ack"}',
        b'{"op":"ack","step":-1}',
        b'{"op":"ack","step":1.5}',
        b'{"op":"ack","step":"1"}',
        b'{"op":"ack","step":9223372036854775808}',
        b'{"op":"ack","step":1,"step":2}',
        b'{"op":"ack","step":1,"fraction":1.1}',
        b'{"op":"ack","step":1,"fraction":NaN}',
        b'{"op":"ack","step":1,"bytes":1e400}',
        b'{"op":"ack","step":0x10}',
        b'{"op":"ack","step":01}',
        b'{"op":"ack","step":{"a":1}}',
        b'{"op":"ack","step":1} {"op":"done"}',
        b'{"op":"ack\x00","step":1}',
        b'{"op":"ack","step":1',
        b'{"op":"explode"}',
        b'{"op":1}',
        b'{"op":"' + b"a" * 500 + b'"}',
        b'{"op":"resumed","step":1,"load_seconds":-1}',
        b"{" + b",".join(b'"%d":1' % n for n in range(40)) + b"}",
        b"x" * 5000,
    ],
)
def test_a_bad_line_is_refused_and_hurts_nothing(run: ShimRun, line: bytes) -> None:
    job = run.job()
    if line:
        answer = job.ask(line)
        assert answer["ok"] is False
        assert answer["error"]
    assert job.ask(b'{"op":"status"}') == {"ok": True, "stop": False}
    assert run.folder.read_journal() == Journal()


def test_a_line_may_come_in_pieces_and_lines_together(run: ShimRun) -> None:
    job = run.job()
    job.socket.sendall(b'{"op":"st')
    run.job().ask({"op": "status"})
    job.socket.sendall(b'atus"}\n{"op":"ack","step":1}\n')
    assert job.answer() == {"ok": True, "stop": False}
    assert job.answer() == {"ok": True}


@pytest.mark.parametrize("line", [b'{"op":"stop","cause":"cancel","grace_seconds":0}', b'{"op":"time_limit"}'])
def test_only_the_agent_may_stop_a_run_or_change_its_limit(run: ShimRun, line: bytes) -> None:
    answer = run.job().ask(line)
    assert answer == {"ok": False, "error": "only the agent may ask for this"}


@pytest.mark.parametrize("message", [{"op": "watch"}, {"op": "watch", "key": "wrong"}, {"op": "watch", "key": 5}])
def test_watching_needs_the_key(run: ShimRun, message: dict[str, Any]) -> None:
    assert not run.job().ask(message)["ok"]


def test_the_agents_messages_are_checked_too(run: ShimRun) -> None:
    agent = run.job()
    assert agent.ask(watch_line(KEY, first=99).rstrip())["ok"]
    for bad in (
        {"op": "stop", "grace_seconds": 1},
        {"op": "stop", "cause": 'x"y', "grace_seconds": 1},
        {"op": "stop", "cause": "preempt"},
        {"op": "stop", "cause": "preempt", "grace_seconds": -1},
        {"op": "stop", "cause": "preempt", "grace_seconds": 1, "signal": 65},
        {"op": "time_limit", "remaining_seconds": -1},
    ):
        assert not agent.ask(bad)["ok"], bad
    assert run.job().ask({"op": "status"})["stop"] is False


def test_the_shim_outlives_the_agent_and_tells_the_next_one_everything(run: ShimRun) -> None:
    run.job().ask({"op": "ack", "step": 1})
    run.job().ask({"op": "ack", "step": 2})
    pid = run.event("started")["pid"]
    run.reconnect()
    assert run.event("ack")["step"] == 2
    assert run.event("started")["pid"] == pid
    numbers = [line["sequence"] for line in run.lines if "sequence" in line]
    assert numbers == sorted(set(numbers))


def test_a_watcher_may_ask_from_a_number_on(run: ShimRun) -> None:
    run.job().ask({"op": "ack", "step": 1})
    agent = run.job()
    agent.ask(watch_line(KEY, first=2).rstrip())
    assert agent.answer()["event"] == "ack"


def test_more_connections_than_fit_are_turned_away_with_a_word(run: ShimRun) -> None:
    sides = [run.job() for _ in range(15)]
    assert all(side.ask({"op": "status"})["ok"] for side in sides)
    assert run.job().answer() == {"ok": False, "error": "too many connections"}
    sides[0].close()
    until(lambda: "stop" in fresh_answer(run))


def fresh_answer(run: ShimRun) -> dict[str, Any]:
    side = JobSide(run.control_path)
    try:
        return side.ask({"op": "status"})
    except (OSError, ValueError):
        return {}
    finally:
        side.close()


def test_who_does_not_read_is_let_go_and_keeps_nobody_waiting(run: ShimRun) -> None:
    deaf = run.job()
    deaf.socket.setblocking(False)
    sent = 0
    try:
        while sent < 4_000_000:
            sent += deaf.socket.send(b'{"op":"status"}\n' * 100)
    except (BlockingIOError, ConnectionResetError, BrokenPipeError):
        pass
    assert run.job().ask({"op": "status"})["ok"]


@pytest.fixture(scope="module")
def checked_shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shim with the compiler's address and undefined-behaviour checks."""
    target = tmp_path_factory.mktemp("checked") / "makeway-shim"
    command = ["cc", "-std=c11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run([*command, "-o", str(target), *map(str, sorted(SHIM_SOURCES.glob("*.c")))], check=True)
    return target


@pytest.fixture
def checked_run(tmp_path: Path, sockets: Path, checked_shim: Path) -> Iterator[ShimRun]:
    (tmp_path / "checked").mkdir()
    shims = Shims(tmp_path / "checked", sockets, shim_path=checked_shim)
    run = shims.start("/bin/sleep", "300")
    run.event("started")
    yield run
    shims.close()


def random_line(randomly: random.Random) -> bytes:
    good = json.dumps(
        {
            "op": randomly.choice(["ack", "resumed", "done", "status", "watch", "stop", "time_limit", "x"]),
            randomly.choice(["step", "cause", "key", "bytes"]): randomly.choice(
                [0, -1, 2**63, 1.5, "a" * randomly.randrange(200), None, True, 'q"\\', KEY, [1], {"a": 1}]
            ),
        }
    ).encode()
    line = bytearray(good)
    for _ in range(randomly.randrange(4)):
        line[randomly.randrange(len(line))] = randomly.randrange(256)
    if randomly.random() < 0.05:
        line *= 200
    return bytes(line) + (b"\n" if randomly.random() < 0.9 else b"")


def test_random_lines_do_no_harm_under_the_compilers_checks(checked_run: ShimRun) -> None:
    randomly = random.Random(20)
    for _ in range(60):
        side = socket.socket(socket.AF_UNIX)
        side.connect(checked_run.control_path)
        side.settimeout(5)
        try:
            for _ in range(40):
                side.sendall(random_line(randomly))
        except OSError:
            pass  # turned away: too many at once, or it did not read
        side.close()
    assert until(lambda: fresh_answer(checked_run))["ok"]
    checked_run.stop(grace=30)
    assert checked_run.end()["notice_delivered"]
