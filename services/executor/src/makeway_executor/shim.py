"""Starting shims and speaking with them. The shim itself is C, in `services/executor/shim`; its header explains it.

One connection a shim: made with the spawn, or by `connect` after a restart of the agent. Either side speaks JSON lines;
the shim sends numbered events, and answers what it is asked in order.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from makeway_executor.errors import SpawnFailed
from makeway_executor.run_folder import RunFolder

SHIM_PATH: Final = Path(__file__).with_name("bin") / "makeway-shim"
MAX_SOCKET_PATH_BYTES: Final = 107

_LOCK_FD: Final = 3
_LISTEN_FD: Final = 4
_AGENT_FD: Final = 5
_BACKLOG: Final = 16
_READ_BYTES: Final = 64 * 1024


class Spawner:
    """Spawns shims with `posix_spawn`, which costs the same however large this process is."""

    def __init__(self, *, shim_path: Path = SHIM_PATH) -> None:
        """Keeps the descriptors up to 5 taken, so that none that is handed over can stand where another has to go."""
        self._command = os.fsencode(shim_path)
        self._held: list[int] = []
        while not self._held or self._held[-1] <= _AGENT_FD:
            self._held.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))

    def close(self) -> None:
        """Gives up the held descriptors."""
        for descriptor in self._held:
            os.close(descriptor)
        self._held.clear()

    def spawn(self, folder: RunFolder, lock: int, control_path: str) -> tuple[int, socket.socket]:
        """Starts the shim of a folder whose intent is written; `lock` is closed here whatever happens.

        Returns the shim's process id and the agent's connection to it. Raises SpawnFailed.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        ours, theirs = socket.socketpair()
        try:
            # Bound before the spawn: the job's first connect works without waiting.
            listener.bind(control_path)
            listener.listen(_BACKLOG)
            null = self._held[-1]
            actions = [
                (os.POSIX_SPAWN_DUP2, null, 0),
                (os.POSIX_SPAWN_DUP2, null, 1),
                (os.POSIX_SPAWN_DUP2, null, 2),
                (os.POSIX_SPAWN_DUP2, lock, _LOCK_FD),
                (os.POSIX_SPAWN_DUP2, listener.fileno(), _LISTEN_FD),
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), _AGENT_FD),
            ]
            arguments = [b"makeway-shim", os.fsencode(folder.path)]
            pid = os.posix_spawn(self._command, arguments, {}, file_actions=actions)
        except OSError as error:
            ours.close()
            raise SpawnFailed(f"the shim could not be started: {error}") from error
        finally:
            os.close(lock)
            listener.close()
            theirs.close()
        ours.setblocking(False)
        return pid, ours


def connect(control_path: str) -> socket.socket | None:
    """Connects to a running shim; None when nobody listens. The first thing to send is `watch_line`."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        connection.connect(control_path)
    except OSError:
        connection.close()
        return None
    return connection


def watch_line(key: str, *, first: int = 0) -> bytes:
    """Makes the connection the agent's: events from number `first` on are repeated, then follow as they happen."""
    return _line({"op": "watch", "key": key, "from": first})


def stop_line(cause: str, grace_seconds: float, signal_number: int) -> bytes:
    """Asks for a stop. Repeats move nothing."""
    return _line({"op": "stop", "cause": cause, "grace_seconds": round(grace_seconds, 3), "signal": signal_number})


def time_limit_line(remaining_seconds: float | None) -> bytes:
    """Sets what is left of the time limit, counted from now; None lifts it."""
    return _line({"op": "time_limit", "remaining_seconds": remaining_seconds})


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


class LineReader:
    """Cuts what a shim sends into JSON objects."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        """Starts empty."""
        self._rest = b""

    def read(self, connection: socket.socket) -> tuple[list[dict[str, Any]], bool]:
        """Reads what is there without waiting. Returns the whole lines, and whether the shim has hung up."""
        try:
            got = connection.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return [], False
        except OSError:
            return [], True
        *lines, self._rest = (self._rest + got).split(b"\n")
        return [json.loads(line) for line in lines if line], not got


class ShimLink:
    """A connection to a shim on the event loop: events in, requests out.

    The loop watches an epoll descriptor around the connection. uvloop drops a watched socket without a word once it
    has an error, as one has whose shim went away before it read what it was asked: the end it told would stay unread.
    """

    def __init__(
        self,
        connection: socket.socket,
        *,
        on_event: Callable[[str, dict[str, Any]], None],
        on_hang_up: Callable[[], None],
    ) -> None:
        """`on_event` gets an event's name and data; `on_hang_up` is called once, when the shim is gone."""
        self._connection = connection
        self._on_event = on_event
        self._on_hang_up = on_hang_up
        self._reader = LineReader()
        self._loop = asyncio.get_running_loop()
        self._readiness = select.epoll()
        self._readiness.register(connection, select.EPOLLIN)
        self._loop.add_reader(self._readiness.fileno(), self._read)

    def send(self, line: bytes) -> bool:
        """Sends a request; False when the shim is gone. A line is far smaller than a socket's buffer."""
        try:
            return self._connection.send(line) == len(line)
        except OSError:
            return False

    def close(self) -> None:
        """Lets go of the shim, which lives on."""
        if self._connection.fileno() >= 0:
            self._loop.remove_reader(self._readiness.fileno())
            self._readiness.close()
            self._connection.close()

    def _read(self) -> None:
        lines, hung_up = self._reader.read(self._connection)
        for line in lines:
            if "event" in line:
                self._on_event(line["event"], line["data"])
        if hung_up and self._connection.fileno() >= 0:
            self.close()
            self._on_hang_up()
