"""`frag` takes the node on which least idle GPU becomes useless to the jobs that are being submitted."""

from dataclasses import replace
from types import MappingProxyType

import pytest
from makeway_policy.choices import Start
from makeway_policy.decide import decide
from makeway_policy.fragmentation import Left, Want, demand_of, fragmentation, growth_steps
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
    assert growth_steps(demand, Left(cards=(1000, 1000), cpus=0), Left(cards=(1000,), cpus=0)) == round(250 / 20)


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
