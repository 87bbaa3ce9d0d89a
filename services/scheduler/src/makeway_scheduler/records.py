"""The rows of the tables with the same names, as the scheduler remembers them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from makeway_policy.model import Avoidance, Drain, Member, Shape
from makeway_schemas.job_spec import JobSpec
from makeway_schemas.states import JobState, LeaseState, NodeState, RunState, StopCause

NO_VICTIMS: Final = "free"
"""The trigger of a run that needed no victims."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """A job that has not ended: what admission wrote, and the row of ``job_states``. Times: seconds since the epoch.

    ``version`` 0 means that the row is not in the database yet.
    """

    job_id: str
    pool: str
    team: str
    order: int
    class_name: str
    spec: JobSpec
    shape: Shape
    submitted_by: str
    submitted_at: float
    traceparent: str | None = None
    state: JobState = JobState.QUEUED
    reason_code: str = ""
    reason: str = ""
    reason_detail: Mapping[str, str] = field(default_factory=dict)
    manual_priority: int | None = None
    run_number: int = 0
    preemptions: int = 0
    preempted_at: tuple[float, ...] = ()
    infrastructure_failures: int = 0
    own_failures: int = 0
    avoidance: Avoidance = field(default_factory=Avoidance)
    amendments: Mapping[str, Any] = field(default_factory=dict)
    """What holds instead of the specification, by name; None takes a value away."""
    hold_failures: int = 0
    no_victims_until: float | None = None
    retry_at: float | None = None
    cancel_requested: bool = False
    queued_since: float | None = None
    first_started_at: float | None = None
    last_started_at: float | None = None
    used_seconds: float = 0.0
    last_ack_step: int | None = None
    last_end: str = ""
    last_victim_run: str | None = None
    restart_seconds: float | None = None
    ended_at: float | None = None
    end_cause: str | None = None
    exit_code: int | None = None
    message: str = ""
    version: int = 0

    @property
    def time_limit(self) -> float | None:
        """Its longest run time in seconds, summed over its runs."""
        limit: float | None = self.amended("time_limit", self.spec.time_limit)
        return limit

    def amended(self, name: str, specified: Any) -> Any:
        """What holds of a name now: what it was amended to, else what the specification says."""
        return self.amendments.get(name, specified)


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseRecord:
    """A run's part of a GPU."""

    gpu_id: str
    vram_mib: int
    slots: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """A run whose leases are not all released. ``placement`` never changes; ``leases`` are those it still has.

    ``lease_state`` None: it took over a hold and gets its leases once that hold's end is booked.
    """

    run_id: str
    job_id: str
    number: int
    node_id: str
    placement: tuple[LeaseRecord, ...]
    leases: tuple[LeaseRecord, ...]
    lease_state: LeaseState | None
    value: int
    planned_at: float
    state: RunState = RunState.PLANNED
    cpus: float = 0.0
    memory_mib: int = 0
    after: frozenset[str] = frozenset()
    trigger: str = NO_VICTIMS
    restart_seconds: float | None = None
    promoted: bool = False
    after_preemption: bool = False
    withdrawing: bool = False
    stop_cause: StopCause | None = None
    stop_trigger: str = ""
    """What made it a victim, as its preemption's record says; empty while it is none."""
    stop_grace_seconds: float | None = None
    stop_at: float | None = None
    leaves_by: float | None = None
    released_at: float | None = None
    """When its last lease went, where that was heard before its end; not kept over a take-over."""
    empty_at: float | None = None
    begun_at: float | None = None
    pid: int | None = None
    started_at: float | None = None
    noticed_at: float | None = None
    resumed_at: float | None = None
    resumed_step: int | None = None
    load_seconds: float | None = None
    ack_step: int | None = None
    ack_bytes: int | None = None
    ack_fraction: float | None = None
    acked_at: float | None = None
    ended_at: float | None = None
    end_cause: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    forced: bool = False
    run_seconds: float | None = None
    log_bytes: int | None = None
    message: str = ""
    traceparent: str | None = None
    stored: bool = False
    moves_to: tuple[Member, ...] = ()
    """What the policy keeps for the job elsewhere while this run is withdrawn; not stored: it is decided again."""

    @property
    def ended(self) -> bool:
        """Whether its end is booked."""
        return self.state in (RunState.EXITED, RunState.RELEASED)

    @property
    def released(self) -> bool:
        """Whether its end is booked and no lease is left: it leaves memory with the next commit."""
        return self.state is RunState.RELEASED

    @property
    def pending(self) -> bool:
        """Whether it waits for the end of a hold that it took over, without leases of its own."""
        return self.lease_state is None and not self.ended


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeRecord:
    """A node, and the number of its newest plan."""

    node_id: str
    session: str
    boot_id: str
    state: NodeState = NodeState.READY
    cordoned: bool = False
    accepts_runs: bool = True
    refusal: str = ""
    drain: Drain = Drain.NO
    note: str = ""
    """Who cordoned or drains it, or declared it dead, and why (`node_notes`)."""
    simulated: bool = False
    cpus: int = 0
    memory_mib: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    agent_version: str = ""
    state_since: float = 0.0
    plan_number: int = 0
    plan_session: str = ""
    version: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuRecord:
    """A GPU as its node reports it; ``capacity_mib`` is without the driver's reserve."""

    gpu_id: str
    node_id: str
    index: int
    type_name: str
    capacity_mib: int
    reserved_mib: int = 0
    capacity_slots: int = 4
    mig_profile: str | None = None
    link_group: int | None = None
    condition: str = "ok"
    cordoned: bool = False
    reason: str = ""
    version: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """A row of ``job_events`` to be written."""

    job_id: str
    kind: str
    state: JobState
    at: float
    run_number: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    causation_id: str | None = None
    traceparent: str | None = None
