"""The logs of runs as files, `<folder>/<job id>/<run number>.log`, each appended to and nothing else.

Paths are made only of ids that match their pattern. A node says where its bytes begin; what is held already is skipped,
and a gap is answered with what is held, so a log has every byte once and in order, whatever is sent again.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from makeway_schemas.id_patterns import RUN_ID_PATTERN
from makeway_schemas.ids import job_of, number_of

_RUN_ID: Final = re.compile(RUN_ID_PATTERN.removesuffix("$"))


class LogTooLarge(ValueError):
    """A run's log has reached the most that is kept."""


class LogStore:
    """Appends and reads. One process writes; every call is short and on the loop, so each is atomic to the others."""

    def __init__(self, folder: Path, *, run_max_bytes: int) -> None:
        """The folder is made when the first log comes."""
        self._folder = folder
        self._run_max_bytes = run_max_bytes
        self._bells: dict[str, set[asyncio.Event]] = {}

    def size(self, run_id: str) -> int:
        """Bytes held of a run's log; 0 where there is none."""
        try:
            return self._path(run_id).stat().st_size
        except FileNotFoundError:
            return 0

    def append(self, run_id: str, offset: int, data: bytes) -> int:
        """Adds the part of `data`, which begins at `offset` of the log, that is not held yet. Returns the bytes held.

        Nothing is added where `offset` lies beyond what is held. Raises LogTooLarge, or OSError (a full disk): then
        what is held may have grown by a part of `data`.
        """
        path = self._path(run_id)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            held = os.fstat(descriptor).st_size
            fresh = memoryview(data)[held - offset :] if offset <= held else memoryview(b"")
            if held + len(fresh) > self._run_max_bytes:
                raise LogTooLarge(f"the log of run {run_id} has reached {self._run_max_bytes} bytes")
            while fresh:
                written = os.write(descriptor, fresh)
                held += written
                fresh = fresh[written:]
        finally:
            os.close(descriptor)
            for bell in self._bells.get(run_id, ()):
                bell.set()
        return held

    def read(self, run_id: str, offset: int, most_bytes: int) -> bytes:
        """Up to `most_bytes` from `offset`; empty at the end."""
        try:
            descriptor = os.open(self._path(run_id), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(descriptor, most_bytes, offset)
        finally:
            os.close(descriptor)

    @contextmanager
    def watch(self, run_id: str, bell: asyncio.Event) -> Iterator[None]:
        """Rings `bell` whenever the run's log grows."""
        bells = self._bells.setdefault(run_id, set())
        bells.add(bell)
        try:
            yield
        finally:
            bells.discard(bell)
            if not bells:
                self._bells.pop(run_id, None)

    def _path(self, run_id: str) -> Path:
        if _RUN_ID.fullmatch(run_id) is None:
            raise ValueError("this is no run id")
        return self._folder / job_of(run_id) / f"{number_of(run_id)}.log"
