"""What must hold in every scenario, looked at after every round of decisions.

1. what is granted of a GPU to runs that may have a live process never exceeds it
2. a job never has two live runs, and every run but its last was evicted, failed and was tried again, or was lost
3. a team's usage is the sum over its live runs, a number, never negative, and 0 when there are none
4. a terminal state never changes; a job that is not preemptible is never told to make way
5. nobody evicted starts again on the same GPUs while the job that it made way for still waits, unless that has lost its
   hold to another, or the hold has expired
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from makeway_policy import quota
from makeway_policy.model import LeaseState, NodeHealth, Run, StopCause
from makeway_policy.rules import Policy
from makeway_policy.state import UNITS_PER_GPU, PoolState, is_leaving, units_of

from makeway_simulator.record import HoldLost

_OCCUPYING = frozenset({LeaseState.LIVE, LeaseState.LEAVING})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Debt:
    """What a victim has given up, for whom and when."""

    since: float
    preemptor: str
    gpus: frozenset[str]


@dataclass(kw_only=True)
class Watcher:
    """Remembers what it has seen, and notes each violation once.

    `made_way` says for whom a job was told to make way, and when; others may follow it by the way. `holds_lost`, in
    order of time, says who has no right any more to what it kept.
    """

    policy: Policy
    made_way: dict[tuple[str, float], str] = field(default_factory=dict)
    holds_lost: Sequence[HoldLost] = ()
    violations: dict[str, None] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)
    _known: set[str] = field(default_factory=set)
    _started: set[str] = field(default_factory=set)
    _noticed: set[str] = field(default_factory=set)
    _debts: dict[str, _Debt] = field(default_factory=dict)
    _seen_lost: int = 0

    def look(self, now: float, state: PoolState) -> None:
        """Look at the state after a round of decisions."""
        for problem in (*_oversold(state), *_doubled(state), *_miscounted(state), *self._histories(state)):
            self.violations.setdefault(f"at {now:g}: {problem}")

    def _histories(self, state: PoolState) -> Iterator[str]:
        for job_id in state.jobs:
            if job_id in self._gone:
                yield f"{job_id} has come back after its end (4)"
        self._gone |= self._known - state.jobs.keys()
        self._known |= state.jobs.keys()
        lost, self._seen_lost = self.holds_lost[self._seen_lost :], len(self.holds_lost)
        self._forgive(lost)
        for run in state.runs.values():
            if run.started_at is not None and run.run_id not in self._started:
                self._started.add(run.run_id)
                yield from self._on_start(state, run)
            if run.noticed_at is not None and run.run_id not in self._noticed:
                self._noticed.add(run.run_id)
                yield from self._on_notice(state, run)
        self._forgive(lost)

    def _on_start(self, state: PoolState, run: Run) -> Iterator[str]:
        debt = self._debts.pop(run.job_id, None)
        for victim, each in list(self._debts.items()):
            if each.preemptor == run.job_id:
                del self._debts[victim]
        if debt is None or debt.preemptor not in state.jobs or _has_started(state, debt.preemptor):
            return
        same = debt.gpus & {lease.gpu_id for lease in run.leases}
        if same:
            yield f"{run.job_id} starts on {', '.join(sorted(same))} again, {debt.preemptor} still waits for it (5)"

    def _on_notice(self, state: PoolState, run: Run) -> Iterator[str]:
        if run.stop_cause is not StopCause.PREEMPTED:
            return
        preemptor = self.made_way.get((run.job_id, run.noticed_at or 0.0))
        if preemptor is None:
            return  # by hand
        if not quota.is_preemptible(state.jobs[run.job_id], self.policy):
            yield f"{run.job_id} is not preemptible and has to make way for {preemptor} (4)"
        gpus = frozenset(lease.gpu_id for lease in run.leases)
        self._debts[run.job_id] = _Debt(since=run.noticed_at or 0.0, preemptor=preemptor, gpus=gpus)

    def _forgive(self, lost: Sequence[HoldLost]) -> None:
        """Whoever has lost its hold is owed nothing of what was freed for it before."""
        for each in lost:
            for victim, debt in list(self._debts.items()):
                if debt.preemptor == each.job_id and debt.since <= each.at:
                    del self._debts[victim]


def _has_started(state: PoolState, job_id: str) -> bool:
    run = state.run_of(job_id)
    return run is not None and run.started_at is not None


def _used_gpus(state: PoolState) -> list[str]:
    """The GPUs on which anything is leased or kept."""
    members = (member for run in state.runs.values() for member in (*run.members, *run.moves_to))
    return sorted({lease.gpu_id for member in members for lease in member.leases})


def _oversold(state: PoolState) -> Iterator[str]:
    for gpu in (state.gpus[gpu_id] for gpu_id in _used_gpus(state)):
        leases = [
            lease
            for run in state.runs_on_gpu(gpu.gpu_id)
            if run.lease_state in _OCCUPYING
            for lease in run.leases
            if lease.gpu_id == gpu.gpu_id
        ]
        vram, slots = sum(lease.vram_mib for lease in leases), sum(lease.slots for lease in leases)
        if vram > gpu.vram_mib or slots > gpu.slots:
            yield f"{gpu.gpu_id} is oversold: {vram} of {gpu.vram_mib} MiB, {slots} of {gpu.slots} slots (1)"


def _doubled(state: PoolState) -> Iterator[str]:
    live = Counter(run.job_id for run in state.runs.values() if run.started_at is not None)
    for job_id, runs in live.items():
        if runs > 1:
            yield f"{job_id} has {runs} live runs (2)"


def _miscounted(state: PoolState) -> Iterator[str]:
    used = _used_gpus(state)
    for team_id in state.teams:
        usage = state.team_usage(team_id)
        expected = sum(_usage_on(state, gpu_id, team_id) for gpu_id in used) / UNITS_PER_GPU
        if not (math.isfinite(usage) and usage >= 0 and abs(usage - expected) < 1e-6):
            yield f"team {team_id} is said to use {usage} GPUs, and its runs have {expected:g} (3)"
        if any(math.isnan(part) for part in quota.fair_share_key(state, team_id)):
            yield f"the share of team {team_id} is no number (3)"


def _usage_on(state: PoolState, gpu_id: str, team_id: str) -> int:
    """Millionths of a GPU; a run that leaves and the one that follows it on the same GPU count once."""
    gpu = state.gpus[gpu_id]
    if state.nodes[gpu.node_id].health is NodeHealth.DEAD:
        return 0  # a lease on a fenced node blocks its GPU, not its team's quota
    sums = {"live": 0, "leaving": 0, "coming": 0}
    for run in state.runs_on_gpu(gpu_id):
        if state.jobs[run.job_id].team != team_id:
            continue
        place = "leaving" if is_leaving(run) else "live" if run.lease_state is LeaseState.LIVE else "coming"
        leases = [lease for lease in run.leases if lease.gpu_id == gpu_id]
        sums[place] += sum(units_of(gpu, lease.vram_mib, lease.slots) for lease in leases)
    return sums["live"] + max(sums["leaving"], sums["coming"])
