"""Which processes belong to a cluster, and how they are ended."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from makeway.local.leftovers import SHIM_NAME, end_all, processes_of
from makeway.local.private_files import make_runtime_folder
from makeway.local.processes import identify, wait_for_end

NODES = Path("/nowhere/nodes")


@pytest.fixture
def runtime_folder() -> Iterator[Path]:
    folder = make_runtime_folder()
    yield folder
    folder.rmdir()


def until_it_shows(process: subprocess.Popen[bytes]) -> None:
    """Waits for its arguments: the kernel sets them a moment after the exec that lets Popen return."""
    deadline = time.monotonic() + 5
    while not Path(f"/proc/{process.pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def job(runtime_folder: Path, script: str) -> subprocess.Popen[bytes]:
    started = subprocess.Popen(
        ["sh", "-c", script], env={"MAKEWAY_CONTROL": f"{runtime_folder}/n/1", "PATH": "/usr/bin:/bin"}
    )
    until_it_shows(started)
    return started


def test_a_job_that_ignores_the_signal_is_killed_and_a_stranger_is_not(runtime_folder: Path) -> None:
    stubborn = job(runtime_folder, "trap '' TERM; while :; do sleep 0.05; done")
    stranger = job(runtime_folder.with_name("makeway-another"), "exec sleep 60")
    try:
        assert end_all(runtime_folder, NODES, grace_seconds=0.1) >= 1
        assert stubborn.wait(5) < 0
        assert stranger.poll() is None
        assert processes_of(runtime_folder, NODES) == []
    finally:
        stranger.kill()
        stranger.wait()


def test_a_shim_is_known_by_its_run_folder_and_goes_before_its_job(runtime_folder: Path, tmp_path: Path) -> None:
    code = "import time; time.sleep(60)"
    shim = subprocess.Popen([SHIM_NAME, "-c", code, str(tmp_path / "runs/1")], executable=sys.executable, env={})
    try:
        until_it_shows(shim)
        identity = identify(shim.pid)
        assert identity is not None
        assert identity in processes_of(runtime_folder, tmp_path)
        assert processes_of(runtime_folder, NODES) == []
        end_all(runtime_folder, tmp_path, grace_seconds=5)
        assert wait_for_end(identity, timeout_seconds=5)
    finally:
        shim.kill()
        shim.wait()


@pytest.mark.parametrize("folder", [Path(), Path("/"), Path("/tmp"), Path("makeway-x")])
def test_a_path_that_would_match_strangers_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="no runtime folder"):
        processes_of(folder, NODES)
