"""The states of jobs, runs, leases, GPUs and nodes, and the table of allowed moves that code and tests share."""

from enum import StrEnum
from types import MappingProxyType
from typing import Final


class JobState(StrEnum):
    """Where a job is. A terminal state never changes."""

    QUEUED = "QUEUED"
    HELD = "HELD"
    UNSATISFIABLE = "UNSATISFIABLE"
    RESERVED = "RESERVED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    UNKNOWN = "UNKNOWN"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"
    EXPIRED = "EXPIRED"


class RunState(StrEnum):
    """Where a run is. Any state may go to EXITED; RELEASED is the last."""

    PLANNED = "PLANNED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    NOTICED = "NOTICED"
    EXITED = "EXITED"
    RELEASED = "RELEASED"


class LeaseState(StrEnum):
    """LIVE may have a live process; LEAVING has its stop committed; NEXT is planned to follow."""

    LIVE = "LIVE"
    LEAVING = "LEAVING"
    NEXT = "NEXT"


class GpuState(StrEnum):
    """Where a GPU is, as people see it."""

    FREE = "FREE"
    LEASED = "LEASED"
    DRAINING = "DRAINING"
    QUARANTINED = "QUARANTINED"
    CORDONED = "CORDONED"
    LOST = "LOST"


CARD_FAULT: Final = "its driver has told of a fault: "
"""What the reason of a GPU begins with that has failed; it has until its driver lists it anew or its node boots."""


class NodeState(StrEnum):
    """A silent node is UNKNOWN, which is not failed. DEAD is an operator's word, until it is heard again."""

    READY = "READY"
    UNKNOWN = "UNKNOWN"
    DEAD = "DEAD"


class EndCause(StrEnum):
    """Why a run ended. A run has one end and one cause."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"
    NODE_LOST = "node_lost"
    GPU_LOST = "gpu_lost"
    OURS = "ours"
    NEVER_STARTED = "never_started"


class StopCause(StrEnum):
    """Why a node is told to stop a run. Where causes meet the first in this order wins."""

    CANCEL = "cancel"
    TIME_LIMIT = "time_limit"
    PREEMPT = "preempt"
    DRAIN = "drain"


TERMINAL: Final = frozenset(
    {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT, JobState.EXPIRED}
)
WAITING: Final = frozenset({JobState.QUEUED, JobState.HELD, JobState.UNSATISFIABLE})

_J = JobState
JOB_MOVES: Final = MappingProxyType(
    {
        _J.QUEUED: frozenset(
            {_J.HELD, _J.UNSATISFIABLE, _J.RESERVED, _J.STARTING, _J.CANCELLED, _J.EXPIRED, _J.TIMED_OUT}
        ),
        _J.HELD: frozenset({_J.QUEUED, _J.UNSATISFIABLE, _J.CANCELLED, _J.EXPIRED, _J.FAILED}),
        _J.UNSATISFIABLE: frozenset({_J.QUEUED, _J.HELD, _J.RESERVED, _J.STARTING, _J.CANCELLED, _J.EXPIRED}),
        _J.RESERVED: frozenset(_J) - {_J.RESERVED},
        _J.STARTING: frozenset(_J) - {_J.STARTING, _J.HELD, _J.UNSATISFIABLE, _J.RESERVED} | {_J.HELD},
        _J.RUNNING: frozenset({_J.STOPPING, _J.QUEUED, _J.HELD, _J.UNKNOWN}) | TERMINAL,
        _J.STOPPING: frozenset({_J.QUEUED, _J.HELD, _J.UNKNOWN}) | TERMINAL,
        _J.UNKNOWN: frozenset(_J) - {_J.UNKNOWN},
        **dict.fromkeys(TERMINAL, frozenset[JobState]()),
    }
)
"""Allowed moves of a job. RESERVED or STARTING may go back to QUEUED; UNKNOWN may go anywhere."""

_R = RunState
RUN_MOVES: Final = MappingProxyType(
    {
        _R.PLANNED: frozenset({_R.STARTING, _R.RUNNING, _R.NOTICED, _R.EXITED}),
        _R.STARTING: frozenset({_R.RUNNING, _R.NOTICED, _R.EXITED}),
        _R.RUNNING: frozenset({_R.NOTICED, _R.EXITED}),
        _R.NOTICED: frozenset({_R.EXITED}),
        _R.EXITED: frozenset({_R.RELEASED}),
        _R.RELEASED: frozenset[RunState](),
    }
)
"""Allowed moves of a run; facts may come in any order, so a run may skip states but never go back."""
