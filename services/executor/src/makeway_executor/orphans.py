"""Processes of a run whose shim is dead: found by the mark in their environment, stopped with the run's grace.

The mark is MAKEWAY_CONTROL, which names the run's own socket. A process that has wiped its environment is still found
by the run's cgroup, where there is one, or as a descendant of one that has the mark.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from makeway_runtime.devices.proc import is_alive, read_stat

from makeway_executor import clock

_LOOK_SECONDS: Final = 0.2
_MARK: Final = b"MAKEWAY_CONTROL="


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """How the processes of a run are known; `main` is its main process and that process's start ticks."""

    control_path: str
    cgroup: str | None
    main: tuple[int, int] | None


def find(marks: Marks) -> dict[int, int]:
    """Living processes of the run: id to start ticks."""
    pids = {pid for pid in _all_pids() if marks.control_path in marks_of(pid)} | _members(marks.cgroup)
    if marks.main is not None and is_alive(*marks.main):
        pids.add(marks.main[0])
    found: dict[int, int] = {}
    for pid in pids | _descendants(pids):
        stat = read_stat(pid)
        if stat is not None and stat.alive:
            found[pid] = stat.start_ticks
    return found


async def stop_tree(marks: Marks, *, grace_seconds: float, signal_number: int) -> bool:
    """Notice, grace, SIGKILL; returns once nothing is left, and whether there was anything."""
    found = await asyncio.to_thread(find, marks)
    if not found:
        return False
    _signal(found, signal_number)
    _signal(found, signal.SIGCONT)
    noticed_ns = clock.now_ns()
    while found := await asyncio.to_thread(find, marks):
        if clock.age_seconds(noticed_ns) >= grace_seconds:
            _signal(found, signal.SIGKILL)
        await asyncio.sleep(_LOOK_SECONDS)
    if marks.cgroup is not None:
        remove_cgroup(Path(marks.cgroup))
    return True


def remove_cgroup(folder: Path) -> None:
    """Removes a run's cgroup with those that the job made inside it; what is in use or gone stays as it is."""
    inner = [Path(place) for place, _, _ in os.walk(folder)]
    for place in sorted(inner, reverse=True):
        with contextlib.suppress(OSError):
            place.rmdir()


def _signal(processes: dict[int, int], signal_number: int) -> None:
    for pid, start_ticks in processes.items():
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            if is_alive(pid, start_ticks):
                signal.pidfd_send_signal(descriptor, signal_number)
        except OSError:
            continue
        finally:
            os.close(descriptor)


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def marks_of(pid: int) -> tuple[str, ...]:
    """The control sockets that a process was started with: one, or none where it is no run's or has wiped it."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ()
    return tuple(os.fsdecode(each[len(_MARK) :]) for each in environment if each.startswith(_MARK))


def _members(cgroup: str | None) -> set[int]:
    if cgroup is None:
        return set()
    try:
        return {int(line) for line in (Path(cgroup) / "cgroup.procs").read_text().split()}
    except OSError:
        return set()


def _descendants(pids: set[int]) -> set[int]:
    parents = {pid: _parent(pid) for pid in _all_pids()}
    found: set[int] = set()
    grew = bool(pids)
    while grew:
        fresh = {pid for pid, parent in parents.items() if parent in pids | found} - found - pids
        found |= fresh
        grew = bool(fresh)
    return found


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(text[text.rindex(")") + 2 :].split()[1])


def parent_of(pid: int, start_ticks: int) -> int | None:
    """The parent of a process that started then; None where it is gone."""
    parent = _parent(pid)
    return parent if parent > 1 and is_alive(pid, start_ticks) else None


def ancestors(pid: int) -> list[int]:
    """A process and its parents, up to but without process 1."""
    found: list[int] = []
    while pid > 1 and pid not in found:
        found.append(pid)
        pid = _parent(pid)
    return found
