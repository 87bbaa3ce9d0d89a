"""The frame of every service: signals end it gracefully, its exit code tells the supervisor."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, sys, time
from pathlib import Path
from makeway_runtime.errors import StuckService
from makeway_runtime.health import Check
from makeway_runtime.service import run
from makeway_runtime.settings import ServiceSettings

class Work:
    async def start(self):
        if {mode!r} == "bad_start":
            raise OSError("no database")
    async def run(self):
        if {mode!r} == "crash":
            raise ValueError("bug")
        if {mode!r} == "stuck":
            raise StuckService("inbox")
        if {mode!r} == "end":
            return
        if {mode!r} == "blocked":
            time.sleep(60)
        print("working", flush=True)
        await asyncio.Event().wait()
    async def stop(self):
        print("stopped", flush=True)
        if {mode!r} == "slow_stop":
            await asyncio.Event().wait()
    def checks(self):
        return []

here = Path({folder!r})
settings = ServiceSettings(state_dir=here, runtime_dir=here, health_file=here / "port", stop_timeout_seconds=0.2,
    watchdog_seconds={watchdog!r})
sys.exit(run(lambda settings: Work(), settings, name="test"))
"""


def started(mode: str, folder: Path) -> subprocess.Popen[str]:
    code = PROGRAM.format(mode=mode, folder=str(folder), watchdog=0.5 if mode == "blocked" else 60.0)
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=20)
    return process.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_gracefully_with_0(number: signal.Signals, tmp_path: Path) -> None:
    process = started("wait", tmp_path)
    if process.stdout is None or process.stdout.readline() != "working\n":
        pytest.fail(f"did not start: {ended(process)}")
    process.send_signal(number)
    code, out, _ = ended(process)
    assert (code, out) == (0, "stopped\n")
    assert not (tmp_path / "port").exists()


@pytest.mark.parametrize(("mode", "code"), [("crash", 70), ("end", 70), ("bad_start", 70), ("stuck", 75)])
def test_what_ends_by_itself_stops_and_says_so_by_its_code(mode: str, code: int, tmp_path: Path) -> None:
    answer = ended(started(mode, tmp_path))
    assert (answer[0], answer[1]) == (code, "stopped\n")


def test_a_loop_that_hangs_ends_the_process_and_shows_where(tmp_path: Path) -> None:
    code, _, err = ended(started("blocked", tmp_path))
    assert code == 1
    assert "Timeout" in err
    assert "in run" in err


def test_a_stop_that_hangs_is_cut_short(tmp_path: Path) -> None:
    process = started("slow_stop", tmp_path)
    if process.stdout is None or process.stdout.readline() != "working\n":
        pytest.fail(f"did not start: {ended(process)}")
    process.terminate()
    code, _, err = ended(process)
    assert code == 0
    assert "cut short" in err
