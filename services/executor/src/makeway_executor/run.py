"""One run on this node, as it stands now."""

from __future__ import annotations

from dataclasses import dataclass, field

from makeway_schemas.facts import Ack, Resume, RunEnd
from makeway_schemas.plans import PlannedRun, Stop
from makeway_schemas.states import StopCause

from makeway_executor.reconcile import KnownRun, Phase
from makeway_executor.run_folder import RunFolder
from makeway_executor.shim import ShimLink


@dataclass(slots=True, kw_only=True)
class Run:
    """Changed only by the node that holds it. Times are nanoseconds since boot."""

    folder: RunFolder
    planned: PlannedRun | None
    phase: Phase
    boot_id: str = ""
    key: str = ""
    control_path: str = ""
    cgroup: str | None = None
    link: ShimLink | None = None
    shim_pid: int | None = None
    """As far as it is known: what the job has sent into the background becomes a child of it."""
    pid: int | None = None
    started_ns: int | None = None
    noticed_ns: int | None = None
    ended_ns: int | None = None
    ack: Ack | None = None
    ack_ns: int = 0
    resumed: Resume | None = None
    resumed_ns: int = 0
    end: RunEnd | None = None
    held_gpus: set[str] = field(default_factory=set)
    exit_told: bool = False
    stop_wanted: Stop | None = None
    stop_sent: StopCause | None = None
    limit_wanted: PlannedRun | None = None
    """Of the newest plan, where it names another time limit than the run's shim has been told."""
    booked: bool = False
    log_stored: int = 0
    """Bytes of its log that admission holds."""
    log_done: bool = False

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.folder.run_id

    @property
    def alive(self) -> bool:
        """Whether it may have processes."""
        return self.phase in (Phase.STARTING, Phase.RUNNING, Phase.NOTICED)

    def known(self) -> KnownRun:
        """The part that decisions are made on."""
        return KnownRun(phase=self.phase, planned=self.planned, held_gpus=frozenset(self.held_gpus))
