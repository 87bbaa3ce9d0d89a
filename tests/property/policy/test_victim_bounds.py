"""Nodes that are passed over in the search for victims could not have had a better set: their bounds hold."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from types import MappingProxyType

import pytest
from makeway_policy import gang_victims, lifecycle, victims
from makeway_policy.candidates import candidates_on
from makeway_policy.decide import decide
from makeway_policy.index import Index
from makeway_policy.judge import Verdict, judge
from makeway_policy.model import Gpu, GpuHealth, Group, Job, Node, Shape, Team, Topology
from makeway_policy.placement import only_cards_count
from makeway_policy.presets import DEFAULT
from makeway_policy.question import Question, preemptor_of
from makeway_policy.rules import Policy, Strategy
from makeway_policy.state import PoolState
from makeway_policy.taking import Taking
from makeway_policy.victim_nodes import Host
from makeway_policy.victim_sets import Plan
from makeway_policy.whole_cards import loses_more, only_cards_decide

SEEDS = 60
TEAMS = ("t", "u", "w")


def drawn_policy(random: Random) -> Policy:
    classes = {
        name: replace(rules, placement=random.choice(list(Strategy)), minimum_run_seconds=random.choice([0.0, 600.0]))
        for name, rules in DEFAULT.classes.items()
    }
    return replace(DEFAULT, classes=MappingProxyType(classes))


def drawn_pool(random: Random, policy: Policy, now: float, *, shared: bool) -> PoolState:
    """Nodes that are full but for a few cards; what runs costs one of a few figures, so that many sets are alike.

    In half of the pools every cost is another, and in half of them nobody belongs to a group. Some are `shared` by
    teams with guarantees.
    """
    draw = random.choice
    state = PoolState()
    alike, grouped = draw([True, False]), draw([True, False])
    if grouped:
        state.put_group(Group(name="g", max_down=1, hard=draw([True, False])))
    for team in TEAMS if shared else ():
        state.put_team(Team(team_id=team, guarantee=draw([0.0, 2.0, 5.0, 9.0])))
    for number in range(random.randint(2, 6)):
        name, cards = f"n{number}", draw([2, 4, 8])
        state.put_node(Node(node_id=name, cpus=draw([0.0, 32.0]), memory_mib=draw([0, 0, 1007])))
        for index in range(cards):
            gpu = Gpu(gpu_id=f"{name}/{index}", node_id=name, index=index, type_name="A", vram_mib=80, slots=4)
            health = draw([GpuHealth.AVAILABLE] * 9 + [GpuHealth.QUARANTINED])
            state.put_gpu(replace(gpu, link_group=draw([None, index // 2]), health=health))
    for order in range(1, 30):
        shape = draw([Shape(gpus=1), Shape(gpus=1), Shape(gpus=2), Shape(gpus=4), Shape(gpus=1, shares=2)])
        shape = draw([shape, shape, shape, Shape(gpus=1, members=2)])
        if draw([False] * 8 + [True]):
            shape = draw([Shape(gpus=0, cpus=2.0), replace(shape, cpus=draw([1.0, 6.0]), memory_mib=draw([None, 200]))])
        team = draw(TEAMS) if shared else "t"
        job = Job(
            job_id=f"j{order:02}", order=order, team=team, class_name=draw(["low", "normal"]), submitted_at=now - 5e4,
            queued_since=now - 10, shape=shape, restart_seconds=draw([30.0, 60.0, 120.0]),
            preemptible=draw([True] * 9 + [False]), group=draw([None] * 6 + ["g"]),
            time_limit_seconds=None if alike else draw([None, 2000.0, 80000.0]),
        )  # fmt: skip
        state.put_job(job)
    decide(state, policy, now - 5)
    for run in tuple(state.runs.values()):
        if random.random() < 0.9:
            ago = draw([0.0, 0.0, 700.0]) if alike else random.random() * 2500.0
            lifecycle.run_started(state, run.run_id, now - ago)
            if draw([True, False, False]):
                lifecycle.acked(state, run.run_id, now - ago * random.random(), progress=draw([None, 0.25, 1.0]))
    return state


def verdicts(seed: int, *, shared: bool = False) -> list[Verdict]:
    random = Random(seed)
    now = 1e6
    policy = drawn_policy(random)
    state = drawn_pool(random, policy, now, shared=shared)
    found = []
    for shape in (
        Shape(gpus=1), Shape(gpus=2), Shape(gpus=2, topology=Topology.REQUIRE), Shape(gpus=4), Shape(gpus=1, cpus=20.0),
        Shape(gpus=1, shares=1), Shape(gpus=1, members=3), Shape(gpus=2, affinity=(("kin", "k"),)), Shape(gpus=3),
        Shape(gpus=2, members=2, distinct_nodes=True), Shape(gpus=1, members=4), Shape(gpus=2, members=3),
        Shape(gpus=1, cpus=20.0, members=2), Shape(gpus=2, members=2, topology=Topology.REQUIRE),
        Shape(gpus=1, memory_mib=600, members=2, distinct_nodes=True),
    ):  # fmt: skip
        for name in ("urgent", "high"):
            avoided = random.choice([frozenset(), frozenset({"n0/0", "n1/1"})])
            deadline = random.choice([None, None, now + 60.0])
            job = Job(
                job_id="p", order=99, team="t", class_name=name, submitted_at=now, queued_since=now, shape=shape,
                avoid_gpus=avoided, deadline=deadline,
            )  # fmt: skip
            if shared:
                # Some reclaim; some are aged, and among equals only those evict that were submitted first.
                since = random.choice([now, now, now - 1e6])
                team, name = random.choice(TEAMS), random.choice([name, "normal", "low"])
                first = replace(job, team=team, class_name=name, queued_since=since)
                job = replace(first, submitted_at=random.choice([now, now - 1e6]), avoid_gpus=frozenset())
            index = Index.of(state, policy)
            index.sync(now)
            found.append(judge(index, job, now))
        # What is known of the nodes gets old.
        now += random.random() * 300.0
    return found


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("seed", [*range(SEEDS), 175])  # 175: a member where others of the gang make room already
def test_no_better_set_is_on_a_node_that_was_passed_over(
    seed: int, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded = verdicts(seed, shared=shared)
    for module in (victims, gang_victims):
        monkeypatch.setattr(module, "cannot_beat", lambda *_, **__: False)
    monkeypatch.setattr(victims, "is_worse", lambda *_, **__: False)
    monkeypatch.setattr(victims, "loses_more", lambda *_, **__: False)
    monkeypatch.setattr(Taking, "on", lambda *_: ([], False))
    monkeypatch.setattr(Taking, "is_safe", lambda *_: False)
    for ours, theirs in zip(bounded, verdicts(seed, shared=shared), strict=True):
        if isinstance(ours, Plan) and isinstance(theirs, Plan):
            assert ours.key == theirs.key
        assert ours == theirs


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_node_that_is_said_to_lose_more_does(seed: int, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for question in asked(seed, monkeypatch, shared=shared):
        plans = {node_id: victims._node_plan(question, node_id, None) for node_id in question.rooms}
        for node_id, plan in plans.items():
            candidates = candidates_on(question, (node_id,))
            for best in plans.values():
                if best is not None and best.victims and loses_more(question, node_id, candidates, best.key):
                    assert plan is None or plan.key[:3] > best.key[:3]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_nodes_come_by_a_bound_on_what_their_sets_cost(
    seed: int, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for question, hosts in asked_of(seed, monkeypatch, shared=shared):
        known = [(host.v, host.cost) for host in hosts if host.current]
        assert known == sorted(known)
        bounds = {host.node_id: host for host in hosts}
        for node_id in question.rooms:
            plan = victims._node_plan(question, node_id, None)
            if plan is not None and plan.victims and question.preemptor.job.shape.members == 1:
                assert node_id in bounds
                assert (bounds[node_id].v, bounds[node_id].cost) <= plan.key[1:3]
                assert bounds[node_id].v == plan.key[1] or not bounds[node_id].exact


@pytest.mark.parametrize("shared", [False, True])
def test_where_only_cards_decide_the_bound_is_what_the_set_costs(shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = other = 0
    for seed in range(SEEDS):
        for question, hosts in asked_of(seed, monkeypatch, shared=shared):
            if not only_cards_decide(question) or question.preemptor.job.shape.members > 1:
                continue
            for host in hosts:
                plan = victims._node_plan(question, host.node_id, None)
                if (
                    plan is not None
                    and plan.victims
                    and only_cards_count(question.rooms[host.node_id], question.preemptor.job.shape)
                ):
                    same = host.cost == pytest.approx(plan.key[2], rel=1e-8)
                    exact, other = exact + same, other + (not same)
    assert exact > 100
    # Where costs are alike, in which order the runs are taken is left open.
    assert other < exact / 4


@pytest.mark.parametrize("newest", [2, 3])
def test_a_bound_does_not_ask_who_of_two_that_cost_the_same_comes_first(newest: int) -> None:
    """Of runs of 1, 2 and 3 cards for 3: with that of 2 first both others leave, else that of 3 alone."""
    now, state = 1e6, PoolState()
    state.put_node(Node(node_id="n"))
    for index in range(6):
        state.put_gpu(Gpu(gpu_id=f"n/{index}", node_id="n", index=index, type_name="A", vram_mib=80))
    for gpus, restart_seconds in ((1, 90.0), (2, 90.0), (3, 60.0)):
        job = Job(
            job_id=f"j{gpus}", order=9 if gpus == newest else gpus, team="t", class_name="low", submitted_at=now - 99,
            queued_since=now - 99, shape=Shape(gpus=gpus), restart_seconds=restart_seconds,
        )  # fmt: skip
        state.put_job(job)
    decide(state, DEFAULT, now)
    for run in tuple(state.runs.values()):
        lifecycle.run_started(state, run.run_id, now)
    job = Job(
        job_id="p", order=99, team="t", class_name="urgent", submitted_at=now, queued_since=now, shape=Shape(gpus=3)
    )
    index = Index.of(state, DEFAULT)
    index.sync(now)
    found = judge(index, job, now)
    assert isinstance(found, Plan)
    assert [each.run.job_id for each in found.victims] == (["j3"] if newest == 3 else ["j1", "j2"])
    question = Question(
        state=state, rooms=index.rooms, policy=DEFAULT, now=now, preemptor=preemptor_of(state, DEFAULT, job, now)
    )
    (host,) = index.hosts.for_question(question, over=False)
    assert host.cost <= found.key[2]


@pytest.mark.parametrize(("deadline", "w", "x", "b", "last"), [
    (None, (5.0, 100.0), (1000.0, 1000.0), 20.0, "b-normal"),
    (1e6 + 60.0, (5.0, 1000.0), (5000.0, 20.0), 100.0, "x-normal"),
])  # fmt: skip
def test_a_gang_looks_on_below_the_highest_it_takes_anyway(
    deadline: float | None, w: tuple[float, float], x: tuple[float, float], b: float, last: str
) -> None:
    """A node's cost is that of its lowest runs: where these do not suffice, or not in time, others may cost less.

    `w`, `x` and `b`: what a low and a normal run on a node cost, or a normal one alone.
    """
    now, state = 1e6, PoolState()
    runs = {
        "f": [("normal", 10.0, 32.0)],
        "w": [("low", w[0], 1.0), ("normal", w[1], 31.0)],
        "x": [("low", x[0], 1.0), ("normal", x[1], 31.0)],
        "b": [("normal", b, 32.0)],
    }
    for node_id, here in runs.items():
        state.put_node(Node(node_id=node_id, cpus=0.0 if deadline else 32.0))
        for index, (name, restart_seconds, cpus) in enumerate(here):
            gpu = Gpu(gpu_id=f"{node_id}/{index}", node_id=node_id, index=index, type_name="A", vram_mib=80)
            state.put_gpu(gpu)
            shape = Shape(gpus=1, cpus=cpus, nodes=frozenset({node_id}))
            job = Job(
                job_id=f"{node_id}-{name}", order=len(state.jobs) + 1, team="t", class_name=name,
                submitted_at=now - 5000, queued_since=now - 5000, shape=shape, restart_seconds=restart_seconds,
                grace_seconds=100.0 if name == "low" and deadline else 10.0,
            )  # fmt: skip
            state.put_job(job)
    decide(state, DEFAULT, now - 1)
    for run in tuple(state.runs.values()):
        lifecycle.run_started(state, run.run_id, now)
    job = Job(
        job_id="p", order=99, team="t", class_name="urgent", submitted_at=now, queued_since=now, deadline=deadline,
        shape=Shape(gpus=1, cpus=20.0, members=2),
    )  # fmt: skip
    index = Index.of(state, DEFAULT)
    index.sync(now)
    found = judge(index, job, now)
    assert isinstance(found, Plan)
    assert [each.run.job_id for each in found.victims] == ["f-normal", last]


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


def asked(seed: int, monkeypatch: pytest.MonkeyPatch, *, shared: bool = False) -> list[Question]:
    """The questions of which nothing but whole cards decides who is to leave."""
    return [
        question
        for question, _ in asked_of(seed, monkeypatch, shared=shared)
        if only_cards_decide(question) and question.preemptor.job.shape.members == 1
    ]


def asked_of(
    seed: int, monkeypatch: pytest.MonkeyPatch, *, shared: bool = False
) -> Iterator[tuple[Question, list[Host]]]:
    """What is asked, and the nodes that come with it, while things are as they were then."""
    asked: list[tuple[Question, list[Host]]] = []

    def noted(question: Question, hosts: Iterable[Host]) -> Plan | None:
        if question.preemptor.job.job_id == "p":
            asked.append((question, list(hosts)))
        return None

    with monkeypatch.context() as patch:
        patch.setattr(victims, "best_plan", noted)
        verdicts(seed, shared=shared)
    yield from asked


@pytest.mark.parametrize("shared", [False, True])
def test_the_pools_have_sets_to_choose_from(shared: bool) -> None:
    plans = [each for seed in range(30) for each in verdicts(seed, shared=shared) if isinstance(each, Plan)]
    assert sum(bool(each.victims) for each in plans) > 100
    assert max(len(each.victims) for each in plans) > 2
