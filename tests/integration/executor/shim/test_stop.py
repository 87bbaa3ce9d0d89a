"""Notice, grace, kill: the whole tree, never early, and who exited before it keeps its result."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from shim_runs import ShimRun, Shims, until

PF_EXITING = 0x4

# Python's print writes the end of a line by itself: lines of several processes, or of one that is stopped, would mix.
SAVES_FOR_A_WHILE = (
    "import os, signal, time, sys\n"
    "def save(*_):\n time.sleep(0.3); os.write(1, b'saved\\n'); sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, save); os.write(1, b'ready\\n')\n"
    "while True: time.sleep(60)"
)
IGNORES = (
    "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.write(1, b'ready\\n')\n"
    "while True: time.sleep(60)"
)


def ready(run: ShimRun, count: int = 1) -> None:
    until(lambda: run.log().count(b"ready\n") >= count)


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def processes_naming(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if text.encode() in line and alive(int(entry.name)):
            found.append(entry.name)
    return found


def seconds(end: dict[str, dict[str, int]], first: str, last: str) -> float:
    return (end[last]["boottime_ns"] - end[first]["boottime_ns"]) / 1e9


def test_an_exit_after_the_notice_says_so_with_the_exit_code(shims: Shims) -> None:
    run = shims.python(SAVES_FOR_A_WHILE)
    ready(run)
    run.stop(grace=10)
    notice = run.event("notice_delivered")
    assert (notice["cause"], notice["signal"], notice["grace_seconds"]) == ("preempt", signal.SIGTERM, 10.0)
    end = run.end()
    assert (end["exit_code"], end["notice_delivered"], end["forced"]) == (0, True, False)
    assert end["stop_cause"] == "preempt"
    assert run.log() == b"ready\nsaved\n"


def test_the_chosen_signal_carries_the_notice(shims: Shims) -> None:
    run = shims.python(SAVES_FOR_A_WHILE.replace("SIGTERM", "SIGUSR1"))
    ready(run)
    run.stop(number=signal.SIGUSR1)
    assert run.end()["exit_code"] == 0


def test_who_ignores_the_notice_is_killed_when_the_grace_is_over_and_not_before(shims: Shims) -> None:
    run = shims.python(IGNORES)
    ready(run)
    run.stop(grace=0.5)
    end = run.end()
    assert (end["signal"], end["forced"]) == (signal.SIGKILL, True)
    assert 0.5 <= seconds(end, "noticed", "exited") < 3.0


def test_repeats_do_not_move_the_kill(shims: Shims) -> None:
    run = shims.python(IGNORES)
    ready(run)
    run.stop(grace=0.6)
    run.event("notice_delivered")
    run.stop(grace=0.0)
    run.stop(grace=60)
    end = run.end()
    assert 0.6 <= seconds(end, "noticed", "exited") < 3.0


def test_a_cancel_takes_over_a_preemption_and_may_shorten_its_grace(shims: Shims) -> None:
    run = shims.python(IGNORES)
    ready(run)
    run.stop("preempt", grace=60)
    run.stop("cancel", grace=0.3)
    assert run.event("stop_raised")["cause"] == "cancel"
    end = run.end()
    assert (end["stop_cause"], end["forced"]) == ("cancel", True)


def test_a_cancel_never_lengthens_the_grace(shims: Shims) -> None:
    run = shims.python(IGNORES)
    ready(run)
    run.stop("preempt", grace=0.4)
    run.stop("cancel", grace=60)
    end = run.end()
    assert end["stop_cause"] == "cancel"
    assert 0.4 <= seconds(end, "noticed", "exited") < 3.0


@pytest.mark.parametrize(
    ("first", "second"), [("cancel", "preempt"), ("cancel", "time_limit"), ("time_limit", "drain")]
)
def test_a_lower_cause_changes_nothing(shims: Shims, first: str, second: str) -> None:
    run = shims.python(IGNORES)
    ready(run)
    run.stop(first, grace=0.4)
    run.stop(second, grace=0.0)
    end = run.end()
    assert end["stop_cause"] == first
    assert seconds(end, "noticed", "exited") >= 0.4


def test_the_notice_reaches_the_whole_tree_also_who_left_the_session(shims: Shims, tmp_path: Path) -> None:
    script = tmp_path / "saves.py"
    script.write_text(SAVES_FOR_A_WHILE)
    run = shims.shell(f"saves='{sys.executable} -ISu {script}'; setsid $saves & (setsid $saves &); $saves; wait")
    ready(run, 3)
    run.stop(grace=10)
    end = run.end()
    assert not end["forced"]
    assert run.log().count(b"saved") == 3


def test_the_rest_of_the_tree_has_its_grace_though_the_main_process_died_at_once(shims: Shims, tmp_path: Path) -> None:
    """A shell dies of its SIGTERM while the training below it is still saving."""
    script = tmp_path / "saves.py"
    script.write_text(SAVES_FOR_A_WHILE)
    run = shims.shell(f"{sys.executable} -ISu {script}; echo never")
    ready(run)
    run.stop(grace=10)
    end = run.end()
    assert (end["signal"], end["forced"]) == (signal.SIGTERM, False)
    assert run.log() == b"ready\nsaved\n"


def test_the_kill_reaches_the_whole_tree(shims: Shims, tmp_path: Path) -> None:
    script = tmp_path / "ignores.py"
    script.write_text(IGNORES + "\n")
    run = shims.shell(
        f"trap '' TERM; setsid {sys.executable} -ISu {script} & {sys.executable} -ISu {script} & wait; wait; sleep 60"
    )
    ready(run, 2)
    run.stop(grace=0.2)
    assert run.end()["forced"]
    assert not processes_naming(str(script))


def test_a_stopped_process_is_woken_for_its_notice(shims: Shims) -> None:
    run = shims.python(SAVES_FOR_A_WHILE)
    ready(run)
    os.kill(run.event("started")["pid"], signal.SIGSTOP)
    run.stop(grace=30)
    end = run.end()
    assert (end["exit_code"], end["forced"]) == (0, False)


def test_what_the_main_process_leaves_behind_is_stopped_and_its_result_stands(shims: Shims) -> None:
    run = shims.shell("setsid sleep 300 & setsid sh -c 'sleep 300 & sleep 300' & sleep 0.1; exit 7")
    end = run.end()
    assert (end["exit_code"], end["notice_delivered"]) == (7, False)
    assert end["leftovers"] >= 2


def test_leftovers_that_ignore_sigterm_are_killed(shims: Shims) -> None:
    run = shims.shell(f"{sys.executable} -ISu -c '{IGNORES}' & sleep 1; exit 0", leftover_grace_seconds=0.2)
    end = run.end()
    assert (end["exit_code"], end["forced"]) == (0, False)


def test_a_script_that_signals_its_process_group_does_not_hit_the_shim(shims: Shims) -> None:
    assert shims.shell("kill -9 0").end()["signal"] == signal.SIGKILL


def test_the_time_limit_holds_with_the_agent_gone(shims: Shims) -> None:
    run = shims.python(IGNORES, time_limit_seconds=0.3, time_limit_grace_seconds=0.3)
    run.event("started")
    run.connection.close()
    end = until(run.folder.read_end)
    until(run.exited)
    run.hung_up = True
    assert (end["stop_cause"], end["notice_delivered"], end["forced"]) == ("time_limit", True, True)
    assert seconds(end, "started", "noticed") >= 0.3
    assert seconds(end, "noticed", "exited") >= 0.3


def test_the_time_limit_can_be_changed_and_lifted(shims: Shims) -> None:
    run = shims.python(SAVES_FOR_A_WHILE, time_limit_seconds=0.5)
    ready(run)
    run.send(b'{"op":"time_limit","remaining_seconds":null}\n')
    begin = time.monotonic()
    until(lambda: time.monotonic() - begin > 0.8)
    assert alive(run.event("started")["pid"])
    run.send(b'{"op":"time_limit","remaining_seconds":0.1}\n')
    assert run.end()["stop_cause"] == "time_limit"


def test_what_has_ended_by_itself_before_the_notice_keeps_its_result(shims: Shims) -> None:
    os.mkfifo(shims.root / "gate")
    run = shims.shell("read line < gate; exit 0")
    pid = run.event("started")["pid"]
    gate = os.open(shims.root / "gate", os.O_WRONLY)
    os.kill(run.pid, signal.SIGSTOP)  # the shim looks away while both happen
    run.stop()
    os.close(gate)
    until(lambda: not alive(pid))
    os.kill(run.pid, signal.SIGCONT)
    end = run.end()
    assert (end["exit_code"], end["notice_delivered"], end["stop_cause"]) == (0, False, "preempt")


def flags(pid: int) -> tuple[str, int]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[6])


def test_what_is_tearing_itself_down_keeps_its_result(shims: Shims) -> None:
    """With hundreds of MiB to give back a process is no zombie for a while after it began to exit."""
    seen = 0
    for _ in range(10):
        run = shims.python(
            "import os, sys, mmap; m = mmap.mmap(-1, 400 << 20); m[::4096] = b'x' * (400 << 8)\n"
            "os.write(1, b'ready\\n'); os.kill(os.getpid(), 19); os._exit(0)"
        )
        pid = run.event("started")["pid"]
        until(lambda pid=pid: flags(pid)[0] == "T")
        os.kill(run.pid, signal.SIGSTOP)
        run.stop(grace=30)
        os.kill(pid, signal.SIGCONT)
        state, bits = flags(pid)
        while not bits & PF_EXITING:
            state, bits = flags(pid)
        os.kill(run.pid, signal.SIGCONT)
        seen += state != "Z"
        end = run.end()
        assert (end["exit_code"], end["notice_delivered"]) == (0, False)
        if seen >= 3:
            return
    assert seen, "no process was caught between beginning to exit and being a zombie"


def test_a_leader_thread_that_ended_alone_does_not_hide_a_living_process(shims: Shims, tmp_path: Path) -> None:
    """pthread_exit in the main thread sets PF_EXITING on it for good; the process lives and can be noticed."""
    run = shims.python(
        "import ctypes, threading, time, os\n"
        "def work():\n os.write(1, b'ready\\n')\n while True: time.sleep(60)\n"
        "threading.Thread(target=work).start(); time.sleep(0.1); ctypes.CDLL(None).pthread_exit(0)"
    )
    pid = run.event("started")["pid"]
    ready(run)
    until(lambda: flags(pid)[1] & PF_EXITING)
    run.stop(grace=5)
    assert run.end()["notice_delivered"]


def test_a_stop_is_idempotent_after_the_end_began(shims: Shims) -> None:
    run = shims.shell("exit 0")
    run.event("end")
    with contextlib.suppress(OSError):
        run.stop()
    assert run.end()["notice_delivered"] is False


def test_a_fork_bomb_is_killed(shims: Shims) -> None:
    run = shims.python(
        "import os, signal, time; signal.signal(15, signal.SIG_IGN); os.write(1, b'ready\\n')\n"
        "if os.fork():\n while True: time.sleep(60)\n"
        "for _ in range(5): os.fork()\n"
        "while True:\n  pid = os.fork()\n  if pid: os._exit(0)\n  time.sleep(0.001)"
    )
    ready(run)
    run.stop(grace=0.1)
    assert run.end()["forced"]
