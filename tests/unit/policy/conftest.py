"""A pool on a virtual clock: processes start at once, run for their time, and use their grace when told to stop."""

import heapq
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pytest
from makeway_policy import evictions, lifecycle
from makeway_policy.choices import Choice, Evict, Preempt, Stop, Victim, Wait, Withdraw
from makeway_policy.decide import decide
from makeway_policy.model import Gpu, Job, LeaseState, Mode, Node, Refusal, Run, Shape, Team
from makeway_policy.rules import JobClass, MayPreempt, Policy, Strategy
from makeway_policy.state import PoolState, is_leaving

SCENARIO = JobClass(
    name="scenario", value=0, own_value_min=0, own_value_max=10_000, may_preempt=MayPreempt.YES, mode=Mode.REQUEUE,
    grace_seconds=5.0, grace_max_seconds=None, minimum_run_seconds=0.0, preemptions_per_day=1000,
    sla_wait_seconds=None, placement=Strategy.BINPACK,
)  # fmt: skip
PLAIN = Policy(
    name="plain", classes=MappingProxyType({"scenario": SCENARIO}), default_class="scenario", delta=1, max_shares=64
)


@dataclass(kw_only=True)
class Behaviour:
    """How a job's process behaves: how long it runs by itself, how long it takes to leave after a notice."""

    seconds: float = 1e9
    leaves_after: float | None = None
    done: float = 0.0


