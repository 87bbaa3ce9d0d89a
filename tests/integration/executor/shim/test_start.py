"""What a job finds when it starts, and how a start that fails is told."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from makeway_executor.run_folder import RunFolder
from shim_runs import Shims, until


def test_the_end_tells_exit_code_times_and_log_size(shims: Shims) -> None:
    run = shims.shell("echo hello; exit 3")
    end = run.end()
    assert (end["exit_code"], end["signal"], end["start_error"]) == (3, None, None)
    assert run.log() == b"hello\n"
    assert end["log_bytes"] == 6
    assert end["started"]["boottime_ns"] <= end["exited"]["boottime_ns"] <= end["emptied"]["boottime_ns"]
    assert not end["notice_delivered"]
    assert end == run.folder.read_end()


def test_a_death_by_signal_is_told_as_one(shims: Shims) -> None:
    end = shims.shell("kill -SEGV $$").end()
    assert (end["exit_code"], end["signal"]) == (None, signal.SIGSEGV)


@pytest.mark.parametrize(
    ("command", "fields", "step", "text"),
    [
        ("/no/such/program", {}, "exec", "No such file or directory"),
        ("no-such-program-on-the-path", {}, "exec", "No such file or directory"),
        ("/etc/passwd", {}, "exec", "Permission denied"),
        ("/bin/true", {"working_dir": "/no/such/folder"}, "working_dir", "No such file or directory"),
        ("/bin/true", {"working_dir": "/etc/passwd"}, "working_dir", "Not a directory"),
    ],
)
def test_a_failed_start_is_told_by_name_and_is_no_exit(
    shims: Shims, command: str, fields: dict[str, str], step: str, text: str
) -> None:
    run = shims.start(command, **fields)
    end = run.end()
    assert (end["start_error"]["step"], end["start_error"]["text"]) == (step, text)
    assert (end["exit_code"], end["signal"], end["started"]) == (None, None, None)
    assert not any(line.get("event") == "started" for line in run.lines)


def test_the_jobs_own_path_finds_its_program(shims: Shims, tmp_path: Path) -> None:
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    run = shims.start("only-here", env={"PATH": str(tmp_path)})
    assert run.end()["exit_code"] == 0
    assert run.log() == b"found\n"


def test_a_job_starts_clean(shims: Shims) -> None:
    """The three standard descriptors, no blocked signal, its own session, the environment it was given."""
    run = shims.python(
        "import os, json; fds = sorted(int(f) for f in os.listdir('/proc/self/fd'))[:-1];"
        "status = dict(l.split(':\\t') for l in open('/proc/self/status').read().splitlines() if ':\\t' in l);"
        "print(json.dumps([fds, status['SigBlk'], os.getsid(0) == os.getpid(), dict(os.environ), os.umask(0),"
        "os.readlink('/proc/self/fd/0')]))",
        env={"ONLY": "this"},
    )
    run.end()
    fds, blocked, leads, env, umask, stdin = json.loads(run.log())
    assert fds == [0, 1, 2]
    assert int(blocked, 16) == 0
    assert leads
    assert env.pop("LC_CTYPE", None) in (None, "C.UTF-8")  # python's own
    assert env == {"ONLY": "this"}
    assert umask == 0o022
    assert stdin == "/dev/null"


def test_no_signal_is_ignored_in_the_job_though_the_agent_ignores_some(shims: Shims) -> None:
    run = shims.start("/bin/grep", "SigIgn", "/proc/self/status")
    run.end()
    assert int(run.log().split()[1], 16) & 0x7FFFFFFF == 0  # 1 to 31


def test_a_shim_that_finds_an_end_never_executes(shims: Shims, tmp_path: Path) -> None:
    intent = shims.intent(["/bin/sh", "-c", f"touch {tmp_path}/ran"])
    folder = RunFolder(shims.root, intent.run_id)
    lock = folder.create()
    folder.write_intent(intent)
    folder.write_end({"version": 1, "tombstone": True})
    pid, connection = shims.spawner.spawn(folder, lock, intent.control_path)
    _, status = os.waitpid(pid, 0)
    connection.close()
    assert os.waitstatus_to_exitcode(status) == 4
    assert not (tmp_path / "ran").exists()
    assert folder.read_end() == {"version": 1, "tombstone": True}


def test_a_shim_without_the_lock_never_executes(shims: Shims, tmp_path: Path) -> None:
    run = shims.shell("sleep 60")
    run.event("started")
    other = os.open(run.folder.path / "lock", os.O_RDWR)
    intent = shims.intent(["/bin/touch", f"{tmp_path}/ran"], control_path=str(shims.sockets / "second"))
    pid, connection = shims.spawner.spawn(run.folder, other, intent.control_path)
    _, status = os.waitpid(pid, 0)
    connection.close()
    assert os.waitstatus_to_exitcode(status) == 3
    assert run.folder.try_lock() is None


def test_the_lock_is_free_once_the_shim_has_ended(shims: Shims) -> None:
    run = shims.start("/bin/true")
    run.end()
    lock = until(run.folder.try_lock)
    os.close(lock)


def test_the_control_socket_is_gone_after_the_end(shims: Shims) -> None:
    run = shims.start("/bin/true")
    run.end()
    assert not Path(run.control_path).exists()


def test_a_cut_off_intent_ends_the_shim_and_says_why(shims: Shims) -> None:
    intent = shims.intent(["/bin/true"])
    folder = RunFolder(shims.root, intent.run_id)
    lock = folder.create()
    (folder.path / "intent").write_bytes(intent.to_bytes()[:-9])
    pid, connection = shims.spawner.spawn(folder, lock, intent.control_path)
    _, status = os.waitpid(pid, 0)
    connection.close()
    assert os.waitstatus_to_exitcode(status) == 5
    assert "intent" in (folder.path / "shim.log").read_text()
