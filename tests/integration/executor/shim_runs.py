"""Real shims, started as the agent starts them. Tests wait on conditions, with a deadline."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from makeway_executor.intent import Intent
from makeway_executor.run_folder import RunFolder
from makeway_executor.shim import SHIM_PATH, LineReader, Spawner, connect, stop_line, watch_line

DEADLINE_SECONDS = 20.0
KEY = "0123456789abcdef"


def until(condition: Callable[[], Any], *, seconds: float = DEADLINE_SECONDS) -> Any:
    """Waits for a true answer and returns it; looks a hundred times a second."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError("the condition did not come true in time")
        select.select([], [], [], 0.01)
    return answer


class JobSide:
    """A connection as the job opens it."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(DEADLINE_SECONDS)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def ask(self, message: dict[str, Any] | bytes) -> dict[str, Any]:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.socket.sendall(line + b"\n")
        return self.answer()

    def answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.file.readline())
        return answer

    def close(self) -> None:
        self.file.close()
        self.socket.close()


class ShimRun:
    """One shim and the agent's connection to it."""

    def __init__(self, folder: RunFolder, pid: int, connection: socket.socket, control_path: str) -> None:
        self.folder = folder
        self.pid = pid
        self.connection = connection
        self.control_path = control_path
        self.reader = LineReader()
        self.lines: list[dict[str, Any]] = []
        self.hung_up = False
        self.sides: list[JobSide] = []

    def read(self) -> None:
        if self.hung_up or not select.select([self.connection], [], [], 0.05)[0]:
            return
        lines, self.hung_up = self.reader.read(self.connection)
        self.lines += lines

    def event(self, kind: str) -> dict[str, Any]:
        def found() -> Any:
            self.read()
            return next((line for line in self.lines if line.get("event") == kind), None)

        data: dict[str, Any] = until(found)["data"]
        return data

    def send(self, line: bytes) -> None:
        self.connection.sendall(line)

    def stop(self, cause: str = "preempt", *, grace: float = 10.0, number: int = signal.SIGTERM) -> None:
        self.send(stop_line(cause, grace, number))

    def job(self) -> JobSide:
        side = JobSide(self.control_path)
        self.sides.append(side)
        return side

    def end(self) -> dict[str, Any]:
        record = self.event("end")
        until(self.exited)
        return record

    def exited(self) -> bool:
        if self.pid and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.pid = 0
        return not self.pid

    def log(self) -> bytes:
        path = self.folder.log_path()
        return path.read_bytes() if path.exists() else b""

    def reconnect(self) -> None:
        self.connection.close()
        connection = connect(self.control_path)
        assert connection is not None
        self.connection, self.reader, self.lines, self.hung_up = connection, LineReader(), [], False
        self.send(watch_line(KEY))

    def clean_up(self) -> None:
        for side in self.sides:
            side.close()
        if self.pid and not self.hung_up:
            self.connection.setblocking(True)
            try:
                self.connection.sendall(stop_line("cancel", 0.0, signal.SIGKILL))
                until(lambda: self.read() or self.hung_up)
            except (AssertionError, OSError):
                os.kill(self.pid, signal.SIGKILL)
        if self.pid:
            os.waitpid(self.pid, 0)
        self.connection.close()


class Shims:
    """Starts shims; ends all of them afterwards."""

    def __init__(self, root: Path, sockets: Path, *, shim_path: Path = SHIM_PATH) -> None:
        self.root = root
        self.sockets = sockets
        self.spawner = Spawner(shim_path=shim_path)
        self.runs: list[ShimRun] = []

    def intent(self, command: list[str], **fields: Any) -> Intent:
        number = len(self.runs)
        defaults: dict[str, Any] = {
            "run_id": f"run{number}",
            "key": KEY,
            "boot_id": "boot",
            "control_path": str(self.sockets / f"{number}"),
            "working_dir": str(self.root),
            "command": tuple(command),
            "env": {"PATH": os.environ["PATH"]},
            "log_head_bytes": 64 * 1024 * 1024,
            "log_tail_bytes": 1024 * 1024,
        }
        return Intent(**{**defaults, **fields})

    def start(self, *command: str, prepare: Callable[[Path], object] | None = None, **fields: Any) -> ShimRun:
        intent = self.intent(list(command), **fields)
        folder = RunFolder(self.root, intent.run_id)
        lock = folder.create()
        folder.write_intent(intent)
        if prepare is not None:
            prepare(folder.path)
        pid, connection = self.spawner.spawn(folder, lock, intent.control_path)
        run = ShimRun(folder, pid, connection, intent.control_path)
        self.runs.append(run)
        return run

    def python(self, code: str, **fields: Any) -> ShimRun:
        return self.start(sys.executable, "-I", "-S", "-u", "-c", code, **fields)

    def shell(self, script: str, **fields: Any) -> ShimRun:
        return self.start("/bin/sh", "-c", script, **fields)

    def close(self) -> None:
        for run in self.runs:
            run.clean_up()
        self.spawner.close()
