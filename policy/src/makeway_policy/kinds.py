"""The words of the policy: what a job, run, lease, GPU or node can be, and why something is refused.

Modules that every decision goes through name the members that they compare with once: before Python 3.12 a member costs
ten times as much through its class as by a name of the module.
"""

from enum import StrEnum


class Mode(StrEnum):
    """What a preemption does to a job."""

    OFF = "off"
    CANCEL = "cancel"
    REQUEUE = "requeue"
    CHECKPOINT = "checkpoint"


class Overdue(StrEnum):
    """What happens to a job that has not started in time."""

    CANCEL = "cancel"
    DEGRADE = "degrade"
    PROMOTE = "promote"


class GpuHealth(StrEnum):
    """Whether new placements may use a GPU. What is leased on it follows from the runs."""

    AVAILABLE = "available"
    QUARANTINED = "quarantined"
    CORDONED = "cordoned"
    LOST = "lost"


class NodeHealth(StrEnum):
    """Whether a node is heard. Nothing is placed on a node that is not READY."""

    READY = "ready"
    UNKNOWN = "unknown"
    DEAD = "dead"


class Drain(StrEnum):
    """Whether a node is being emptied: GENTLY as soon as nothing protects a run, or FORCED, all at once."""

    NO = "no"
    GENTLY = "gently"
    FORCED = "forced"


class LeaseState(StrEnum):
    """What all leases of a run are worth; all leases of a run share one state.

    LIVE may have a live process. LEAVING has its stop committed. NEXT is planned to follow the runs in `Run.after`.
    PENDING has no leases in the database yet: its GPUs are kept for it in the policy's state until the runs in
    `Run.after` have ended (their NEXT leases cannot be shared); then `Grant` makes it NEXT or LIVE.
    """

    LIVE = "live"
    LEAVING = "leaving"
    NEXT = "next"
    PENDING = "pending"


class RunState(StrEnum):
    """How far a run is. EXITED still occupies its GPUs: they are not proven empty. Released runs are removed."""

    PLANNED = "planned"
    STARTING = "starting"
    RUNNING = "running"
    NOTICED = "noticed"
    EXITED = "exited"


class StopCause(StrEnum):
    """Why a run was told to stop."""

    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    TIME_LIMIT = "time_limit"
    DRAINED = "drained"
    HOLD_LOST = "hold_lost"
    HOLD_EXPIRED = "hold_expired"
    HOLD_MOVED = "hold_moved"
    OURS = "ours"


class Trigger(StrEnum):
    """What made a preemption happen; stored with it."""

    ARRIVAL = "arrival"
    SLA_PROMOTION = "sla_promotion"
    MANUAL = "manual"
    RECLAIM = "reclaim"
    DRAIN = "drain"


class Topology(StrEnum):
    """How a job wants its GPUs linked inside a node."""

    REQUIRE = "require"
    PREFER = "prefer"
    ANY = "any"


class Reason(StrEnum):
    """Why a job does not run, or why a submit is refused. Few values: they are a metric's label too."""

    NOT_YET = "not_yet"
    HELD = "held"
    NEVER_FITS = "never_fits"
    TEAM_LIMIT = "team_limit"
    CLASS_LIMIT = "class_limit"
    ALLOWANCE = "allowance"
    NO_ROOM = "no_room"
    RESERVED_FOR_ANOTHER = "reserved_for_another"
    BACKING_OFF = "backing_off"
    OVERDUE = "overdue"
    PROTECTED = "protected"
    NOT_RUNNING = "not_running"
    INVALID = "invalid"


class LeaseKind(StrEnum):
    """Kinds of leases never mix on a card."""

    WHOLE = "whole"
    SIZED = "sized"
    SLOTS = "slots"
