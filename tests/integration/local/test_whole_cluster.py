"""The real services on the real servers, started as a user starts them."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from makeway.client import Client
from makeway.context import find_context
from makeway.local.cluster import Wishes
from makeway.local.lifecycle import bring_up, look, take_down
from makeway.local.processes import is_alive
from makeway.local.state_file import ChildState, Phase
from makeway_schemas.job_spec import JobSpec
from makeway_schemas.states import JobState


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "a cluster"
    yield folder
    take_down(folder, grace_seconds=0.5, wipe=True)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


def connect(root: Path) -> Client:
    context = find_context(root)
    return Client(context.url, context.token)


def submit(client: Client, tmp_path: Path, *command: str) -> str:
    spec = JobSpec(command=command, gpus=1, working_dir=str(tmp_path))
    return client.submit(spec).job_id


def marks(folder: Path) -> list[str]:
    """What the job wrote: one line a run."""
    path = folder / "runs"
    return path.read_text().split() if path.exists() else []


SLEEPER = ("sh", "-c", "echo $MAKEWAY_RUN >> runs; exec sleep 600")


def test_a_job_outlives_down_and_up_and_a_killed_supervisor(root: Path, tmp_path: Path) -> None:
    up = bring_up(root, Wishes(simulate="1xA100-80GB"))
    with connect(root) as client:
        job = submit(client, tmp_path, *SLEEPER)
        wait_until(lambda: marks(tmp_path) == ["1"], "the first run started")
    take_down(root, grace_seconds=1)
    children = [child.process for child in up.state.children.values() if child.process is not None]
    assert not any(is_alive(process) for process in (up.state.supervisor, *children))
    bring_up(root)
    wait_until(lambda: marks(tmp_path) == ["1", "2"], "the second run started after down and up")
    state = look(root)
    assert state is not None
    os.kill(state.supervisor.pid, signal.SIGKILL)
    wait_until(lambda: look(root) is None, "the supervisor is gone")
    bring_up(root)
    with connect(root) as client:
        wait_until(lambda: client.job(job).state is JobState.RUNNING, "the run is adopted")
        assert marks(tmp_path) == ["1", "2"]
        client.cancel(job)
        wait_until(lambda: client.job(job).state is JobState.CANCELLED, "the cancel is booked")


def test_every_service_comes_back_after_a_kill(root: Path) -> None:
    bring_up(root, Wishes(simulate="1xA100-80GB"))
    state = look(root)
    assert state is not None
    for child in state.children.values():
        assert child.process is not None
        os.kill(child.process.pid, signal.SIGKILL)

    def all_back() -> bool:
        now = look(root)
        return (
            now is not None
            and now.phase is Phase.READY
            and all(child.restarts >= 1 and child.state is ChildState.HEALTHY for child in now.children.values())
        )

    wait_until(all_back, "everything is back", seconds=90)
    with connect(root) as client:
        wait_until(lambda: client.cluster().nodes_ready == 1, "the node is ready again")