@dataclass
class VirtualPool:
    """Drives `decide` in virtual time and records what happened."""

    policy: Policy = PLAIN
    state: PoolState = field(default_factory=PoolState)
    now: float = 0.0
    starts: list[tuple[float, str]] = field(default_factory=list)
    evictions: Counter[str] = field(default_factory=Counter)
    ended: dict[str, float] = field(default_factory=dict)
    choices: list[tuple[float, Choice]] = field(default_factory=list)
    behaviour: dict[str, Behaviour] = field(default_factory=dict)
    unanswered: set[str] = field(default_factory=set)
    """Runs about whose withdrawal their node says nothing."""
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _begun: set[str] = field(default_factory=set)
    _count: int = 0

    def add_node(self, name: str, gpus: int = 1, **given: Any) -> None:
        node = {key: given.pop(key) for key in ("labels", "cpus", "memory_mib", "refusal", "drain") if key in given}
        self.state.put_node(Node(node_id=name, **node))
        for index in range(gpus):
            self.add_gpu(name, index, **given)

    def add_gpu(self, node: str, index: int, **given: Any) -> None:
        values: dict[str, Any] = {"type_name": "gpu-x", "vram_mib": 81920, "slots": self.policy.max_shares, **given}
        self.state.put_gpu(Gpu(gpu_id=f"{node}/{index}", node_id=node, index=index, **values))

    def add_team(self, name: str, **given: Any) -> None:
        self.state.put_team(Team(team_id=name, **given))

    def submit(self, job_id: str, *, at: float = 0.0, pri: int | None = None, **given: Any) -> None:
        behaviour = {
            theirs: given.pop(ours)
            for ours, theirs in (("dur", "seconds"), ("leaves_after", "leaves_after"))
            if ours in given
        }
        shape = {key: given.pop(key) for key in tuple(given) if key in Shape.__dataclass_fields__}
        job = Job(
            job_id=job_id,
            order=self._next(),
            team=given.pop("team", "team"),
            class_name=given.pop("class_name", self.policy.default_class),
            submitted_at=at,
            queued_since=at,
            own_priority=pri,
            shape=Shape(**shape),
            grace_seconds=given.pop("grace", None),
            labels=given.pop("job_labels", ()),
            **given,
        )
        self.behaviour[job_id] = Behaviour(**behaviour)
        if job.team not in self.state.teams:
            self.add_team(job.team)
        self.at(at, lambda: self.state.put_job(job))

    def cancel(self, job_id: str, *, at: float) -> None:
        self.at(at, lambda: self._end(job_id))

    def preempt(self, job_id: str, *, force: bool = False) -> Evict | Refusal:
        answer = evictions.preempt_by_hand(self.state, self.policy, job_id, self.now, force=force)
        if isinstance(answer, Evict):
            self.choices.append((self.now, answer))
            self._leave(answer.victim)
        return answer

    def change_node(self, name: str, *, at: float, **values: Any) -> None:
        self.at(at, lambda: self.state.put_node(replace(self.state.nodes[name], **values)))

    def change(self, job_id: str, *, at: float, **values: Any) -> None:
        self.at(at, lambda: self.state.put_job(replace(self.state.jobs[job_id], **values)))

    def at(self, moment: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (moment, self._next(), action))

    def run_until(self, end: float) -> None:
        while self._events and self._events[0][0] <= end:
            self.now = max(self.now, self._events[0][0])
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            self._decide()
        self.now = end

    def running(self) -> set[str]:
        return {run.job_id for run in self.state.runs.values() if run.started_at is not None and run.noticed_at is None}

    def node_of(self, job_id: str) -> str:
        run = self.state.run_of(job_id)
        assert run is not None
        return run.node_ids[0]

    def starts_of(self, job_id: str) -> list[float]:
        return [at for at, name in self.starts if name == job_id]

    def reason(self, job_id: str) -> str:
        refusal = self.state.jobs[job_id].refusal
        return "" if refusal is None else refusal.sentence

    def _decide(self) -> None:
        self.state.begin()
        decisions = decide(self.state, self.policy, self.now)
        self.state.commit()
        for choice in decisions.choices:
            self.choices.append((self.now, choice))
            self._carry_out(choice)
        self._check()
        for run in tuple(self.state.runs.values()):
            if run.lease_state is LeaseState.LIVE and not is_leaving(run) and run.run_id not in self._begun:
                self._begun.add(run.run_id)
                self.at(self.now, lambda run_id=run.run_id: self._started(run_id))  # type: ignore[misc]
        if decisions.next_wake is not None:
            self.at(max(decisions.next_wake, self.now), lambda: None)

    def _carry_out(self, choice: Choice) -> None:
        if isinstance(choice, Evict):
            self._leave(choice.victim)
        elif isinstance(choice, Preempt):
            for victim in choice.victims:
                self._leave(victim)
            for run_id in set(choice.stopped_holds) - self.unanswered:
                self.at(self.now, lambda run_id=run_id: self._gone(run_id))  # type: ignore[misc]
        elif isinstance(choice, Withdraw | Stop):
            self.at(self.now, lambda: self._gone(choice.run_id))

    def _leave(self, victim: Victim) -> None:
        self.evictions[victim.job_id] += 1
        wanted = self.behaviour[victim.job_id].leaves_after
        leave = victim.grace_seconds if wanted is None else min(wanted, victim.grace_seconds)
        self.at(self.now + leave, lambda: self._gone(victim.run_id))

    def _started(self, run_id: str) -> None:
        run = self.state.runs.get(run_id)
        if run is None or run.started_at is not None or is_leaving(run):
            return
        lifecycle.run_started(self.state, run_id, self.now)
        self.starts.append((self.now, run.job_id))
        behaviour = self.behaviour[run.job_id]
        ends_at = self.now + behaviour.seconds - behaviour.done
        if ends_at < 1e8:
            self.at(ends_at, lambda: self._finished(run_id))

    def _finished(self, run_id: str) -> None:
        run = self.state.runs.get(run_id)
        if run is not None:
            self._release(run)
            self.ended[run.job_id] = self.now
            self.state.remove_job(run.job_id)

    def _gone(self, run_id: str) -> None:
        run = self.state.runs.get(run_id)
        if run is not None:
            self._release(run)

    def _release(self, run: Run) -> None:
        if run.started_at is not None:
            self.behaviour[run.job_id].done += self.now - run.started_at
        lifecycle.run_released(self.state, run.run_id, self.now)

    def _end(self, job_id: str) -> None:
        run = self.state.run_of(job_id)
        if run is not None:
            self._release(run)
        self.state.remove_job(job_id)
        self.ended[job_id] = self.now

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _check(self) -> None:
        for gpu in self.state.gpus.values():
            runs = self.state.runs_on_gpu(gpu.gpu_id)
            for others in (LeaseState.LEAVING, LeaseState.NEXT):
                leases = [
                    lease
                    for run in runs
                    if run.lease_state in (LeaseState.LIVE, others)
                    for lease in run.leases
                    if lease.gpu_id == gpu.gpu_id
                ]
                assert sum(lease.vram_mib for lease in leases) <= gpu.vram_mib, "law 1"
                assert sum(lease.slots for lease in leases) <= gpu.slots, "law 1"


def reasons(pool: VirtualPool) -> Mapping[str, str]:
    return {choice.job_id: choice.refusal.reason for _, choice in pool.choices if isinstance(choice, Wait)}


@pytest.fixture
def pool() -> VirtualPool:
    return VirtualPool()


@pytest.fixture
def pool_under() -> Callable[..., VirtualPool]:
    """A pool whose one class has the given rules."""

    def build(**rules: Any) -> VirtualPool:
        return VirtualPool(policy=replace(PLAIN, classes=MappingProxyType({"scenario": replace(SCENARIO, **rules)})))

    return build
