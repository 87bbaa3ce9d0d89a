"""`frag` takes the node on which least idle GPU becomes useless to the jobs that are being submitted."""

from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from makeway_policy import placement
from makeway_policy.choices import Start
from makeway_policy.decide import decide
from makeway_policy.fragmentation import Left, Want, demand_of, fragmentation, growth_steps
from makeway_policy.index import Index
from makeway_policy.judge import place_free
from makeway_policy.lifecycle import run_released
from makeway_policy.model import Gpu, Job, Node, Shape
from makeway_policy.presets import DEFAULT
from makeway_policy.rules import Policy, Strategy
from makeway_policy.state import PoolState

FRAG = replace(
    DEFAULT,
    classes=MappingProxyType(
        {name: replace(rules, placement=Strategy.FRAG) for name, rules in DEFAULT.classes.items()}
    ),
)
BINPACK = replace(
    DEFAULT,
    classes=MappingProxyType(
        {name: replace(rules, placement=Strategy.BINPACK) for name, rules in DEFAULT.classes.items()}
    ),
)


def want(gpus: int = 1, milli: int = 1000, cpus: float = 0.0, *types: str) -> Want:
    return Want(gpus=gpus, milli=milli, cpus=cpus, weight=1.0, types=frozenset(types))


def test_what_no_job_of_the_demand_can_use_is_fragmented() -> None:
    left = Left(cards=(1000, 400), cpus=8.0, type_name="T4")
    assert fragmentation([want()], left) == 400
    assert fragmentation([want(milli=200)], left) == 0
    assert fragmentation([want(gpus=2)], left) == 1400
    assert fragmentation([want(1, 1000, 0.0, "A100")], left) == 1400
    assert fragmentation([want(gpus=0, milli=0)], left) == 1400


def test_cpu_for_one_more_job_does_not_pass_for_cpu_for_all_cards() -> None:
    left = Left(cards=(1000, 1000, 1000, 1000), cpus=4.0)
    # One job fits, so by the first reading nothing is lost; filled, three of the four cards are.
    assert fragmentation([want(cpus=4.0)], left) == (0 + 3000) / 2


def test_shapes_are_weighed_by_how_often_they_come() -> None:
    demand = demand_of([want(), want(), want(), want(gpus=2)])
    assert sorted(each.weight for each in demand) == [0.25, 0.75]
    before, after = (fragmentation(demand, Left(cards=cards, cpus=0)) for cards in ((1000, 1000), (1000,)))
    assert growth_steps(before, after) == round(250 / 20)


def pool(*nodes: tuple[str, int]) -> PoolState:
    state = PoolState()
    for node_id, cards in nodes:
        state.put_node(Node(node_id=node_id))
        for index in range(cards):
            gpu = Gpu(gpu_id=f"{node_id}/{index}", node_id=node_id, index=index, type_name="T4", vram_mib=16_000)
            state.put_gpu(gpu)
    return state


def placed(state: PoolState, policy: Policy, shapes: list[Shape]) -> list[str]:
    found: list[str] = []
    for order, shape in enumerate(shapes, start=1):
        job = Job(
            job_id=f"j{order:02}", order=order, team="t", class_name="normal", submitted_at=float(order),
            queued_since=float(order), shape=shape,
        )  # fmt: skip
        state.put_job(job)
        choices = decide(state, policy, float(order)).choices
        found += [choice.run.members[0].node_id for choice in choices if isinstance(choice, Start)]
    return found


@pytest.mark.parametrize(("policy", "node"), [(FRAG, "wide"), (BINPACK, "pair")])
def test_a_pair_is_kept_whole_for_jobs_that_want_pairs(policy: Policy, node: str) -> None:
    # The demand is pairs. One card of three leaves a pair behind; one card of two leaves a card that none can use.
    state = pool(("pair", 2), ("wide", 3), ("other", 8))
    pairs = placed(state, policy, [Shape(gpus=2, nodes=frozenset({"other"}))] * 4)
    assert pairs == ["other"] * 4
    job = Job(
        job_id="single", order=9, team="t", class_name="normal", submitted_at=9.0, queued_since=9.0, shape=Shape(gpus=1)
    )
    state.put_job(job)
    (start,) = [each for each in decide(state, policy, 9.0).choices if isinstance(each, Start)]
    assert start.run.members[0].node_id == node


SHAPES = [
    Shape(gpus=1),
    Shape(gpus=2),
    Shape(gpus=3),
    Shape(gpus=1, vram_mib=3_000),
    Shape(gpus=1, vram_mib=7_000),
    Shape(gpus=2, vram_mib=5_000),
    Shape(gpus=1, shares=1),
    Shape(gpus=1, cpus=6.0),
    Shape(gpus=1, memory_mib=9_000),
    Shape(gpus=1, exclude_nodes=frozenset({"n0", "n3"})),
]


def by_weighing_every_node(index: Index, job: Job) -> str | None:
    """The node that `frag` should choose."""
    if index.demand is None:
        raise AssertionError("nobody places by frag")
    found: list[tuple[int, int, str]] = []
    for place, node_id in enumerate(index.nodes_with(job.shape, max(1, job.shape.gpus), fullest_first=True)):
        fit = placement.fit(index.room(node_id), job, index.policy, Strategy.FRAG, later=False)
        if fit is not None:
            found.append((index.demand.growth(index.room(node_id), fit.member), place, node_id))
    return min(found)[2] if found else None


@settings(deadline=None, max_examples=60)
@given(
    steps=st.lists(st.tuples(st.sampled_from(SHAPES), st.booleans()), max_size=40),
    memory=st.lists(st.sampled_from([8_000, 64_000]), min_size=6, max_size=6),
    avoid=st.sets(st.sampled_from(["n1/0", "n2/1", "n5/3"])),
)
def test_what_is_remembered_of_equal_nodes_changes_no_choice(
    steps: list[tuple[Shape, bool]], memory: list[int], avoid: set[str]
) -> None:
    state = pool(*((f"n{number}", 4) for number in range(6)))
    for number, mib in enumerate(memory):
        state.put_node(Node(node_id=f"n{number}", cpus=16.0, memory_mib=mib))
    for order, (shape, ends) in enumerate(steps, start=1):
        if ends and state.runs:
            run = next(iter(state.runs.values()))
            run_released(state, run.run_id, float(order))
            state.remove_job(run.job_id)
        job = Job(
            job_id=f"j{order:02}", order=order, team="t", class_name="normal", submitted_at=float(order),
            queued_since=float(order), shape=shape,
        )  # fmt: skip
        index = Index.of(state, FRAG)
        index.sync(float(order))
        for each in (job, replace(job, avoid_gpus=frozenset(avoid))):
            placed_on = place_free(index, each)
            assert (placed_on and placed_on.members[0].node_id) == by_weighing_every_node(index, each)
        state.put_job(job)
        decide(state, FRAG, float(order))
