"""The shim's side of the control socket, as a test tells it to be."""

import contextlib
import json
import socket
import threading
from pathlib import Path
from typing import Any


class ControlSocket:
    """Answers every operation with ``ok``; ``wait`` is answered once ``stop`` is called."""

    def __init__(self, path: Path, *, refuse: str = "") -> None:
        self.path = path
        self.said: list[dict[str, Any]] = []
        self.refuse = refuse
        self._stop = threading.Event()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as lines:
            for line in lines:
                connection.sendall(json.dumps(self._answer(json.loads(line))).encode() + b"\n")

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        waiting = message["op"] == "wait"
        if waiting:
            self._stop.wait()
        with self._changed:
            self.said.append(message)
            self._changed.notify_all()
        if self.refuse:
            return {"ok": False, "error": self.refuse}
        notice = {"stop": True, "cause": "preempt", "grace_left_seconds": 20.0}
        if message["op"] == "status":
            return {"ok": True} | (notice if self._stop.is_set() else {"stop": False})
        return {"ok": True} | (notice if waiting else {})

    def stop(self) -> None:
        """Delivers the notice to whoever waits."""
        self._stop.set()

    def operations(self) -> list[dict[str, Any]]:
        """What the job said, without waiting for the notice."""
        return [message for message in self.said if message["op"] not in ("wait", "status")]

    def wait_for(self, operation: str) -> None:
        """Until such an operation came."""
        with self._changed:
            heard = self._changed.wait_for(lambda: any(m["op"] == operation for m in self.said), timeout=10)
        assert heard, f"no {operation} came; said was {self.said}"

    def close(self) -> None:
        """Ends all threads."""
        self._stop.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join(10)
