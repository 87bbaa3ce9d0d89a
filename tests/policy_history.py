"""A seeded history that two pools live through, decided at every change: for properties of `decide`.

In one pool whoever waits is judged again at every change, in the other only those that the wake rules name.
"""

import math
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType
from typing import Any

from makeway_policy import lifecycle
from makeway_policy.choices import Choice, Decisions, Expire, Preempt, Start, Wait
from makeway_policy.decide import decide
from makeway_policy.index import Index
from makeway_policy.model import (
    Avoidance,
    Drain,
    Gpu,
    GpuHealth,
    Group,
    Job,
    LeaseState,
    Mode,
    Node,
    NodeHealth,
    Overdue,
    Percents,
    Run,
    Shape,
    Team,
)
from makeway_policy.rules import Backfill, JobClass, MayPreempt, Order, Policy, Strategy, VictimOrder
from makeway_policy.state import PoolState, is_leaving

TEAMS = ("a", "b", "c")
NAMES = ("top", "mid", "low")


@dataclass
class Pool:
    """One pool under one policy, decided whenever something happens."""

    policy: Policy
    few: float
    state: PoolState = field(default_factory=PoolState)

    def decide(self, now: float) -> Decisions:
        Index.of(self.state, self.policy).wakeups.few = self.few
        return decide(self.state, self.policy, now)


