"""One real cluster for all tests of the command, on two simulated GPUs; tests wait for their own jobs only."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from makeway.client import Client
from makeway.context import find_context
from makeway.local.cluster import Wishes
from makeway.local.lifecycle import bring_up, take_down


@dataclass
class LiveCluster:
    """The command as a real process, and a client."""

    root: Path
    client: Client
    folder: Path

    def environment(self, **more: str) -> dict[str, str]:
        """A user's environment that knows this cluster."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return kept | {"MAKEWAY_STATE": str(self.root), "LANG": "C.UTF-8"} | more

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
        """Starts the command."""
        command = [sys.executable, "-m", "makeway.main", *arguments]
        pipe = subprocess.PIPE
        environment = self.environment(**more)
        # Unbuffered, so that a test may read a line and then communicate().
        return subprocess.Popen(command, 0, env=environment, cwd=self.folder, stdout=pipe, stderr=pipe)

    def run(self, *arguments: str, seconds: float = 60, **more: str) -> tuple[int, bytes, str]:
        """Exit code, stdout and stderr."""
        with self.start(*arguments, **more) as process:
            try:
                out, err = process.communicate(timeout=seconds)
            finally:
                process.kill()  # nothing to do where it has ended; a hanging one must not outlive its test
            return process.returncode, out, err.decode()


@pytest.fixture(scope="session")
def cluster_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("cli") / "a cluster"
    try:
        bring_up(root, Wishes(simulate="2xA100-80GB"))
        context = find_context(root)
        with Client(context.url, context.token) as client:
            deadline = time.monotonic() + 30
            while client.cluster().gpus < 2:
                assert time.monotonic() < deadline, "the node has not registered"
                time.sleep(0.05)
        yield root
    finally:
        take_down(root, grace_seconds=0.5, wipe=True)


@pytest.fixture
def live(cluster_root: Path, tmp_path: Path) -> Iterator[LiveCluster]:
    context = find_context(cluster_root)
    with Client(context.url, context.token) as client:
        yield LiveCluster(root=cluster_root, client=client, folder=tmp_path)
