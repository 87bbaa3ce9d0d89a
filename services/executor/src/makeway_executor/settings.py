"""The executor's settings, all read from `MAKEWAY_*` variables."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

from makeway_runtime.settings import ServiceSettings
from makeway_schemas.id_patterns import NODE_ID_PATTERN
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, SecretStr, StringConstraints

_MIB = 1024 * 1024


class ExecutorSettings(ServiceSettings):
    """One node. `state_dir` keeps run folders and logs; `runtime_dir` the jobs' control sockets."""

    node_name: Annotated[str, StringConstraints(pattern=NODE_ID_PATTERN)] = Field(
        default_factory=lambda: socket.gethostname().lower()
    )
    node_token: SecretStr | None = None
    admission_url: str | None = None
    """Where logs are sent, e.g. http://127.0.0.1:8080; without it they stay on the node until their run is booked."""
    simulate: str | None = None
    """Simulated cards instead of real ones, e.g. 4xA100-80GB."""
    labels: dict[str, str] = Field(default_factory=dict)
    checkpoint_root: Path | None = None
    """Default: `checkpoints` in the state folder."""
    checkpoint_keep_days: PositiveFloat = 7.0
    """How long checkpoints of a finished job stay."""
    cgroups: bool = True
    """One cgroup v2 folder a run, where this process may make them."""

    report_seconds: PositiveFloat = 5.0
    min_free_disk_percent: NonNegativeFloat = 5.0
    """With less than this the node takes no new runs."""
    log_head_bytes: PositiveInt = 960 * _MIB
    log_tail_bytes: PositiveInt = 64 * _MIB
    """A run's log keeps this much of its beginning and of its end."""
    log_keep_hours: PositiveFloat = 24.0
    """How long a log that could not be sent is kept after its run is booked."""
    quarantine_after_seconds: PositiveFloat = 30.0
    probation_seconds: NonNegativeFloat = 300.0
    """How long a quarantined GPU has to be proven empty before it is offered again."""
    down_grace_seconds: NonNegativeFloat = 10.0
    """Grace of a drain whose `drain.json` in the runtime folder names none."""

    test_start_delay_seconds: NonNegativeFloat = 0.0
    """Test hook: a run waits this long between its plan and its start, as on a node whose set-up is slow."""

    @property
    def run_root(self) -> Path:
        """The folder of all run folders."""
        return self.state_dir / "runs"

    @property
    def checkpoints(self) -> Path:
        """The checkpoint root."""
        return self.checkpoint_root or self.state_dir / "checkpoints"
