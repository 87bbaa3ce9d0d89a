"""Finding and ending what a cluster left running: after a kill -9 of its supervisor, and as the last step of `down`.

A job belongs to a cluster if its environment names the cluster's runtime folder, whose name is random (MAKEWAY_CONTROL
does, and so do the variables of services); a shim, whose environment is empty, if its argument is a run folder of the
cluster.
"""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from makeway.local.private_files import RUNTIME_FOLDER_PREFIX
from makeway.local.processes import ProcessIdentity, end, identify, is_alive, wait_for_end

__all__ = ["SHIM_NAME", "end_all", "processes_of"]

SHIM_NAME = "makeway-shim"


def processes_of(runtime_folder: Path, nodes_folder: Path) -> list[ProcessIdentity]:
    """Live processes of the cluster other than its servers, ourselves left out.

    Raises ValueError for a folder that is no runtime folder: a short path would be found in everybody's environment.
    """
    if not runtime_folder.is_absolute() or not runtime_folder.name.startswith(RUNTIME_FOLDER_PREFIX):
        raise ValueError(f"{runtime_folder} is no runtime folder of a cluster")
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if not _belongs(entry, os.fsencode(runtime_folder), os.fsencode(nodes_folder)):
                continue
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        identity = identify(int(entry.name))
        if identity is not None:
            found.append(identity)
    return found


def _belongs(process: Path, runtime_folder: bytes, nodes_folder: bytes) -> bool:
    if runtime_folder in (process / "environ").read_bytes():
        return True
    arguments = (process / "cmdline").read_bytes().split(b"\0")
    return arguments[0] == SHIM_NAME.encode() and any(argument.startswith(nodes_folder) for argument in arguments[1:])


def end_all(runtime_folder: Path, nodes_folder: Path, *, grace_seconds: float) -> int:
    """End every process of the cluster; returns how many were found.

    Shims go first and at once: a shim that saw its job end would write that end as the job's own. The jobs then get
    SIGTERM, their grace, and SIGKILL. What forks meanwhile is found by looking again until nothing is left.
    """
    first = processes_of(runtime_folder, nodes_folder)
    shims = [process for process in first if _name(process) == SHIM_NAME]
    for shim in shims:
        end(shim, signal.SIGKILL, grace_seconds=5)
    _signal_all([process for process in first if process not in shims], signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    for process in first:
        wait_for_end(process, timeout_seconds=max(0.0, deadline - time.monotonic()))
    while remaining := processes_of(runtime_folder, nodes_folder):
        _signal_all(remaining, signal.SIGKILL)
        for process in remaining:
            wait_for_end(process, timeout_seconds=5)
        if time.monotonic() > deadline + 30:
            break
    return len(first)


def _signal_all(processes: Sequence[ProcessIdentity], which: signal.Signals) -> None:
    for process in processes:
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            continue
        try:
            if is_alive(process):
                signal.pidfd_send_signal(descriptor, which)
        except ProcessLookupError:
            continue
        finally:
            os.close(descriptor)


def _name(process: ProcessIdentity) -> str:
    try:
        return Path(f"/proc/{process.pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
