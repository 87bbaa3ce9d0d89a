"""The values that the policy reads and writes: jobs, nodes, GPUs, runs, teams, refusals.

All are frozen. Times are seconds since the epoch, durations seconds, sizes MiB. A value says what is the case; what
follows from it (queue value, protection, free room) is computed by the modules that own the rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from makeway_policy.copies import value
from makeway_policy.kinds import (
    Drain,
    GpuHealth,
    LeaseKind,
    LeaseState,
    Mode,
    NodeHealth,
    Overdue,
    Reason,
    RunState,
    StopCause,
    Topology,
    Trigger,
)

__all__ = [
    "Drain",
    "Gpu",
    "GpuHealth",
    "Group",
    "Job",
    "Lease",
    "LeaseKind",
    "LeaseState",
    "Member",
    "Mode",
    "Node",
    "NodeHealth",
    "Overdue",
    "Percents",
    "Reason",
    "Refusal",
    "Run",
    "RunState",
    "Shape",
    "StopCause",
    "Team",
    "Topology",
    "Trigger",
]


_READY = NodeHealth.READY
_NO_DRAIN = Drain.NO


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why not: one sentence for people, one reason for machines, and the figures behind it.

    `room_on` are nodes that would do, were they not kept for another or beyond a limit: who decides asks for it, and it
    is not stored.
    """

    reason: Reason
    sentence: str
    detail: Mapping[str, str] = field(default_factory=dict)
    room_on: tuple[str, ...] = field(default=(), compare=False)


@value(frozen=True, kw_only=True, slots=True)
class Shape:
    """What a job asks for. Jobs that ask for the same share one value and are judged once.

    One of: `gpus` whole cards (0 for a job of CPU and memory only); `vram_mib` MiB on each of `gpus` distinct cards;
    `shares` slots on each of `gpus` cards; `mig` instances of that profile. All figures are per member. With `gpus_max`
    it takes up to so many where quota and room allow; it waits, reserves and takes victims for `gpus` alone.
    `labels` are required node labels; `affinity` and `anti_affinity` wishes by label. `cpus` and `memory_mib` of None
    mean the GPUs' part of the node.
    """

    gpus: int = 1
    gpus_max: int | None = None
    gpu_type: str | None = None
    min_vram_mib: int = 0
    vram_mib: int | None = None
    shares: int | None = None
    mig: str | None = None
    cpus: float | None = None
    memory_mib: int | None = None
    members: int = 1
    distinct_nodes: bool = False
    topology: Topology = Topology.PREFER
    labels: tuple[tuple[str, str], ...] = ()
    nodes: frozenset[str] = frozenset()
    exclude_nodes: frozenset[str] = frozenset()
    affinity: tuple[tuple[str, str], ...] = ()
    anti_affinity: tuple[tuple[str, str], ...] = ()


@value(frozen=True, kw_only=True, slots=True)
class Avoidance:
    """The nodes and GPUs on which a job's runs were lost or did not start, oldest first, to be avoided until a moment.

    While nothing else in use could run the job, as many of the oldest as that takes do not count (`avoiding`).
    """

    nodes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    until: float = 0.0


@value(frozen=True, kw_only=True, slots=True)
class Job:
    """One job as the policy sees it. It waits if it has no run, is not `held` or `over`, and `begin_at` has passed.

    `held`: a person or a changed fact has to let it go on; its limits in time hold all the same. `over`: it has ended,
    and is here while its last run has leases.

    `order` is the rising admission number that ends every tie. `submitted_at` survives preemption, retries and
    restarts; `queued_since` starts the current stay in the queue, which ends only when a run has started (so the caller
    moves it when a job is put back, and keeps it while a run is only planned). `preempted_at` holds the times of the
    preemptions that count, of the last 24 h at least. `down` says that the last run was ended by preemption, reclaim,
    drain or loss and none has started since. `no_victims_until` and `failed_holds` are the back-off after a hold or a
    start that failed. `backs_off`: `begin_at` is the end of a pause between two tries. `deadline` and
    `max_wait_seconds` (from the submit) are both met by the first start; what happens else is the policy's default
    where the job does not say. `avoid_nodes` and `avoid_gpus` are what of its `avoidance` counts now: what is derived
    keeps them. `refusal` is the stored reason, compared to decide whether a new one is told.
    """

    job_id: str
    order: int
    team: str
    class_name: str
    submitted_at: float
    queued_since: float
    shape: Shape = field(default_factory=Shape)
    user: str = ""
    own_priority: int | None = None
    manual_priority: int | None = None
    promoted: bool = False
    held: bool = False
    over: bool = False
    unsatisfiable: bool = False
    preemptible: bool = True
    mode: Mode | None = None
    grace_seconds: float | None = None
    exempt_after_seconds: float | None = None
    time_limit_seconds: float | None = None
    used_seconds: float = 0.0
    runs: int = 0
    preempted_at: tuple[float, ...] = ()
    down: bool = False
    last_end_preempted: bool = False
    restart_seconds: float | None = None
    no_victims_until: float = 0.0
    failed_holds: int = 0
    begin_at: float | None = None
    backs_off: bool = False
    deadline: float | None = None
    max_wait_seconds: float | None = None
    on_deadline: Overdue | None = None
    on_max_wait: Overdue | None = None
    has_started: bool = False
    group: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    avoidance: Avoidance = Avoidance()
    avoid_nodes: frozenset[str] = frozenset()
    avoid_gpus: frozenset[str] = frozenset()
    resume_node: str | None = None
    refusal: Refusal | None = None


