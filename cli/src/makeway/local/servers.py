"""What the embedded servers have in common, and how to run one without a supervisor (tests, benchmarks)."""

import subprocess
import time
from pathlib import Path
from typing import Protocol

from makeway.local.errors import ServerFailed
from makeway.local.processes import Launch, end, identify, launch

__all__ = ["Server", "ServerProcess"]

_POLL_SECONDS = 0.02


class Server(Protocol):
    """A server with a data folder: PostgreSQL or Kafka."""

    def prepare(self) -> None:
        """Make all that a start needs; safe to repeat, and after a power cut. May block for seconds."""

    def launch(self) -> Launch:
        """How to start the process."""

    def is_ready(self) -> bool:
        """Whether it serves requests; answers within about a second."""

    def wipe(self) -> None:
        """Remove its data; only while stopped."""


class ServerProcess:
    """A server and its one process, started and stopped by blocking calls."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process's id. Raises RuntimeError when it does not run."""
        if self._process is None:
            raise RuntimeError("the server does not run")
        return self._process.pid

    def start(self, *, timeout_seconds: float = 60.0) -> None:
        """Start and wait until it serves. Raises ServerFailed with the end of its log."""
        self.server.prepare()
        wanted = self.server.launch()
        self._process = launch(wanted)
        deadline = time.monotonic() + timeout_seconds
        while not self.server.is_ready():
            if self._process.poll() is not None:
                raise _failed(wanted, f"ended with {self._process.returncode} before it was ready")
            if time.monotonic() > deadline:
                self.kill()
                raise _failed(wanted, f"was not ready within {timeout_seconds:g} s")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Stop in order, by force when that takes too long; nothing to do when it does not run."""
        if self._process is None:
            return
        wanted = self.server.launch()
        identity = identify(self._process.pid)
        if identity is not None:
            end(identity, wanted.stop_signal, grace_seconds=wanted.stop_seconds)
        self._process.wait()
        self._process = None

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Stop in order and start again on the same data."""
        self.stop()
        self.start()

    def wipe(self) -> None:
        """Stop, forget all data, start again at the same address."""
        self.stop()
        self.server.wipe()
        self.start()


def _failed(wanted: Launch, what: str) -> ServerFailed:
    return ServerFailed(f"{Path(wanted.command[0]).name} {what}", log_path=wanted.log_path)
