"""What a replay leaves behind: outcomes, who ran where, preemptions, the queue over time."""

from collections import Counter
from dataclasses import dataclass, field

from makeway_policy.model import Mode, Refusal, Trigger

from makeway_simulator.outcome import EndKind, JobOutcome
from makeway_simulator.trace import Cluster


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """One run on its GPUs. It starts up or restores until `ready_at`.

    `resumed_seconds` of the job's work were done before it, `saved_seconds` are safe after it. `forced`: it did not
    leave by itself.
    """

    job_id: str
    run: int
    gpus: tuple[str, ...]
    started_at: float
    ready_at: float
    ended_at: float
    kind: EndKind
    resumed_seconds: float = 0.0
    saved_seconds: float = 0.0
    noticed_at: float | None = None
    forced: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Preemption:
    """One victim's notice."""

    at: float
    victim: str
    preemptor: str
    mode: Mode
    trigger: Trigger
    cost_gpu_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class HoldLost:
    """A job's hold that another took over, or that expired."""

    at: float
    job_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """The queue and the GPUs after a moment's decisions."""

    at: float
    waiting: int
    busy_gpus: int


@dataclass(kw_only=True, slots=True)
class Record:
    """Everything that a report is drawn from.

    `unfinished` jobs never came to an end; `refused` of them never can, and those in `running` ran when it was stopped,
    each in a segment of `open` that ends there. `turned_away` are those that were refused at submit, with the reason.
    """

    cluster: Cluster
    outcomes: list[JobOutcome] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)
    holds_lost: list[HoldLost] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    ended: Counter[EndKind] = field(default_factory=Counter)
    running: tuple[str, ...] = ()
    open: tuple[Segment, ...] = ()
    turned_away: dict[str, Refusal] = field(default_factory=dict)
    unfinished: int = 0
    refused: int = 0
