"""The laws that concern decisions, on any history of submits, starts, ends, priorities and passing time."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from makeway_policy import evictions, lifecycle, protection, quota
from makeway_policy.choices import Choice, Evict, Preempt, Stop, Wait, Withdraw
from makeway_policy.decide import decide
from makeway_policy.model import Drain, Gpu, Job, LeaseState, Mode, Node, NodeHealth, Run, Shape, Team
from makeway_policy.rules import NORMAL, Policy
from makeway_policy.state import PoolState, is_leaving

CLASSES = Policy().classes
SHAPES = st.one_of(
    st.builds(Shape, gpus=st.integers(1, 4)),
    st.builds(Shape, gpus=st.integers(1, 2), gpus_max=st.integers(2, 4)),
    st.builds(Shape, vram_mib=st.sampled_from([10, 30, 50])),
    st.builds(Shape, shares=st.integers(1, 2)),
    st.builds(Shape, gpus=st.integers(1, 2), members=st.integers(2, 3), distinct_nodes=st.booleans()),
)
TEAMS = {"a": Team(team_id="a"), "b": Team(team_id="b", limit=5.0), "c": Team(team_id="c")}


class Pool(RuleBasedStateMachine):
    """One pool; every step ends in a decision that is checked."""

    def __init__(self) -> None:
        super().__init__()
        self.state = PoolState()
        self.now = 1_800_000_000.0
        self.count = 0
        self.policy = Policy()
        self.guaranteed = False

    @initialize(
        delta=st.sampled_from([1, 10]),
        guarantee=st.sampled_from([0.0, 3.0]),
        sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    )
    def lay_out(self, delta: int, guarantee: float, sizes: list[int]) -> None:
        short = replace(NORMAL, minimum_run_seconds=30.0, sla_wait_seconds=60.0, grace_seconds=5.0)
        self.policy = replace(self.policy, delta=delta, classes=MappingProxyType({**CLASSES, "normal": short}))
        for number, gpus in enumerate(sizes):
            self.state.put_node(Node(node_id=f"n{number}"))
            for index in range(gpus):
                self.state.put_gpu(
                    Gpu(gpu_id=f"n{number}/{index}", node_id=f"n{number}", index=index, type_name="X", vram_mib=80)
                )
        for team in TEAMS.values():
            self.state.put_team(replace(team, guarantee=guarantee) if team.team_id == "a" else team)
        self.guaranteed = guarantee > 0
        for team, class_name in (("a", "normal"), ("b", "low"), ("c", "low"), ("c", "normal")):
            self.submit(
                shape=Shape(gpus=1), team=team, class_name=class_name, own=None, preemptible=True, mode=None, limit=None
            )
        self.start_what_may_start()

    @rule(
        shape=SHAPES,
        team=st.sampled_from(sorted(TEAMS)),
        class_name=st.sampled_from(sorted(CLASSES)),
        own=st.one_of(st.none(), st.integers(0, 1000)),
        preemptible=st.sampled_from([True, True, True, False]),
        mode=st.sampled_from([None, None, Mode.REQUEUE]),
        limit=st.sampled_from([None, None, 60.0, 600.0]),
    )
    def submit(self, **given: Any) -> None:
        self.count += 1
        self.state.put_job(
            Job(
                job_id=f"j{self.count:03}", order=self.count, submitted_at=self.now, queued_since=self.now,
                own_priority=given.pop("own"), time_limit_seconds=given.pop("limit"), **given,
            )
        )  # fmt: skip
        self.check_decision()

    @precondition(lambda self: self.state.runs)
    @rule(data=st.data(), terminal=st.booleans())
    def end_a_run(self, data: Any, terminal: bool) -> None:
        run = self.state.runs[data.draw(st.sampled_from(sorted(self.state.runs)))]
        if run.lease_state is LeaseState.PENDING or (run.lease_state is LeaseState.NEXT and not is_leaving(run)):
            return
        lifecycle.run_released(self.state, run.run_id, self.now)
        if terminal and run.noticed_at is None and not run.withdrawing:
            self.state.remove_job(run.job_id)
        self.check_decision()

    @precondition(lambda self: self.state.runs)
    @rule()
    def start_what_may_start(self) -> None:
        for run in sorted(self.state.runs.values(), key=lambda run: run.run_id):
            if run.lease_state is LeaseState.LIVE and not is_leaving(run):
                lifecycle.run_started(self.state, run.run_id, self.now)
        self.check_decision()

    @precondition(lambda self: self.state.jobs)
    @rule(data=st.data(), value=st.integers(0, 1000))
    def change_priority(self, data: Any, value: int) -> None:
        job = self.state.jobs[data.draw(st.sampled_from(sorted(self.state.jobs)))]
        self.state.put_job(replace(job, manual_priority=value))
        self.check_decision()

    @rule(data=st.data(), health=st.sampled_from([NodeHealth.READY, *NodeHealth]))
    def lose_or_find_a_node(self, data: Any, health: NodeHealth) -> None:
        node = self.state.nodes[data.draw(st.sampled_from(sorted(self.state.nodes)))]
        self.state.put_node(replace(node, health=health))
        self.check_decision()

    @rule(data=st.data(), drain=st.sampled_from([Drain.NO, *Drain]))
    def drain_or_open_a_node(self, data: Any, drain: Drain) -> None:
        node = self.state.nodes[data.draw(st.sampled_from(sorted(self.state.nodes)))]
        self.state.put_node(replace(node, drain=drain))
        self.check_decision()

    @precondition(lambda self: self.state.runs)
    @rule(data=st.data(), force=st.booleans())
    def preempt_by_hand(self, data: Any, force: bool) -> None:
        run = self.state.runs[data.draw(st.sampled_from(sorted(self.state.runs)))]
        guard = protection.of_run(self.state, self.policy, run, self.now, overrides=False)
        answer = evictions.preempt_by_hand(self.state, self.policy, run.job_id, self.now, force=force)
        if isinstance(answer, Evict):
            assert guard is None or force, "law 7"
            assert answer.victim.counts
        self.check_decision()

    @rule(seconds=st.sampled_from([0.5, 5.0, 30.0, 130.0, 3600.0, 86_400.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.check_decision()

    def check_decision(self) -> None:
        before = contents(self.state)
        fresh = copy_of(self.state)
        expected = decide(fresh, self.policy, self.now)
        self.state.begin()
        tried = decide(self.state, self.policy, self.now)
        self.state.rollback()
        assert contents(self.state) == before, "a rollback restores the state"
        self.state.begin()
        decisions = decide(self.state, self.policy, self.now)
        self.state.commit()
        if not self.guaranteed:
            assert acts(decisions.choices) == acts(tried.choices), "a rollback is forgotten"
            assert acts(decisions.choices) == acts(expected.choices), "what is kept between calls decides nothing"
            assert contents(self.state) == contents(fresh) or waits_differ(self.state, fresh)
        assert decide(self.state, self.policy, self.now).choices == (), "deciding twice changes nothing"
        jobs, runs = before["jobs"], before["runs"]
        for choice in decisions.choices:
            if isinstance(choice, Preempt):
                self.check_preemption(choice, jobs, runs)
            elif isinstance(choice, Evict):
                self.check_drain(choice, runs)
        self.check_room()
        self.answer(decisions.choices)

    def answer(self, choices: tuple[Choice, ...]) -> None:
        """Nodes that answer at once: what has not started never does."""
        for choice in choices:
            if isinstance(choice, Withdraw | Stop) and choice.run_id in self.state.runs:
                lifecycle.run_released(self.state, choice.run_id, self.now)

    def check_room(self) -> None:
        """Laws 1, 2 and 5: what is live, leaving, to come and kept fits the card, and a job has one run."""
        for gpu in self.state.gpus.values():
            runs = self.state.runs_on_gpu(gpu.gpu_id)
            for kinds in (
                {LeaseState.LIVE, LeaseState.LEAVING},
                {LeaseState.LIVE, LeaseState.NEXT},
            ):
                leases = [lease for run in runs if run.lease_state in kinds for lease in run.leases]
                mine = [lease for lease in leases if lease.gpu_id == gpu.gpu_id]
                assert sum(lease.vram_mib for lease in mine) <= gpu.vram_mib
                assert sum(lease.slots for lease in mine) <= gpu.slots
            staying = [run for run in runs if not is_leaving(run)]
            kept = [lease for run in staying for lease in run.leases if lease.gpu_id == gpu.gpu_id]
            assert sum(lease.slots for lease in kept) <= gpu.slots
            assert sum(lease.vram_mib for lease in kept) <= gpu.vram_mib
        owners = [run.job_id for run in self.state.runs.values()]
        assert len(owners) == len(set(owners))

    def check_preemption(self, choice: Preempt, jobs: dict[str, Job], runs: dict[str, Run]) -> None:
        preemptor = jobs[choice.job_id]
        for victim in choice.victims:
            job, run = jobs[victim.job_id], runs.get(victim.run_id)
            if run is None:
                continue
            assert job.preemptible
            assert (job.mode or self.policy.classes[job.class_name].mode) is not Mode.OFF
            if choice.rule == "priority":
                worth, theirs = base_of(preemptor, self.policy), base_of(job, self.policy)
                assert worth > theirs or (worth == theirs and preemptor.order < job.order), "law 6"
            rules = self.policy.classes[job.class_name]
            if run.started_at is not None and not self.policy.classes[preemptor.class_name].overrides_minimum_run:
                assert self.now >= run.started_at + rules.minimum_run_seconds - 1e-3, "law 7"
            recent = [at for at in job.preempted_at if at > self.now - 86_400]
            if rules.preemptions_per_day is not None and len(recent) >= rules.preemptions_per_day:
                assert self.policy.classes[preemptor.class_name].overrides_minimum_run
        nodes = {member.node_id for member in choice.run.members}
        assert all(self.state.nodes[node_id].health is NodeHealth.READY for node_id in nodes)
        self.check_minimality(choice, runs)

    def check_drain(self, choice: Evict, runs: dict[str, Run]) -> None:
        """Only what stands on a draining node leaves it, and only what may be taken, unless it is forced."""
        drains = {self.state.nodes[node_id].drain for node_id in runs[choice.victim.run_id].node_ids} - {Drain.NO}
        assert drains
        job = self.state.jobs[choice.job_id]
        assert Drain.FORCED in drains or quota.is_preemptible(job, self.policy), "law 7"
        assert not choice.victim.counts

    def check_minimality(self, choice: Preempt, runs: dict[str, Run]) -> None:
        """Law 4: with any one victim spared, the chosen nodes have no place for the job."""
        touched = {member.node_id for member in choice.run.members}
        for victim in choice.victims:
            run = runs.get(victim.run_id)
            if run is not None:
                limited = self.state.team(self.state.jobs[choice.job_id].team).limit is not None
                assert limited or touched & set(run.node_ids), "law 4"


def base_of(job: Job, policy: Policy) -> int:
    if job.manual_priority is not None:
        return job.manual_priority
    return policy.classes[job.class_name].value if job.own_priority is None else job.own_priority


def acts(choices: tuple[Choice, ...]) -> list[Choice]:
    return [choice for choice in choices if not isinstance(choice, Wait)]


def contents(state: PoolState) -> dict[str, Any]:
    inner = {
        name: dict(value)
        for name, value in vars(state).items()
        if isinstance(value, dict) and name.startswith("_") and name != "_runs_of_team"
    }
    teams = {team: set(runs) for team, runs in state._runs_of_team.items() if runs}
    inner.update((name, dict(value)) for name, value in vars(state._usage).items() if isinstance(value, dict))
    return {**inner, "teams of runs": teams, "jobs": dict(state.jobs), "runs": dict(state.runs)}


def waits_differ(state: PoolState, other: PoolState) -> bool:
    """The stored reason may be older where nothing that concerns the job has changed since."""

    def bare(jobs: Any) -> list[Job]:
        return [replace(job, refusal=None) for _, job in sorted(jobs.items())]

    return bare(state.jobs) == bare(other.jobs) and dict(state.runs) == dict(other.runs)


def copy_of(state: PoolState) -> PoolState:
    copy = PoolState()
    for node in state.nodes.values():
        copy.put_node(node)
    for gpu in state.gpus.values():
        copy.put_gpu(gpu)
    for team in state.teams.values():
        copy.put_team(team)
    for job in reversed(list(state.jobs.values())):
        copy.put_job(job)
    for run in sorted(state.runs.values(), key=lambda run: run.run_id, reverse=True):
        copy.put_run(run)
    return copy


Pool.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None, derandomize=True)
TestPool = Pool.TestCase
