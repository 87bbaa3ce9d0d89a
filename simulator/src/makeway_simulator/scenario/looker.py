"""What can be seen of a case on the virtual clock: a snapshot of each moment."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from makeway_policy.explain import explain
from makeway_policy.model import Job, LeaseState, NodeHealth, Refusal, Run
from makeway_policy.priority import base
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

    def __post_init__(self) -> None:
        asked = [each.reason or {} for each in self.case.expect]
        self.explained = frozenset(name for each in asked for name in notation.by_name(each))

    def look(self, now: float, state: PoolState) -> None:
        """Look at what is after a round of decisions."""
        self.watcher.policy = self.stage.policy
        for each in self.record.preemptions[len(self.watcher.made_way) :] if self.record is not None else ():
            self.watcher.made_way[each.victim, each.at] = each.preemptor
        self.watcher.look(now, state)
        hardware.forget_lost(state)
        if self.snapshots and self.snapshots[-1].at == now:
            self.snapshots.pop()
        self.snapshots.append(
            Snapshot(
                at=now,
                jobs=dict(self._jobs(now, state)),
                granted_mib=_granted(state),
                usage={team: state.team_usage(team) for team in state.teams},
                capacity=hardware.capacity(state),
            )
        )

    def _jobs(self, now: float, state: PoolState) -> Iterator[tuple[str, JobSeen]]:
        refused = {name: refusal for name, (at, refusal) in self.refused.items() if at <= now}
        ended: dict[str, EndKind] = {}
        if self.record is not None:
            ended = {each.job_id: each.kind for each in self.record.outcomes}
            refused |= self.record.turned_away
        for job in self.case.jobs:
            if job.name in refused:
                yield job.name, JobSeen(state=REJECTED, priority=0, reason=_sentence(refused[job.name]))
            elif job.name in ended:
                yield job.name, JobSeen(state=_ENDS[ended[job.name]], priority=0)
            elif job.name in state.jobs:
                yield job.name, self._job(now, state, state.jobs[job.name])

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
        fails = [f"{number} GPUs {check}" for check, number in found.gpus.items()]
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
