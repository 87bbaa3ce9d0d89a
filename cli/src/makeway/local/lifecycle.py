"""What `up`, `down` and `status --local` do, without the terminal."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from makeway.local.cluster import (
    CLUSTER_ENTRIES,
    GIVEN_NOTHING,
    ClusterFolder,
    ClusterSettings,
    Wishes,
    load_settings,
    save_settings,
)
from makeway.local.errors import LocalClusterError, ServerFailed
from makeway.local.graphics_cards import found_gpus
from makeway.local.kafka_libraries import cached_libraries, default_cache, libraries_of_home
from makeway.local.leftovers import end_all
from makeway.local.postgres import EmbeddedPostgres, PostgresSettings
from makeway.local.private_files import private_folder, write_private
from makeway.local.processes import ProcessIdentity, end, is_alive, processes_in, wait_for_end
from makeway.local.state_file import ChildState, ClusterState, Phase, boot_id, is_supervised, read_state

__all__ = ["Up", "bring_up", "look", "take_down"]

SIMULATED_WHERE_NONE = "4xA100-80GB"
"""What `up` simulates on a host without GPUs, unless told otherwise."""

_SET_UP = "as it was set up"
_POLL_SECONDS = 0.05
_STOP_MARGIN_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Up:
    """What came of `bring_up`. `already` tells that the cluster ran before; `gpus` is a sentence on real or simulated
    cards.
    """

    already: bool
    state: ClusterState
    settings: ClusterSettings
    gpus: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """How the supervisor is started; tests start one of their own."""

    command: tuple[str, ...] = (sys.executable, "-m", "makeway.local.supervisor")
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    timeout_seconds: float = 180.0


def bring_up(
    root: Path,
    wishes: Wishes = GIVEN_NOTHING,
    *,
    kafka_home: Path | None = None,
    report: Callable[[str], None] = lambda sentence: None,
    start: Start | None = None,
) -> Up:
    """Start the cluster of a state folder and wait until it is ready; one that runs is left as it is.

    Raises LocalClusterError when it cannot be started, or is not ready in time: what runs then stays, to be looked at.
    """
    start = start or Start()
    folder = _own_folder(root.absolute())
    with (folder.root / "up.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two at once: the second finds the cluster of the first
        running = look(root)
        if running is not None:
            settings = load_settings(folder)
            return Up(already=True, state=running, settings=settings, gpus=_gpus(settings, _SET_UP))
        present = found_gpus()
        why = _why_simulated(load_settings(folder), wishes)
        settings = _settings_for(folder, wishes, present, kafka_home, report)
        save_settings(folder, settings)
        report("starting the servers and services")
        state = _start_supervisor(folder, start)
        settings = load_settings(folder)  # with the ports that were free
    return Up(already=False, state=state, settings=settings, gpus=_gpus(settings, why, present))


def _own_folder(root: Path) -> ClusterFolder:
    """The state folder, made private; one that holds anything but a cluster is refused, not taken over."""
    if root.is_dir():
        strange = sorted(entry.name for entry in root.iterdir() if entry.name not in CLUSTER_ENTRIES)
        if strange and not ClusterFolder(root=root).settings_file.exists():
            raise LocalClusterError(
                f"{root} holds something else ({strange[0]}); name an empty or new folder as --state"
            )
    return ClusterFolder(root=private_folder(root))


def _runs_on(folder: ClusterFolder) -> bool:
    """Whether a cluster runs and is to stay; one that is stopping is waited for."""
    deadline = time.monotonic() + _STOP_MARGIN_SECONDS
    while is_supervised(folder):
        state = read_state(folder)
        if state is None or state.phase not in (Phase.STOPPING, Phase.STOPPED, Phase.FAILED):
            return True
        if time.monotonic() > deadline:
            raise LocalClusterError("the cluster is stopping and does not come to an end; `makeway down` ends it")
        time.sleep(_POLL_SECONDS)
    return False


def _settings_for(
    folder: ClusterFolder,
    wishes: Wishes,
    present: list[str],
    kafka_home: Path | None,
    report: Callable[[str], None],
) -> ClusterSettings:
    settings = wishes.applied_to(load_settings(folder))
    if settings.simulate is None and not present:
        settings = replace(settings, simulate=SIMULATED_WHERE_NONE)
    if settings.simulate is None and settings.nodes > 1:
        raise LocalClusterError("several nodes on one host cannot share its real GPUs: add --simulate, or use one node")
    if settings.nodes < 1:
        raise LocalClusterError("a cluster has at least one node")
    if settings.kafka is None:
        libraries = libraries_of_home(kafka_home) if kafka_home else cached_libraries(default_cache(), report=report)
        settings = replace(settings, libraries=str(libraries.absolute()))
    return settings


def _why_simulated(before: ClusterSettings, wishes: Wishes) -> str:
    if wishes.simulate is not None:
        return "as asked"
    return "none was found on this host" if before.simulate is None else _SET_UP


def _gpus(settings: ClusterSettings, why: str, present: Sequence[str] = ()) -> str:
    if settings.simulate is None:
        return f"{len(present)} found: {', '.join(present)}" if present else "the host's own"
    each = "" if settings.nodes == 1 else f" on each of {settings.nodes} nodes"
    return f"SIMULATED {settings.simulate}{each} ({why}): jobs are real processes, the cards are not"


def _start_supervisor(folder: ClusterFolder, start: Start) -> ClusterState:
    log_path = folder.log("supervisor")
    folder.stop_file.unlink(missing_ok=True)
    former = read_state(folder)
    with log_path.open("ab") as log:
        done = subprocess.run(
            (*start.command, "--state", str(folder.root)),
            cwd=folder.root,
            env=dict(start.environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            check=False,
        )
    if done.returncode != 0:
        raise ServerFailed("the supervisor could not be started", log_path=log_path)
    return _until_ready(folder, start.timeout_seconds, former=former)


def _until_ready(folder: ClusterFolder, timeout_seconds: float, former: ClusterState | None = None) -> ClusterState:
    """Wait until the running cluster is ready. `former` is the state of an earlier run, which does not count."""
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        alive = is_supervised(folder)
        state = read_state(folder)
        fresh = state is not None and (former is None or state.supervisor != former.supervisor)
        if state is not None and fresh and state.phase in (Phase.READY, Phase.DEGRADED):
            return state
        if not alive:
            reason = state.reason if state is not None and fresh else ""
            log_path = folder.log("supervisor")
            raise ServerFailed(f"the cluster could not be started. {reason}".rstrip(), log_path=log_path)
        time.sleep(_POLL_SECONDS)
    raise LocalClusterError(_not_ready(read_state(folder), folder, timeout_seconds))


def _not_ready(state: ClusterState | None, folder: ClusterFolder, timeout_seconds: float) -> str:
    children = state.children.values() if state else ()
    missing = [
        f"  {child.name}: {child.state}{f', {child.reason}' if child.reason else ''} (log: {folder.log(child.name)})"
        for child in children
        if child.state is not ChildState.HEALTHY
    ]
    return "\n".join([f"not ready after {timeout_seconds:g} s; `makeway down` stops what runs", *missing])


def look(root: Path) -> ClusterState | None:
    """The state of the cluster that runs on this folder; None when none does."""
    folder = ClusterFolder(root=root.absolute())
    return read_state(folder) if is_supervised(folder) else None


def take_down(root: Path, *, grace_seconds: float, wipe: bool = False) -> bool:
    """Stop everything, jobs included, and keep the data, or with `wipe` remove the whole state folder.

    Jobs are noticed, get their grace, and are killed; they are queued again by the next `up`. False when nothing ran.
    Raises LocalClusterError when something would not stop.
    """
    folder = ClusterFolder(root=root.absolute())
    if not folder.settings_file.exists():  # never touch a folder that is none of ours
        return False
    with (folder.root / "up.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = look(root)
        state = running or read_state(folder)
        if running is not None:
            write_private(folder.stop_file, json.dumps({"grace_seconds": grace_seconds}) + "\n")
            _end_supervisor(running.supervisor, grace_seconds)
        found = _end_leftovers(folder, state, grace_seconds)
        if wipe:
            _remove(folder)
    return running is not None or found


def _end_supervisor(supervisor: ProcessIdentity, grace_seconds: float) -> None:
    if is_alive(supervisor):
        os.kill(supervisor.pid, signal.SIGTERM)
        if not wait_for_end(supervisor, timeout_seconds=2 * grace_seconds + _STOP_MARGIN_SECONDS):
            end(supervisor, signal.SIGKILL, grace_seconds=5)


def _end_leftovers(folder: ClusterFolder, state: ClusterState | None, grace_seconds: float) -> bool:
    """What a supervisor that was killed left alive: services, then jobs, then servers."""
    found = 0
    if state is not None and state.boot_id == boot_id():
        for child in state.children.values():
            if child.process is not None and is_alive(child.process):
                found += 1
                end(child.process, signal.SIGTERM, grace_seconds=15)
        found += end_all(state.runtime_folder, folder.nodes, grace_seconds=grace_seconds)
        shutil.rmtree(state.runtime_folder, ignore_errors=True)
    for broker in processes_in(folder.kafka, names=("java",)):
        found += 1
        end(broker, signal.SIGTERM, grace_seconds=10)
    return found + _postgres_of(folder).end_leftovers() > 0


def _postgres_of(folder: ClusterFolder) -> EmbeddedPostgres:
    """The cluster's PostgreSQL, to be ended or removed only."""
    return EmbeddedPostgres(
        PostgresSettings(data_folder=folder.postgres, socket_folder=folder.root, log_path=Path(os.devnull), password="")
    )


def _remove(folder: ClusterFolder) -> None:
    """Remove what the cluster made, and the folder itself unless it holds something else."""
    _postgres_of(folder).wipe()  # its data may lie elsewhere, see postgres_user
    for entry in folder.root.iterdir():
        if entry.name not in CLUSTER_ENTRIES:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    with contextlib.suppress(OSError):
        folder.root.rmdir()
