"""What can be seen of a case on the virtual clock: a snapshot of each moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from makeway_policy.explain import explain
from makeway_policy.model import Job, LeaseState, NodeHealth, Refusal, Run
from makeway_policy.priority import base
from makeway_policy.quantities import quantity
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState, is_leaving
from makeway_schemas.states import JobState

from makeway_simulator.outcome import EndKind
from makeway_simulator.record import Record
from makeway_simulator.scenario import hardware, notation
from makeway_simulator.scenario.case import Case
from makeway_simulator.scenario.history import REJECTED, JobSeen, Snapshot
from makeway_simulator.scenario.interventions import Stage
from makeway_simulator.scenario.invariants import Watcher

_ENDS = {
    EndKind.FINISHED: JobState.SUCCEEDED,
    EndKind.FAILED: JobState.FAILED,
    EndKind.LOST: JobState.FAILED,
    EndKind.CANCELLED: JobState.CANCELLED,
    EndKind.TIMED_OUT: JobState.TIMED_OUT,
    EndKind.EXPIRED: JobState.EXPIRED,
}


@dataclass(kw_only=True)
class Looker:
    """Takes a snapshot of each moment, and lets the invariants be looked at."""

    case: Case
    stage: Stage
    watcher: Watcher
    refused: Mapping[str, tuple[float, Refusal]]
    record: Record | None = None
    snapshots: list[Snapshot] = field(default_factory=list)
    explained: frozenset[str] = frozenset()
    _seen: dict[str, JobSeen] = field(default_factory=dict)
    _known: dict[str, Job] = field(default_factory=dict)
    _had_runs: set[str] = field(default_factory=set)
    _places: dict[str, int] = field(default_factory=dict)
    _ended: int = 0
    _policy: Policy | None = None
    _hardware: tuple[PoolState, int, Mapping[str, int]] | None = None

    def __post_init__(self) -> None:
        self._places = {job.name: place for place, job in enumerate(self.case.jobs)}
        asked = [each.reason or {} for each in self.case.expect]
        self.explained = frozenset(name for each in asked for name in notation.by_name(each))

    def look(self, now: float, state: PoolState) -> None:
        """Look at what is after a round of decisions."""
        self.watcher.policy = self.stage.policy
        for each in self.record.preemptions[len(self.watcher.made_way) :] if self.record is not None else ():
            self.watcher.made_way[each.victim, each.at] = each.preemptor
        self.watcher.holds_lost = () if self.record is None else self.record.holds_lost
        self.watcher.look(now, state)
        hardware.forget_lost(state)
        if self.snapshots and self.snapshots[-1].at == now:
            self.snapshots.pop()
        self._look_at_jobs(now, state)
        self.snapshots.append(
            Snapshot(
                at=now,
                jobs=dict(self._seen),
                granted_mib=_granted(state),
                usage={team: state.team_usage(team) for team in state.teams},
                capacity=self._capacity_of(state),
            )
        )

    def _look_at_jobs(self, now: float, state: PoolState) -> None:
        """Look at the jobs that may be seen otherwise than before: most wait or have ended, and are as they were."""
        for name, (at, refusal) in self.refused.items():
            if at <= now and name not in self._seen:
                self._seen[name] = _rejected(refusal)
        if self.record is not None:
            self._note_ends(self.record)
        if self.stage.policy is not self._policy:
            self._policy = self.stage.policy
            self._known.clear()
        with_runs = {run.job_id for run in state.runs.values()}
        changed = {name for name, job in state.jobs.items() if self._known.get(name) is not job}
        for name in sorted(
            changed | with_runs | self._had_runs | self.explained, key=lambda name: self._places.get(name, -1)
        ):
            job = state.jobs.get(name)
            if job is not None:
                self._known[name] = job
                self._seen[name] = self._job(now, state, job)
        self._had_runs = with_runs

    def _note_ends(self, record: Record) -> None:
        for name, refusal in record.turned_away.items():
            if name not in self._seen:
                self._seen[name] = _rejected(refusal)
        for each in record.outcomes[self._ended :]:
            self._seen[each.job_id] = JobSeen(state=_ENDS[each.kind], priority=0)
            self._known.pop(each.job_id, None)
        self._ended = len(record.outcomes)

    def _capacity_of(self, state: PoolState) -> Mapping[str, int]:
        if self._hardware is None or self._hardware[0] is not state or self._hardware[1] != state.hardware_version:
            self._hardware = (state, state.hardware_version, hardware.capacity(state))
        return self._hardware[2]

    def _job(self, now: float, state: PoolState, job: Job) -> JobSeen:
        run = state.run_of(job.job_id)
        return JobSeen(
            state=_state_of(state, job, run),
            priority=base(job, self.stage.policy),
            reason=self._reason(now, state, job) if run is None else "",
            nodes=() if run is None else run.node_ids,
        )

    def _reason(self, now: float, state: PoolState, job: Job) -> str:
        told = "" if job.refusal is None else _sentence(job.refusal)
        if job.job_id not in self.explained:
            return told
        found = explain(state, self.stage.policy, job.job_id, now)
        if found is None:
            return told
        fails = [f"{quantity(number, 'GPU')} {check}" for check, number in found.gpus.items()]
        return "; ".join((told, *fails, *found.would_help))


def _state_of(state: PoolState, job: Job, run: Run | None) -> JobState:
    if run is None:
        return JobState.HELD if job.held else JobState.UNSATISFIABLE if job.unsatisfiable else JobState.QUEUED
    if any(state.nodes[node_id].health is not NodeHealth.READY for node_id in run.node_ids):
        return JobState.UNKNOWN
    if is_leaving(run):
        return JobState.STOPPING
    if run.started_at is not None:
        return JobState.RUNNING
    return JobState.STARTING if run.lease_state is LeaseState.LIVE else JobState.RESERVED


def _rejected(refusal: Refusal) -> JobSeen:
    return JobSeen(state=REJECTED, priority=0, reason=_sentence(refusal))


def _sentence(refusal: Refusal) -> str:
    field = refusal.detail.get("field", "")
    named = not field or refusal.sentence.startswith(f"{field}:")
    return f"{refusal.sentence} ({refusal.reason})" if named else f"{field}: {refusal.sentence} ({refusal.reason})"


def _granted(state: PoolState) -> dict[str, int]:
    found: dict[str, int] = {}
    for run in state.runs.values():
        if run.lease_state in (LeaseState.LIVE, LeaseState.LEAVING):
            for member in run.members:
                found[member.node_id] = found.get(member.node_id, 0) + sum(each.vram_mib for each in member.leases)
    return found
