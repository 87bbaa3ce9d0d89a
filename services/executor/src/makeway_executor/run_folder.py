"""The folder of one run: what is kept of it on the node, and the lock that says who may write its end.

`lock` is held by the shim for life; who finds it free writes the end. `intent` is what is to run, `started.json` the
process, `journal.jsonl` acks and `done`, `output.log` the log, `end.json` the end, `script` the job's script.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from makeway_executor.intent import Intent, KeptIntent, read_kept

_LOCK_MODE: Final = 0o600

Record = dict[str, Any]
"""A JSON object as the shim wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The newest ack and resume that the job was promised to be kept, and whether it declared itself done."""

    ack: Record | None = None
    resumed: Record | None = None
    done: bool = False


class RunFolder:
    """One run's folder. Cheap to make: nothing is opened before it is asked for."""

    __slots__ = ("path", "run_id")

    def __init__(self, root: Path, run_id: str) -> None:
        """`root` is the folder of all runs."""
        self.run_id = run_id
        self.path = root / run_id

    def create(self) -> int:
        """Makes the folder and takes its lock; returns the locked descriptor. Raises FileExistsError, OSError."""
        self.path.mkdir(mode=0o750)
        lock = self.try_lock()
        if lock is None:
            raise FileExistsError(f"somebody took the lock of the new folder {self.path}")
        return lock

    def try_lock(self) -> int | None:
        """Takes the lock; None when a living shim holds it. The descriptor is not inherited by other processes."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _LOCK_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def write_intent(self, intent: Intent) -> None:
        """Raises InvalidIntent, OSError."""
        _write(self.path / "intent", intent.to_bytes(), mode=0o600)

    def read_intent(self) -> KeptIntent:
        """Raises InvalidIntent, and FileNotFoundError where only a tombstone lies."""
        return read_kept((self.path / "intent").read_bytes())

    def write_script(self, text: str) -> Path:
        """Writes the job's script, executable by its owner; returns its path."""
        path = self.path / "script"
        _write(path, text.encode(), mode=0o700)
        return path

    def read_end(self) -> Record | None:
        """The end record, or None while the run is not over."""
        return _read_record(self.path / "end.json")

    def read_started(self) -> Record | None:
        """Process id, start ticks, boot id and time of the job's process, or None when it never ran."""
        return _read_record(self.path / "started.json")

    def started_ns(self) -> int | None:
        """When the job's process began, in nanoseconds since boot; None when it never ran."""
        started = self.read_started()
        return None if started is None else int(started["boottime_ns"])

    def read_journal(self) -> Journal:
        """What was promised. A last line that was cut off was promised to nobody."""
        found: dict[str, Any] = {}
        try:
            lines = (self.path / "journal.jsonl").read_bytes().splitlines()
        except FileNotFoundError:
            lines = []
        for line in lines:
            try:
                found.update(json.loads(line))
            except ValueError:
                continue
        return Journal(ack=found.get("ack"), resumed=found.get("resumed"), done="done" in found)

    def write_end(self, record: Record) -> None:
        """Writes the end, whole or not at all. Only for who holds the lock."""
        temporary = self.path / "end.json.agent"
        _write(temporary, json.dumps(record).encode(), mode=0o640)
        temporary.replace(self.path / "end.json")

    def log_path(self) -> Path:
        """The log; it exists once the job has written anything."""
        return self.path / "output.log"

    def log_size(self) -> int:
        """Bytes of the log now."""
        try:
            return self.log_path().stat().st_size
        except FileNotFoundError:
            return 0

    def remove(self) -> None:
        """Removes all of it."""
        shutil.rmtree(self.path, ignore_errors=True)


def existing_folders(root: Path) -> Iterator[RunFolder]:
    """All run folders, in the order of their names."""
    for entry in sorted(os.scandir(root), key=lambda found: found.name):
        if entry.is_dir(follow_symlinks=False):
            yield RunFolder(root, entry.name)


def _write(path: Path, content: bytes, *, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _read_record(path: Path) -> Record | None:
    try:
        record: Record = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        return None
    return record
