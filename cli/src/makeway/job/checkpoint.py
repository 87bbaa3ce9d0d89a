"""Checkpoints in a folder: whole or absent, newest found first, never spoiled by an older run.

A file holds one line of JSON (format, run, step, epoch, size, digest) and the pickled state. It is written under
another name, forced to disk, renamed, and its folder forced to disk, so that a crash at any moment leaves the older
ones. The folder's ``run`` file has the number of the newest run that opened it; a run with a lower number (a machine
that was paused and woke up) is refused. The lock makes "look at the number, then rename" one step.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pickle
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, SupportsFloat, SupportsIndex

from makeway.job.number import real, whole
from makeway.job.stderr import say

_FORMAT: Final = 1
_NAME = re.compile(r"run-(\d+)-step-(\d+)\.checkpoint")
_HEADER_MAX_BYTES: Final = 4096


class Superseded(Exception):
    """A newer run of this job owns the folder: this one must save no more and end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """What was saved, by which run, and how long loading took."""

    step: int
    epoch: float | None
    state: Any
    run: int
    load_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A state made into bytes at one moment, so that the program may go on changing it."""

    step: int
    epoch: float | None
    content: bytes


def take_snapshot(step: SupportsIndex, state: Any, epoch: SupportsFloat | SupportsIndex | None = None) -> Snapshot:
    """Copies the state: a mapping of numpy arrays and plain values, or whatever can be pickled.

    Raises TypeError where the step is no whole number or the epoch no number.
    """
    number, passes = whole("step", step), real("epoch", epoch)
    return Snapshot(step=number, epoch=passes, content=pickle.dumps(state, protocol=5))


class CheckpointFolder:
    """The checkpoints of one job, opened by one run of it."""

    def __init__(self, folder: Path, *, run: int | None = None, keep: int = 3) -> None:
        """``run``: this run's number; None takes the next one. Raises Superseded where a newer run was here."""
        self.folder = folder
        self.keep = max(1, keep)
        folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
            newest = self._newest_run()
            self.run = newest + 1 if run is None else run
            self._refuse_if_older(newest)
            _write_whole(folder, "run", [f"{self.run}\n".encode("ascii")])

    def write(self, snapshot: Snapshot) -> int:
        """Keeps a snapshot and drops what is more than ``keep``; returns its size in bytes.

        Raises Superseded, or OSError when the disk refuses; older checkpoints stay in either case.
        """
        header = {
            "format": _FORMAT,
            "run": self.run,
            "step": snapshot.step,
            "epoch": snapshot.epoch,
            "bytes": len(snapshot.content),
            "sha256": hashlib.sha256(snapshot.content).hexdigest(),
        }
        line = json.dumps(header).encode("ascii") + b"\n"
        name = f"run-{self.run}-step-{snapshot.step}.checkpoint"
        temporary = _write_temporary(self.folder, name, [line, snapshot.content])
        with self._locked():
            try:
                self._refuse_if_older(self._newest_run())
            except Superseded:
                temporary.unlink(missing_ok=True)
                raise
            temporary.replace(self.folder / name)
            _sync_folder(self.folder)
            self._drop_old()
        return len(line) + len(snapshot.content)

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole, or None. One that is damaged is skipped, and said on stderr."""
        began = time.monotonic()
        for path in self._files():
            try:
                header, state = _load(path)
            except (OSError, ValueError, KeyError, EOFError, pickle.UnpicklingError) as error:
                say(f"{path} is damaged ({error}); an older one is tried")
                continue
            epoch, run, step = header["epoch"], int(header["run"]), int(header["step"])
            return Checkpoint(step=step, epoch=epoch, state=state, run=run, load_seconds=time.monotonic() - began)
        return None

    def _files(self) -> list[Path]:
        found = ((_NAME.fullmatch(path.name), path) for path in self.folder.iterdir())
        ranked = [((int(match[1]), int(match[2])), path) for match, path in found if match is not None]
        return [path for _, path in sorted(ranked, reverse=True)]

    def _drop_old(self) -> None:
        for path in self._files()[self.keep :]:
            with contextlib.suppress(OSError):
                path.unlink()

    def _newest_run(self) -> int:
        try:
            return int((self.folder / "run").read_text(encoding="ascii"))
        except FileNotFoundError:
            return 0

    def _refuse_if_older(self, newest: int) -> None:
        if newest > self.run:
            raise Superseded(f"run {newest} owns {self.folder}; this is run {self.run}, which must not save any more")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _load(path: Path) -> tuple[dict[str, Any], Any]:
    with path.open("rb") as file:
        header = json.loads(file.readline(_HEADER_MAX_BYTES))
        if header["format"] != _FORMAT:
            raise ValueError(f"format {header['format']} is not known here")
        content = file.read()
    if len(content) != header["bytes"] or hashlib.sha256(content).hexdigest() != header["sha256"]:
        raise ValueError("its content is not what was written")
    # A job's own file, in a folder that only the job writes: as trusted as its program.
    return header, pickle.loads(content)  # noqa: S301


def _write_whole(folder: Path, name: str, parts: list[bytes]) -> None:
    _write_temporary(folder, name, parts).replace(folder / name)
    _sync_folder(folder)


def _write_temporary(folder: Path, name: str, parts: list[bytes]) -> Path:
    """A file beside the final one, on disk when this returns; nothing is left behind when it fails."""
    path = folder / f".{name}.{os.getpid()}"
    try:
        with path.open("wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return path


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
