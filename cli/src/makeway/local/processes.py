"""Processes of ours: their identity across restarts, how they are started, and how they are ended.

A pid alone names nobody, since the kernel gives it out again. A process is its pid and its start time (field 22 of
/proc/PID/stat), within one boot.
"""

import ctypes
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Launch", "ProcessIdentity", "end", "identify", "is_alive", "launch", "processes_in", "wait_for_end"]

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessIdentity:
    """One process of this boot: `start_ticks` is its start in clock ticks since boot."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """How one child is started and stopped.

    `environment` is the whole environment of the child. `death_signal` is what the kernel sends it when we die;
    `stop_signal` what we send for an orderly stop, which may take `stop_seconds`.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    working_dir: Path
    log_path: Path
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals | None = signal.SIGTERM
    stop_seconds: float = 10.0


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of a live process; None if there is none (a zombie counts as none)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # After the name: state is field 3 of the manual, so index 0; the start time is field 22.
    return None if fields[0] in "ZX" else ProcessIdentity(pid=pid, start_ticks=int(fields[19]))


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether this very process still runs."""
    return identify(identity.pid) == identity


def launch(wanted: Launch) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own, output appended to its log.

    Call it from the main thread: the death signal is sent when the *thread* that forked ends.
    """
    with wanted.log_path.open("ab") as log:
        return subprocess.Popen(
            wanted.command,
            env=dict(wanted.environment),
            cwd=wanted.working_dir,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent(wanted.death_signal),
        )


def _die_with_parent(death_signal: signal.Signals | None) -> Callable[[], None] | None:
    if death_signal is None:
        return None
    parent = os.getpid()

    def ask_for_death_signal() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(death_signal))
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return ask_for_death_signal


def end(identity: ProcessIdentity, first: signal.Signals, *, grace_seconds: float) -> bool:
    """Signal this process, wait, and SIGKILL it when the grace is over. False if it needed the SIGKILL."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return True
    try:
        if not is_alive(identity):
            return True
        signal.pidfd_send_signal(descriptor, first)
        if _ended(descriptor, grace_seconds):
            return True
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        _ended(descriptor, 10.0)
        return False
    except ProcessLookupError:
        return True
    finally:
        os.close(descriptor)


def wait_for_end(identity: ProcessIdentity, *, timeout_seconds: float) -> bool:
    """Wait until the process is gone; False when it still runs after the time."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return True
    try:
        return not is_alive(identity) or _ended(descriptor, timeout_seconds)
    finally:
        os.close(descriptor)


def _ended(descriptor: int, timeout_seconds: float) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(timeout_seconds * 1000))


def processes_in(folder: Path, *, names: Iterable[str]) -> list[ProcessIdentity]:
    """Live processes with one of these program names whose working directory is `folder`.

    Servers stand in their data folder, so this finds what an earlier supervisor left behind, whatever became of its
    records.
    """
    wanted = set(names)
    home = folder.resolve()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if (entry / "comm").read_text().strip() in wanted and (entry / "cwd").readlink() == home:
                identity = identify(int(entry.name))
                if identity is not None:
                    found.append(identity)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found