@value(frozen=True, kw_only=True, slots=True)
class Node:
    """A host. `cpus` and `memory_mib` of 0 mean that it does not count them (nothing is refused for them).

    `refusal` is why it takes no runs now, in its own words; empty where it takes them.
    """

    node_id: str
    pool: str = "default"
    health: NodeHealth = NodeHealth.READY
    cordoned: bool = False
    drain: Drain = Drain.NO
    refusal: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    cpus: float = 0.0
    memory_mib: int = 0

    @property
    def takes_placements(self) -> bool:
        """Whether anything new may be placed on it."""
        return self.health is _READY and self.is_open

    @property
    def is_open(self) -> bool:
        """Whether neither an operator nor the node itself keeps new work away from it."""
        return not self.cordoned and not self.refusal and self.drain is _NO_DRAIN


@value(frozen=True, kw_only=True, slots=True)
class Gpu:
    """A schedulable device: a whole card, or a MIG instance (then `mig_profile` is set).

    `vram_mib` is what jobs can get: the driver's reserve is off already. `slots` is the pool's `max_shares`.
    GPUs of one `link_group` are linked by NVLink. `in_mig_mode` marks a card whose instances are the GPUs.
    """

    gpu_id: str
    node_id: str
    index: int
    type_name: str
    vram_mib: int
    slots: int = 4
    health: GpuHealth = GpuHealth.AVAILABLE
    mig_profile: str | None = None
    in_mig_mode: bool = False
    link_group: int | None = None


@value(frozen=True, kw_only=True, slots=True)
class Lease:
    """A run's right to a GPU. A whole card is all MiB and all slots; a MiB share takes one slot; slots alone, 0 MiB."""

    gpu_id: str
    vram_mib: int
    slots: int


@value(frozen=True, kw_only=True, slots=True)
class Member:
    """One member of a run on one node (a job without `members` has one)."""

    node_id: str
    leases: tuple[Lease, ...] = ()
    cpus: float = 0.0
    memory_mib: int = 0


@value(frozen=True, kw_only=True, slots=True)
class Run:
    """One attempt at a job, from the decision until its leases are released (then it is removed from the state).

    `run_id` is `{job_id}.{number}`, number 1 first. `v` is the preemption value, frozen when decided. `after` are the
    runs that must end before it starts. `empty_since` is when the last of its GPUs was proven empty (the hold's clock);
    `begun_at` when its node began the start. `grace_seconds` is what its notice carries; `leaves_by` when it is gone
    at the latest. `last_ack_at` and `progress` (0 to 1) come from checkpoint acks. `promoted` marks a run that an aged
    job won, `reclaimed` one that its team's guarantee won, `after_preemption` one whose job was preempted before it.
    `withdrawing`: told to stop only if not started; `moves_to` is then what is kept for it meanwhile on other GPUs.
    """

    run_id: str
    job_id: str
    number: int
    members: tuple[Member, ...]
    lease_state: LeaseState
    v: int
    decided_at: float
    state: RunState = RunState.PLANNED
    after: frozenset[str] = frozenset()
    empty_since: float | None = None
    begun_at: float | None = None
    started_at: float | None = None
    noticed_at: float | None = None
    stop_cause: StopCause | None = None
    grace_seconds: float = 0.0
    leaves_by: float | None = None
    last_ack_at: float | None = None
    progress: float | None = None
    restart_seconds: float | None = None
    promoted: bool = False
    reclaimed: bool = False
    after_preemption: bool = False
    withdrawing: bool = False
    moves_to: tuple[Member, ...] = ()

    @property
    def leases(self) -> tuple[Lease, ...]:
        """All leases, member by member."""
        if len(self.members) == 1:
            return self.members[0].leases
        return tuple(lease for member in self.members for lease in member.leases)

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The nodes of its members, each once, in order."""
        if len(self.members) == 1:
            return (self.members[0].node_id,)
        return tuple(dict.fromkeys(member.node_id for member in self.members))


@value(frozen=True, kw_only=True, slots=True)
class Percents:
    """Figures of a team that are given in per cent of the pool. Each takes the place of the same figure in GPUs."""

    guarantee: float | None = None
    limit: float | None = None
    user_limit: float | None = None
    class_limits: Mapping[str, float] = field(default_factory=dict)
    allowances: Mapping[str, float] = field(default_factory=dict)


@value(frozen=True, kw_only=True, slots=True)
class Team:
    """A team's rights in this pool, in GPUs. `limit` None means no limit.

    `class_limits` caps running GPUs per class. `allowances` maps what needs leave to the GPUs allowed: the class names
    urgent and high, `not_preemptible`, `hard_groups`; a missing key is 0 (None for the mapping: everything is allowed,
    as in a pool without teams). `percents` are the figures that follow the size of the pool: `PoolState.team` gives
    them in GPUs as well.
    """

    team_id: str
    guarantee: float = 0.0
    limit: float | None = None
    weight: float = 1.0
    class_limits: Mapping[str, float] = field(default_factory=dict)
    allowances: Mapping[str, float] | None = None
    user_limit: float | None = None
    max_queued: int = 100_000
    gpu_hours_per_month: float | None = None
    gpu_hours_used: float = 0.0
    percents: Percents | None = None


@value(frozen=True, kw_only=True, slots=True)
class Group:
    """A disruption group: of its jobs, at most `max_down` may be down, or at least `min_available` must be up."""

    name: str
    min_available: int | None = None
    max_down: int | None = None
    hard: bool = True