class History:
    """A seeded history that all pools live through."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.half_life = (None, 20.0, None, 300.0)[seed % 4]
        self.now = 1_000.0
        self.count = 0
        self.policy = self.draw_policy()
        self.eager = Pool(self.policy, math.inf)
        self.sparing = Pool(self.policy, 0)
        self.wake: float | None = None
        self.told: list[str] = []
        for number in range(self.node_count()):
            self.add_node(number)
        for team in TEAMS:
            self.put_team(team)
        self.put(Group(name="g", max_down=self.random.choice([0, 1]), hard=self.random.random() < 0.7))

    def draw_policy(self) -> Policy:
        draw = self.random.choice
        classes = {
            name: JobClass(
                name=name, value=value, own_value_min=value - 100, own_value_max=value + 80, may_preempt=draw(may),
                mode=draw([Mode.CHECKPOINT, Mode.REQUEUE]), grace_seconds=draw([0.0, 5.0, 20.0]),
                minimum_run_seconds=draw([0.0, 30.0]), overrides_minimum_run=value == 900 and draw([True, False]),
                preemptions_per_day=draw([None, 1, 3]), sla_wait_seconds=draw([None, 60.0]),
                placement=draw([Strategy.BINPACK, Strategy.SPREAD]),
                needs_allowance=value == 900 and draw([True, False]),
            )
            for name, value, may in (
                ("top", 900, [MayPreempt.YES]),
                ("mid", 500, [MayPreempt.YES, MayPreempt.ONCE_AGED]),
                ("low", 200, [MayPreempt.ONCE_AGED, MayPreempt.NEVER]),
            )
        }  # fmt: skip
        return Policy(
            classes=MappingProxyType(classes), default_class="mid", delta=draw([1, 10]), order=draw(list(Order)),
            backfill=draw(list(Backfill)), victims=draw(list(VictimOrder)), move_holds=draw([True, False]),
            usage_half_life_seconds=self.half_life, hold_expiry_seconds=draw([30.0, 1e9]),
            recheck_seconds=math.inf, promoted_minimum_run_seconds=50.0,
        )  # fmt: skip

    def pools(self) -> tuple[Pool, Pool]:
        return self.eager, self.sparing

    # What is the same in all pools

    def put(self, value: Any) -> None:
        for pool in self.pools():
            put = getattr(pool.state, f"put_{type(value).__name__.lower()}")
            put(value)

    def apply(self, fact: Any, *given: Any) -> None:
        for pool in self.pools():
            fact(pool.state, *given)

    @property
    def state(self) -> PoolState:
        return self.eager.state

    def node_count(self) -> int:
        return self.random.randint(1, 4)

    def card_count(self) -> int:
        return self.random.randint(1, 4)

    # What happens

    def add_node(self, number: int) -> None:
        draw = self.random.choice
        labels = draw([{}, {"zone": "x"}])
        self.put(Node(node_id=f"n{number}", labels=labels, cpus=draw([0.0, 0.0, 16.0])))
        kind = draw(["A", "A", "B"])
        for index in range(self.card_count()):
            self.put(
                Gpu(
                    gpu_id=f"n{number}/{index}", node_id=f"n{number}", index=index, type_name=kind, vram_mib=80,
                    link_group=draw([None, index // 2]),
                )
            )  # fmt: skip

    def put_team(self, team: str) -> None:
        draw = self.random.choice
        self.put(
            Team(
                team_id=team, guarantee=draw([0.0, 0.0, 2.0]), limit=draw([None, None, 2.0, 5.0]),
                weight=draw([0.0, 1.0, 3.0]), class_limits=draw([{}, {}, {"mid": 1.0}]),
                allowances=draw([None, {"top": 2.0, "not_preemptible": 1.0}]), user_limit=draw([None, None, 2.0]),
                gpu_hours_per_month=draw([None, None, None, 1.0]), gpu_hours_used=draw([0.0, 2.0]),
                percents=draw([None, None, self.percents()]),
            )
        )  # fmt: skip

    def percents(self) -> Percents:
        draw = self.random.choice
        return Percents(
            guarantee=draw([None, 25.0]), limit=draw([None, 50.0, 80.0]), user_limit=draw([None, None, 40.0]),
            class_limits=draw([{}, {"mid": 30.0}]), allowances=draw([{}, {"top": 40.0}]),
        )  # fmt: skip

    def shape(self) -> Shape:
        draw = self.random.choice
        limits = {"gpu_type": draw([None, None, "A"]), "labels": draw([(), (), (), (("zone", "x"),)])}
        limits["affinity"] = draw([(), (), (("zone", "x"),)])
        limits["anti_affinity"] = draw([(), (), (), (("kin", "k"),)])
        kind = self.random.randrange(11)
        if kind == 0:
            return Shape(gpus=1, vram_mib=draw([10, 40]), **limits)
        if kind == 1:
            return Shape(gpus=1, shares=draw([1, 2]), **limits)
        if kind == 2:
            return Shape(gpus=draw([1, 2]), members=2, distinct_nodes=draw([True, False]), **limits)
        if kind == 3:
            return Shape(gpus=0, cpus=4.0)
        if kind == 4:
            return Shape(gpus=1, gpus_max=3, **limits)
        return Shape(gpus=draw([1, 1, 2, 3]), cpus=draw([None, None, 8.0]), **limits)

    def submit(self) -> None:
        draw = self.random.choice
        self.count += 1
        name = draw(NAMES)
        value = self.policy.classes[name].value
        ahead = self.now + draw([15.0, 80.0])
        self.put(
            Job(
                job_id=f"j{self.count:03}", order=self.count, team=draw(TEAMS), user=draw(["u", "v"]), class_name=name,
                submitted_at=self.now, queued_since=self.now, shape=self.shape(),
                own_priority=draw([None, None, value + 5, value - 40]), preemptible=draw([True, True, True, False]),
                exempt_after_seconds=draw([None, None, None, 40.0]), time_limit_seconds=draw([None, 30.0, 200.0]),
                begin_at=draw([None, None, None, None, ahead]), deadline=draw([None, None, None, None, ahead]),
                max_wait_seconds=draw([None, None, None, 60.0]), on_max_wait=draw(list(Overdue)),
                labels=draw([(), (("kin", "k"),)]), group=draw([None, None, None, "g"]),
                avoidance=draw([Avoidance(), Avoidance(), Avoidance(nodes=("n1", "n0"), until=self.now + 100.0)]),
                preempted_at=draw([(), (), (self.now - 86_380.0,)]),
            )
        )  # fmt: skip

    def a_run(self) -> Run | None:
        runs = sorted(self.state.runs)
        return self.state.runs[self.random.choice(runs)] if runs else None

    def go_on(self) -> None:
        """A run goes one step further: it starts, leaves, saves or ends."""
        run = self.a_run()
        if run is None or run.lease_state is LeaseState.PENDING:
            return
        if is_leaving(run):
            self.apply(lifecycle.run_released, run.run_id, self.now)
        elif run.lease_state is LeaseState.NEXT:
            return
        elif run.started_at is None:
            begin = self.random.random() < 0.2 and run.begun_at is None
            self.apply(lifecycle.run_begun if begin else lifecycle.run_started, run.run_id, self.now)
        elif self.random.random() < 0.5:
            self.apply(lifecycle.acked, run.run_id, self.now, self.random.random())
        else:
            self.apply(lifecycle.run_released, run.run_id, self.now)
            if self.random.random() < 0.8:
                self.apply(PoolState.remove_job, run.job_id)

    def start_all(self) -> None:
        for run in sorted(self.state.runs.values(), key=lambda run: run.run_id):
            if run.lease_state is LeaseState.LIVE and not is_leaving(run):
                self.apply(lifecycle.run_started, run.run_id, self.now)

    def change_group(self) -> None:
        self.put(Group(name="g", max_down=self.random.choice([0, 1, 2]), hard=self.random.random() < 0.7))

    def cancel(self) -> None:
        waiting = [job_id for job_id in sorted(self.state.jobs) if self.state.run_of(job_id) is None]
        if waiting:
            self.apply(PoolState.remove_job, self.random.choice(waiting))

    def change_job(self) -> None:
        jobs = sorted(self.state.jobs)
        if not jobs:
            return
        job = self.state.jobs[self.random.choice(jobs)]
        draw = self.random.choice
        changes: dict[str, Any] = draw(
            [
                {"manual_priority": draw([0, 300, 600, 950])},
                {"held": not job.held},
                {"time_limit_seconds": draw([None, 100.0])},
                {"promoted": True},
            ]
        )
        self.put(replace(job, **changes))

    def change_hardware(self) -> None:
        draw = self.random.choice
        if self.random.random() < 0.2 and len(self.state.nodes) < 6:
            self.add_node(len(self.state.nodes))
        elif self.random.random() < 0.5:
            node = self.state.nodes[draw(sorted(self.state.nodes))]
            health = draw([NodeHealth.READY, NodeHealth.READY, *NodeHealth])
            drain = draw([Drain.NO, Drain.NO, Drain.NO, *Drain])
            self.put(replace(node, health=health, cordoned=self.random.random() < 0.2, drain=drain))
        else:
            gpu = self.state.gpus[draw(sorted(self.state.gpus))]
            self.put(replace(gpu, health=draw([GpuHealth.AVAILABLE, GpuHealth.AVAILABLE, GpuHealth.QUARANTINED])))

    def step(self) -> None:
        kinds = (
            (self.submit, 8), (self.go_on, 8), (self.start_all, 3), (self.cancel, 1), (self.change_job, 1),
            (self.change_hardware, 1), (lambda: self.put_team(self.random.choice(TEAMS)), 1), (self.change_group, 1),
        )  # fmt: skip
        actions, weights = zip(*kinds, strict=True)
        for _ in range(self.random.choice([1, 1, 1, 3])):
            self.random.choices(actions, weights)[0]()

    # What must hold

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            self.decide()
            self.pass_time(self.random.choice([0.0, 0.0, 1.0, 5.0, 20.0, 130.0]))

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while self.wake is not None and self.wake <= until:
            self.now = max(self.now, self.wake)
            self.decide()
        self.now = until
        self.decide()

    def decide(self) -> None:
        eager, sparing = (pool.decide(self.now) for pool in self.pools())
        late = missed(eager.choices, sparing.choices)
        assert not late, late
        self.wake = None if sparing.next_wake is None or math.isinf(sparing.next_wake) else sparing.next_wake
        for choice in eager.choices:
            if isinstance(choice, Expire):
                run = self.state.run_of(choice.job_id)
                if run is None:
                    self.apply(PoolState.remove_job, choice.job_id)


def missed(eager: tuple[Choice, ...], sparing: tuple[Choice, ...]) -> str:
    """What one pool chose and the other did not; who was spared and why is told as things were when it was judged."""
    ours, theirs = (
        sorted(
            (
                replace(choice, explanation={}) if isinstance(choice, Start | Preempt) else choice
                for choice in choices
                if not isinstance(choice, Wait)
            ),
            key=repr,
        )
        for choices in (eager, sparing)
    )
    return "" if ours == theirs else f"judging all: {ours}\nby the wake rules: {theirs}"
