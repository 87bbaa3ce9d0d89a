"""Nodes that are passed over in the search for victims could not have had a better set: their bounds hold."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from types import MappingProxyType

import pytest
from makeway_policy import gang_victims, lifecycle, victims
from makeway_policy.candidates import candidates_on
from makeway_policy.decide import decide
from makeway_policy.index import Index
from makeway_policy.judge import Verdict, judge
from makeway_policy.model import Gpu, GpuHealth, Group, Job, Node, Shape, Topology
from makeway_policy.presets import DEFAULT
from makeway_policy.question import Question
from makeway_policy.rules import Policy, Strategy
from makeway_policy.state import PoolState
from makeway_policy.victim_nodes import Host
from makeway_policy.victim_sets import Plan
from makeway_policy.whole_cards import loses_more, only_cards_decide

SEEDS = 60


def drawn_policy(random: Random) -> Policy:
    classes = {
        name: replace(rules, placement=random.choice(list(Strategy)), minimum_run_seconds=random.choice([0.0, 600.0]))
        for name, rules in DEFAULT.classes.items()
    }
    return replace(DEFAULT, classes=MappingProxyType(classes))


def drawn_pool(random: Random, policy: Policy, now: float) -> PoolState:
    """Nodes that are full but for a few cards; what runs costs one of a few figures, so that many sets are alike."""
    draw = random.choice
    state = PoolState()
    state.put_group(Group(name="g", max_down=1, hard=draw([True, False])))
    for number in range(random.randint(2, 6)):
        name, cards = f"n{number}", draw([2, 4, 8])
        state.put_node(Node(node_id=name, cpus=draw([0.0, 0.0, 32.0])))
        for index in range(cards):
            gpu = Gpu(gpu_id=f"{name}/{index}", node_id=name, index=index, type_name="A", vram_mib=80, slots=4)
            health = draw([GpuHealth.AVAILABLE] * 9 + [GpuHealth.QUARANTINED])
            state.put_gpu(replace(gpu, link_group=draw([None, index // 2]), health=health))
    for order in range(1, 30):
        shape = draw([Shape(gpus=1), Shape(gpus=1), Shape(gpus=2), Shape(gpus=4), Shape(gpus=1, shares=2)])
        shape = draw([shape, shape, shape, Shape(gpus=1, members=2)])
        job = Job(
            job_id=f"j{order:02}", order=order, team="t", class_name=draw(["low", "normal"]), submitted_at=now - 5e4,
            queued_since=now - 10, shape=shape, restart_seconds=draw([30.0, 60.0, 120.0]),
            preemptible=draw([True] * 9 + [False]), group=draw([None] * 6 + ["g"]),
        )  # fmt: skip
        state.put_job(job)
    decide(state, policy, now - 5)
    for run in tuple(state.runs.values()):
        if random.random() < 0.9:
            lifecycle.run_started(state, run.run_id, draw([now, now, now - 700.0]))
    return state


def verdicts(seed: int) -> list[Verdict]:
    random = Random(seed)
    now = 1e6
    policy = drawn_policy(random)
    state = drawn_pool(random, policy, now)
    found = []
    for shape in (
        Shape(gpus=1), Shape(gpus=2), Shape(gpus=2, topology=Topology.REQUIRE), Shape(gpus=4), Shape(gpus=1, cpus=20.0),
        Shape(gpus=1, shares=1), Shape(gpus=1, members=3), Shape(gpus=2, affinity=(("kin", "k"),)),
    ):  # fmt: skip
        for name in ("urgent", "high"):
            avoided = random.choice([frozenset(), frozenset({"n0/0", "n1/1"})])
            job = Job(
                job_id="p", order=99, team="t", class_name=name, submitted_at=now, queued_since=now, shape=shape,
                avoid_gpus=avoided,
            )  # fmt: skip
            index = Index.of(state, policy)
            index.sync(now)
            found.append(judge(index, job, now))
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_better_set_is_on_a_node_that_was_passed_over(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = verdicts(seed)
    for module in (victims, gang_victims):
        monkeypatch.setattr(module, "cannot_beat", lambda *_, **__: False)
    monkeypatch.setattr(victims, "is_worse", lambda *_, **__: False)
    monkeypatch.setattr(victims, "loses_more", lambda *_, **__: False)
    for ours, theirs in zip(bounded, verdicts(seed), strict=True):
        if isinstance(ours, Plan) and isinstance(theirs, Plan):
            assert ours.key == theirs.key
        assert ours == theirs


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_node_that_is_said_to_lose_more_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for question in asked(seed, monkeypatch):
        plans = {node_id: victims._node_plan(question, node_id, None) for node_id in question.rooms}
        for node_id, plan in plans.items():
            candidates = candidates_on(question, (node_id,))
            for best in plans.values():
                if best is not None and best.victims and loses_more(question, node_id, candidates, best.key):
                    assert plan is None or plan.key[:3] > best.key[:3]


def test_nodes_are_said_to_lose_more(monkeypatch: pytest.MonkeyPatch) -> None:
    said = 0
    for question in asked(3, monkeypatch) + asked(4, monkeypatch):
        plans = {node_id: victims._node_plan(question, node_id, None) for node_id in question.rooms}
        for node_id in plans:
            candidates = candidates_on(question, (node_id,))
            said += sum(
                plan is not None and loses_more(question, node_id, candidates, plan.key) for plan in plans.values()
            )
    assert said > 5


def asked(seed: int, monkeypatch: pytest.MonkeyPatch) -> list[Question]:
    """The questions of which nothing but whole cards decides who is to leave."""
    questions: list[Question] = []

    def noted(question: Question, hosts: Iterable[Host]) -> Plan | None:
        questions.append(question)
        return searched(question, hosts)

    searched = victims.best_plan
    with monkeypatch.context() as patch:
        patch.setattr(victims, "best_plan", noted)
        verdicts(seed)
    return [each for each in questions if only_cards_decide(each)]


def test_the_pools_have_sets_to_choose_from() -> None:
    plans = [each for seed in range(30) for each in verdicts(seed) if isinstance(each, Plan)]
    assert sum(bool(each.victims) for each in plans) > 100
    assert max(len(each.victims) for each in plans) > 2
