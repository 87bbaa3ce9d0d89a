"""What a shim is to run, as it lies in the run folder: pairs of name and value, each ended by a NUL byte.

The format is one that C reads in a few lines; `arg` and `env` repeat, unknown names are skipped by either side.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from makeway_executor.errors import InvalidIntent

MAX_INTENT_BYTES: Final = 4 * 1024 * 1024
"""The shim's own limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One launch. Durations in seconds; `signal` is a number; `planned` is the agent's own note, kept for adoption."""

    run_id: str
    key: str
    """Whoever names it on the control socket is the agent."""
    boot_id: str
    control_path: str
    working_dir: str
    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    cgroup: str | None = None
    log_head_bytes: int = 960 * 1024 * 1024
    log_tail_bytes: int = 64 * 1024 * 1024
    time_limit_seconds: float | None = None
    time_limit_grace_seconds: float = 0.0
    leftover_grace_seconds: float = 2.0
    signal: int = 15
    umask: int = 0o022
    planned: str = ""

    def to_bytes(self) -> bytes:
        """The file's content. Raises InvalidIntent for a NUL inside a text, or when it is too large."""
        parts: list[bytes] = []
        for name, value in self._pairs():
            encoded = os.fsencode(value)
            if b"\0" in encoded:
                raise InvalidIntent(f"{name} holds a NUL character, which no process can be given")
            parts += (name.encode(), encoded)
        content = b"\0".join(parts) + b"\0"
        if len(content) > MAX_INTENT_BYTES:
            raise InvalidIntent(f"command and environment take {len(content)} bytes; at most {MAX_INTENT_BYTES} fit")
        return content

    def _pairs(self) -> Iterator[tuple[str, str]]:
        yield "run_id", self.run_id
        yield "key", self.key
        yield "boot_id", self.boot_id
        yield "control_path", self.control_path
        yield "working_dir", self.working_dir
        if self.cgroup is not None:
            yield "cgroup", self.cgroup
        yield "log_head_bytes", str(self.log_head_bytes)
        yield "log_tail_bytes", str(self.log_tail_bytes)
        if self.time_limit_seconds is not None:
            yield "time_limit_ms", str(round(self.time_limit_seconds * 1000))
        yield "time_limit_grace_ms", str(round(self.time_limit_grace_seconds * 1000))
        yield "leftover_grace_ms", str(round(self.leftover_grace_seconds * 1000))
        yield "signal", str(self.signal)
        yield "umask", str(self.umask)
        yield "planned", self.planned
        for argument in self.command:
            yield "arg", argument
        for name, value in self.env.items():
            yield "env", f"{name}={value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptIntent:
    """What an agent needs of an intent that an earlier one wrote."""

    key: str
    boot_id: str
    control_path: str
    cgroup: str | None
    planned: str


def read_kept(content: bytes) -> KeptIntent:
    """Reads an intent back. Raises InvalidIntent when it is cut off, as after a power cut."""
    if not content.endswith(b"\0"):
        raise InvalidIntent("the intent is empty or cut off")
    fields = content[:-1].split(b"\0")
    pairs = {os.fsdecode(name): os.fsdecode(value) for name, value in zip(fields[::2], fields[1::2], strict=False)}
    try:
        return KeptIntent(
            key=pairs["key"],
            boot_id=pairs["boot_id"],
            control_path=pairs["control_path"],
            cgroup=pairs.get("cgroup"),
            planned=pairs["planned"],
        )
    except KeyError as error:
        raise InvalidIntent(f"the intent has no {error.args[0]}") from error
