"""What happened in one case, as whoever looked on saw it: the same values from virtual time and from a live cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from makeway_schemas.states import JobState

REJECTED = "REJECTED"
"""The state of a job whose submit was refused."""

WORDS: Mapping[str, frozenset[str]] = {
    "QUEUED": frozenset({JobState.QUEUED, JobState.RESERVED}),
    "WAITING": frozenset({JobState.QUEUED, JobState.RESERVED, JobState.HELD, JobState.UNSATISFIABLE}),
    "EVICTING": frozenset({JobState.STOPPING}),
    "LOST-CONTACT": frozenset({JobState.UNKNOWN}),
    **{each.value: frozenset({each.value}) for each in JobState if each is not JobState.QUEUED},
    REJECTED: frozenset({REJECTED}),
}
"""Words that a scenario may use for a state, and the product's states that they mean."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSeen:
    """A job at a moment. `reason` is all that is said of why it waits; `gpus` are those that it runs on or keeps."""

    state: str
    priority: int
    reason: str = ""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A moment. `granted_mib` is per node, `usage` GPUs per team, `capacity` GPUs that count, by profile or "whole"."""

    at: float
    jobs: Mapping[str, JobSeen]
    granted_mib: Mapping[str, int] = field(default_factory=dict)
    usage: Mapping[str, float] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSeen:
    """One run that had a process. `evicted`: it was told to make way, and did not declare itself done."""

    job: str
    number: int
    started_at: float
    ended_at: float | None
    noticed_at: float | None
    forced: bool
    evicted: bool
    gpus: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """A case that was played to `until`.

    Snapshots are in order of time. `ended` says when jobs came to their ends. `slack_seconds` is how much later than
    it should a thing may be seen, or happen, where it was played. `violations` are what must never be.
    """

    until: float
    snapshots: tuple[Snapshot, ...]
    runs: tuple[RunSeen, ...]
    ended: Mapping[str, float]
    violations: tuple[str, ...] = ()
    slack_seconds: float = 0.0

    def at(self, moment: float) -> Snapshot:
        """How it was at a moment."""
        before = [each for each in self.snapshots if each.at <= moment + _ROUNDING]
        return before[-1] if before else Snapshot(at=0.0, jobs={})

    def between(self, first: float, last: float) -> tuple[Snapshot, ...]:
        """How it was at a time, and all that came until another."""
        later = [each for each in self.snapshots if first + _ROUNDING < each.at <= last + _ROUNDING]
        return (self.at(first), *later)

    def runs_of(self, job: str) -> tuple[RunSeen, ...]:
        """The runs of a job, in order."""
        return tuple(sorted((run for run in self.runs if run.job == job), key=lambda run: run.number))


_ROUNDING = 1e-6
