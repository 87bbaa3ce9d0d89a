"""The event loop of the rivals: submissions, ends, and what the policy itself announces."""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from makeway_simulator.outcome import JobOutcome
from makeway_simulator.trace import Cluster, TraceJob


class Cost(StrEnum):
    """When a start-up is paid: at every event (as in the peer's simulator), or once per start, resume and move."""

    PEER = "peer"
    RESUME = "resume"


@dataclass(frozen=True, kw_only=True, slots=True)
class Charge:
    """The cost model; `restart_seconds` is what a resume takes of jobs whose trace does not say what a start costs."""

    cost: Cost = Cost.RESUME
    restart_seconds: float = 0.0


@dataclass(eq=False, kw_only=True, slots=True)
class Active:
    """A job in the system. `debt` is what is left of a start-up to pay, `nodes` where it runs (empty: it waits)."""

    job: TraceJob
    remaining: float
    startup: float
    first_startup: float
    running: bool = False
    nodes: tuple[int, ...] = ()
    attained: float = 0.0
    debt: float = 0.0
    started_at: float | None = None
    preemptions: int = 0
    held: float = 0.0
    lost: float = 0.0
    ends_at: float = math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """What shall run from now on, in the policy's order, with the nodes of each (none where only counts matter)."""

    runs: Sequence[tuple[Active, tuple[int, ...]]]


class Rival(Protocol):
    """A policy that sees all active jobs at every event and assigns the whole cluster anew."""

    def submitted(self, active: Active) -> None:
        """A job has come."""
        ...

    def ended(self, active: Active) -> None:
        """A job has ended."""
        ...

    def progressed(self) -> None:
        """All running jobs have been credited for the time since the last event."""
        ...

    def assign(self, now: float) -> Assignment:
        """Decide what runs from now on."""
        ...

    def next_change(self, now: float) -> float:
        """When the policy itself wants to decide again (inf: only at the next submission or end)."""
        ...


@dataclass(kw_only=True, slots=True)
class _Replay:
    rival: Rival
    charge: Charge
    now: float = 0.0
    active: dict[str, Active] = field(default_factory=dict)
    running: list[Active] = field(default_factory=list)
    outcomes: list[JobOutcome] = field(default_factory=list)

    def advance(self, now: float) -> None:
        last, self.now = self.now, now
        ended = [active for active in self.running if active.ends_at <= now]
        for active in self.running:
            self._credit(active, last)
        for active in ended:
            del self.active[active.job.job_id]
            self.rival.ended(active)
            self.outcomes.append(_outcome(active, now))

    def _credit(self, active: Active, last: float) -> None:
        elapsed = self.now - last
        # In this order: an announced demotion is then reached exactly, and not missed by a rounding for ever.
        active.attained = active.attained + self.now - last
        active.held += elapsed
        paid = min(active.startup if self.charge.cost is Cost.PEER else active.debt, elapsed)
        if active.ends_at > self.now:
            active.remaining -= max(elapsed - paid, 0.0)
        if self.charge.cost is Cost.RESUME:
            active.debt -= paid
        active.lost += paid

    def assign(self) -> None:
        assignment = self.rival.assign(self.now)
        chosen = {active.job.job_id for active, _ in assignment.runs}
        for active in self.running:
            if active.job.job_id not in chosen and active.job.job_id in self.active:
                active.running = False
                active.nodes = ()
                active.preemptions += 1
        self.running = [self._start(active, nodes) for active, nodes in assignment.runs]

    def _start(self, active: Active, nodes: tuple[int, ...]) -> Active:
        if not active.running or active.nodes != nodes:
            active.debt = active.first_startup if active.started_at is None else active.startup
        active.running = True
        active.nodes = nodes
        if active.started_at is None:
            active.started_at = self.now
        ahead = active.debt if self.charge.cost is Cost.RESUME else 0.0
        active.ends_at = self.now + ahead + active.remaining
        return active


Follow = Callable[[float, Sequence[Active], Collection[str]], None]
"""Is told after every event: the time, what runs from now on, and all jobs that have come and have not ended."""


def run(
    jobs: Sequence[TraceJob],
    rival: Rival,
    charge: Charge,
    progress: Callable[[int], None] | None = None,
    follow: Follow | None = None,
) -> list[JobOutcome]:
    """Replay the jobs, ordered by submission."""
    replay = _Replay(rival=rival, charge=charge)
    coming = 0
    while coming < len(jobs) or replay.running:
        submit = jobs[coming].submitted_at if coming < len(jobs) else math.inf
        end = min((active.ends_at for active in replay.running), default=math.inf)
        replay.advance(min(submit, end, rival.next_change(replay.now)))
        while coming < len(jobs) and jobs[coming].submitted_at <= replay.now:
            active = _activate(jobs[coming], charge)
            replay.active[active.job.job_id] = active
            rival.submitted(active)
            coming += 1
        rival.progressed()
        replay.assign()
        if follow is not None:
            follow(replay.now, replay.running, replay.active)
        if progress is not None:
            progress(len(replay.outcomes))
    return replay.outcomes


def placeable(jobs: Iterable[TraceJob], cluster: Cluster) -> tuple[list[TraceJob], int]:
    """The jobs that the empty cluster could run, and how many it never could."""
    fitting, refused = [], 0
    for job in jobs:
        if job.gpus <= cluster.gpus_per_node or job.gpus // cluster.gpus_per_node <= cluster.nodes:
            fitting.append(job)
        else:
            refused += 1
    return fitting, refused


def _activate(job: TraceJob, charge: Charge) -> Active:
    first = job.startup_seconds or 0.0
    again = charge.restart_seconds if job.startup_seconds is None else job.startup_seconds
    return Active(job=job, remaining=job.work_seconds, startup=again, first_startup=first)


def _outcome(active: Active, now: float) -> JobOutcome:
    job = active.job
    return JobOutcome(
        job_id=job.job_id,
        class_name=job.class_name or "normal",
        gpus=job.gpus,
        submitted_at=job.submitted_at,
        started_at=now if active.started_at is None else active.started_at,
        finished_at=now,
        preemptions=active.preemptions,
        held_gpu_seconds=active.held * job.gpus,
        lost_gpu_seconds=active.lost * job.gpus,
    )
