"""The control socket: one JSON line each way. An answer means that the word is on disk and outlives a crash."""

import json
import os
import socket
from typing import Any, Final, SupportsFloat, SupportsIndex

from makeway.job.number import real, whole

CONTROL_VARIABLE: Final = "MAKEWAY_CONTROL"
_ANSWER_SECONDS: Final = 10.0
_ANSWER_MAX_BYTES: Final = 4096


class ControlError(Exception):
    """The socket could not be reached, or refused what was said."""


def inside_makeway() -> bool:
    """Whether this process runs as a job."""
    return bool(os.environ.get(CONTROL_VARIABLE))


def ack(
    step: SupportsIndex,
    *,
    size_bytes: SupportsIndex | None = None,
    fraction: SupportsFloat | SupportsIndex | None = None,
    epoch: SupportsFloat | SupportsIndex | None = None,
) -> None:
    """Says that state up to ``step`` is saved; what is stopped from now on loses only what came after.

    ``fraction`` is the progress from 0 to 1. Outside makeway nothing happens. Raises ControlError when it was not kept,
    TypeError for what is no number; those of numpy and other libraries are taken.
    """
    size = None if size_bytes is None else whole("size_bytes", size_bytes)
    _tell("ack", step=whole("step", step), bytes=size, fraction=real("fraction", fraction), epoch=real("epoch", epoch))


def resumed(step: SupportsIndex, *, load_seconds: SupportsFloat | SupportsIndex) -> None:
    """Says that this run goes on from ``step``, and how long loading took."""
    _tell("resumed", step=whole("step", step), load_seconds=real("load_seconds", load_seconds))


def done() -> None:
    """Says that the work is finished: this run's end is the job's end, even if a stop was wanted meanwhile."""
    _tell("done")


def _tell(operation: str, **fields: Any) -> None:
    if inside_makeway():
        ask(operation, **fields)


def ask(operation: str, *, wait: bool = False, **fields: Any) -> dict[str, Any]:
    """Sends one operation and returns its answer; ``wait`` waits for it without a limit. Raises ControlError."""
    path = os.environ.get(CONTROL_VARIABLE)
    if not path:
        raise ControlError(f"{CONTROL_VARIABLE} is not set: this process is no makeway job")
    message = {"op": operation, **{name: value for name, value in fields.items() if value is not None}}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_ANSWER_SECONDS)
            connection.connect(path)
            connection.sendall(json.dumps(message, allow_nan=False).encode("ascii") + b"\n")
            connection.settimeout(None if wait else _ANSWER_SECONDS)
            answer = json.loads(_line(connection))
    except (OSError, ValueError) as error:
        raise ControlError(f"{operation}: no answer from the control socket: {error}") from error
    if not isinstance(answer, dict) or answer.get("ok") is not True:
        reason = answer.get("error") if isinstance(answer, dict) else answer
        raise ControlError(f"{operation} was refused: {reason}")
    return answer


def _line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        piece = connection.recv(_ANSWER_MAX_BYTES)
        if not piece:
            raise ConnectionError("it closed the connection")
        line += piece
    return line
