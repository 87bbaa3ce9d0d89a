"""What runs now: one JSON file that the supervisor replaces whole on every change and `status` reads."""

import fcntl
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from makeway.local.cluster import ClusterFolder
from makeway.local.private_files import write_private
from makeway.local.processes import ProcessIdentity

__all__ = [
    "ChildState",
    "ChildStatus",
    "ClusterState",
    "Phase",
    "boot_id",
    "is_supervised",
    "read_state",
    "write_state",
]


class Phase(StrEnum):
    """Where the cluster as a whole stands."""

    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class ChildState(StrEnum):
    """Where one process stands."""

    WAITING = "waiting"
    STARTING = "starting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    BACKING_OFF = "backing off"
    STOPPED = "stopped"


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildStatus:
    """One process of the cluster.

    `restarts` counts starts after the first in this run of the cluster; `reason` says why it is not healthy, or what
    ended it last.
    """

    name: str
    state: ChildState = ChildState.WAITING
    process: ProcessIdentity | None = None
    restarts: int = 0
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterState:
    """The whole cluster; `runtime_folder` holds the sockets, `started_at` is aware and UTC."""

    phase: Phase
    supervisor: ProcessIdentity
    boot_id: str
    started_at: datetime
    url: str
    runtime_folder: Path
    children: Mapping[str, ChildStatus]
    reason: str = ""

    def with_child(self, status: ChildStatus) -> "ClusterState":
        """The state with one child's status in place."""
        return replace(self, children={**self.children, status.name: status})


def boot_id() -> str:
    """Names this boot: pids and start times mean nothing in another one."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def write_state(folder: ClusterFolder, state: ClusterState) -> None:
    """Replace the file."""
    content = asdict(state)
    content |= {"runtime_folder": str(state.runtime_folder), "started_at": state.started_at.isoformat()}
    write_private(folder.state_file, json.dumps(content, indent=2) + "\n")


def read_state(folder: ClusterFolder) -> ClusterState | None:
    """The last state written; None where there is none that can be used."""
    try:
        content = json.loads(folder.state_file.read_text())
        return ClusterState(
            phase=Phase(content["phase"]),
            supervisor=ProcessIdentity(**content["supervisor"]),
            boot_id=content["boot_id"],
            started_at=datetime.fromisoformat(content["started_at"]).astimezone(UTC),
            url=content["url"],
            runtime_folder=Path(content["runtime_folder"]),
            children={name: _child(value) for name, value in content["children"].items()},
            reason=content["reason"],
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _child(content: Mapping[str, object]) -> ChildStatus:
    process = content["process"]
    return ChildStatus(
        name=str(content["name"]),
        state=ChildState(str(content["state"])),
        process=ProcessIdentity(**process) if isinstance(process, dict) else None,
        restarts=int(str(content["restarts"])),
        reason=str(content["reason"]),
    )


def is_supervised(folder: ClusterFolder) -> bool:
    """Whether a supervisor lives: it holds the lock for life, so neither a crash nor a power cut can leave a lie."""
    try:
        with folder.lock_file.open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
