"""Disk of the node: is there room for new runs, and what has expired."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Container
from pathlib import Path
from typing import Final

from makeway_executor.launch import FINISHED_MARK

_DAY_SECONDS: Final = 86_400


def disk_refusal(folder: Path, min_free_percent: float) -> str:
    """A sentence when less than `min_free_percent` of the folder's disk is free, else empty."""
    status = os.statvfs(folder)
    if status.f_blocks == 0:
        return ""
    free_percent = 100.0 * status.f_bavail / status.f_blocks
    if free_percent >= min_free_percent:
        return ""
    return f"only {free_percent:.1f} % of the disk of {folder} is free; new runs need {min_free_percent:g} %"


def expire_checkpoints(root: Path, *, keep_days: float, in_use: Container[str]) -> list[str]:
    """Removes checkpoints of jobs that finished more than `keep_days` ago; returns their job ids. May block for long.

    `in_use` holds the jobs that have a run here. A job that was pushed aside has no mark and keeps its checkpoints.
    Several nodes may share `root`: what was saved since belongs to a run on another of them, whatever the mark says.
    """
    removed: list[str] = []
    oldest = time.time() - keep_days * _DAY_SECONDS
    for mark in sorted(root.glob(f"*/{FINISHED_MARK}")):
        if mark.parent.name not in in_use and _last_change(mark.parent) < oldest:
            shutil.rmtree(mark.parent, ignore_errors=True)
            removed.append(mark.parent.name)
    return removed


def _last_change(folder: Path) -> float:
    """When anything in a folder was written last; now where it is just going."""
    try:
        return max(entry.stat().st_mtime for entry in folder.iterdir())
    except (FileNotFoundError, ValueError):
        return time.time()


def writable_cgroup(node_name: str, state_dir: Path) -> Path | None:
    """Makes and returns the folder for runs' cgroups below this process's own; None where that is not possible.

    Two clusters on one host may name a node alike; their state folders tell them apart.
    """
    own = _own_cgroup()
    if own is None:
        return None
    home = hashlib.blake2b(str(state_dir.absolute()).encode(), digest_size=6).hexdigest()
    folder = own / f"makeway-{node_name}-{home}"
    try:
        folder.mkdir(exist_ok=True)
        probe = folder / f"probe-{os.getpid()}"
        probe.mkdir(exist_ok=True)
        usable = (probe / "cgroup.kill").exists() and os.access(folder / "cgroup.procs", os.W_OK)
        probe.rmdir()
    except OSError:
        return None
    return folder if usable else None


def _own_cgroup() -> Path | None:
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    mounted = [fields[4] for fields in mounts if fields[fields.index("-") + 1] == "cgroup2"]
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    paths = [line.removeprefix("0::") for line in lines if line.startswith("0::")]
    if not mounted or not paths:
        return None
    return Path(mounted[0]) / paths[0].lstrip("/")
