"""Packing: what fits, who wins, and that the array form of `frag` weighs as the policy does."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from makeway_policy.fragmentation import Left, Want, fragmentation
from makeway_simulator.errors import UnknownChoice
from makeway_simulator.packing.demand import FilledFragmentation, Fragmentation, Weighted, typical
from makeway_simulator.packing.fleet import Fleet, NodeSpec, PodShape, tightest_cards
from makeway_simulator.packing.replay import Order, Packer, replay_orders
from makeway_simulator.packing.rivals import BestFit, Clustering, DotProduct, FirstFit, Packing
from makeway_simulator.packing.study import PLACEMENTS, study


def node(name: str, gpus: int = 2, cpu: int = 16_000, model: str = "T4", memory: int = 10_000) -> NodeSpec:
    return NodeSpec(name=name, cpu_milli=cpu, memory_mib=memory, gpus=gpus, model=model)


def pod(gpus: int = 1, milli: int = 1000, cpu: int = 1000, memory: int = 1, models: tuple[str, ...] = ()) -> PodShape:
    return PodShape(cpu_milli=cpu, memory_mib=memory, gpus=gpus, gpu_milli=milli, models=frozenset(models))


NODES = [node("b"), node("a"), node("c", gpus=4, model="A10")]


def test_a_pod_fits_by_cpu_memory_model_and_enough_gpus() -> None:
    fleet = Fleet(NODES)
    everywhere = np.arange(len(fleet))
    assert fleet.fits(everywhere, pod(gpus=3)).tolist() == [False, False, True]
    assert fleet.fits(everywhere, pod(models=("T4", "P100"))).tolist() == [True, True, False]
    assert not fleet.fits(everywhere, pod(cpu=17_000)).any()
    assert not fleet.fits(everywhere, pod(memory=20_000)).any()
    assert fleet.fits(everywhere, pod(gpus=0, milli=0)).all()


def test_shares_take_the_tightest_gpu_that_suffices() -> None:
    assert tightest_cards(np.array([1000, 400, 600, 300]), pod(milli=400)) == [1]
    assert tightest_cards(np.array([1000, 400, 1000]), pod(gpus=2)) == [0, 2]


def test_the_list_of_nodes_is_that_of_sixteen_workers_with_chunks() -> None:
    listed = Fleet([node(f"n{at:03}") for at in range(100)]).listed
    # Chunks of 7: the first nodes of the chunks come first, then the second ones.
    assert [int(np.flatnonzero(listed == at)[0]) for at in (0, 1, 14, 15)] == [0, 7, 98, 1]


def test_first_fit_takes_the_smallest_name() -> None:
    fleet = Fleet(NODES)
    assert Packer(fleet, FirstFit()).place(pod())
    assert fleet.names[int(fleet.free.sum(axis=1).argmin())] == "a"


def test_a_pod_that_fits_nowhere_is_dropped() -> None:
    packer = Packer(Fleet([node("a", gpus=1)]), FirstFit())
    assert [packer.place(pod()), packer.place(pod()), packer.place(pod(gpus=0, milli=0))] == [True, False, True]


def test_best_fit_leaves_least_over_and_dot_product_prefers_the_smaller() -> None:
    fleet = Fleet([node("a", gpus=8, cpu=96_000), node("b", gpus=1, cpu=8_000)])
    for placement in (BestFit(), DotProduct()):
        scores = placement.scores(fleet, np.arange(2), pod())
        assert scores[1] > scores[0]


def test_packing_prefers_shared_gpus_then_nodes_in_use() -> None:
    fleet = Fleet([node("idle"), node("shared"), node("used")])
    fleet.put(1, pod(milli=500), [0])
    fleet.put(2, pod(), [0])
    scores = dict(zip(fleet.names, Packing().scores(fleet, np.arange(3), pod(milli=300)), strict=True))
    assert scores == {"idle": 31, "shared": 95, "used": 49}


def test_clustering_puts_kinds_together() -> None:
    fleet = Fleet([node("idle"), node("mixed"), node("same")])
    fleet.put(1, pod(milli=500), [0])
    fleet.put(1, pod(), [1])
    fleet.put(2, pod(milli=100), [0])
    scores = dict(zip(fleet.names, Clustering().scores(fleet, np.arange(3), pod(milli=300)), strict=True))
    assert scores["same"] > scores["mixed"] > scores["idle"]


def test_typical_shapes_cover_the_given_part_and_weigh_one() -> None:
    shapes = [pod(milli=500)] * 60 + [pod()] * 37 + [pod(gpus=8)] * 3
    found = typical(shapes)
    assert [each.shape.gpu_milli for each in found] == [500, 1000]
    assert sum(each.weight for each in found) == pytest.approx(1)


def test_fragmentation_is_idle_gpu_that_the_demand_cannot_use() -> None:
    fleet = Fleet([node("a")])
    fleet.put(0, pod(milli=700), [0])
    measured = Fragmentation(fleet, [Weighted(shape=pod(), weight=0.5), Weighted(shape=pod(gpus=2), weight=0.5)])
    # One whole GPU can use 1000 of 1300; two cannot use any.
    options = measured.options(np.array([0]), pod(gpus=0, milli=0))
    assert options.before[0] == pytest.approx(0.5 * 300 + 0.5 * 1300)


SHAPES = st.builds(
    pod,
    gpus=st.sampled_from([1, 1, 1, 2, 4]),
    milli=st.just(1000),
    cpu=st.sampled_from([0, 500, 4_000, 9_000]),
    models=st.sampled_from([(), ("T4",), ("A10", "P100")]),
) | st.builds(pod, milli=st.sampled_from([100, 300, 460, 700]), cpu=st.sampled_from([0, 1_000, 6_000]))


def filled_up(shape: PodShape, demand: PodShape) -> float:
    """The fragmentation that is measured on a node of one card whose CPUs one pod takes, for one shape of demand."""
    fleet = Fleet([node("a", gpus=1, cpu=1000)])
    fleet.put(0, shape, [0])
    measured = FilledFragmentation(fleet, typical([demand], coverage=1.0))
    return float(measured.options(np.array([0]), pod(gpus=0, milli=0, cpu=0)).before[0])


def test_a_node_without_cpus_still_serves_those_who_ask_for_none() -> None:
    assert filled_up(pod(milli=300, cpu=1000), pod(milli=100, cpu=0)) == 0
    assert filled_up(pod(milli=300, cpu=1000), pod(milli=100, cpu=1)) == 700


@settings(max_examples=60, deadline=None)
@given(demand=st.lists(SHAPES, min_size=1, max_size=8), placed=st.lists(SHAPES, max_size=12), new=SHAPES)
def test_arrays_and_the_policy_weigh_fragmentation_alike(
    demand: list[PodShape], placed: list[PodShape], new: PodShape
) -> None:
    fleet = Fleet(NODES)
    packer = Packer(fleet, BestFit())
    for shape in placed:
        packer.place(shape)
    weighted = typical(demand, coverage=1.0)
    wants = [
        Want(
            gpus=each.shape.gpus, milli=each.shape.gpu_milli, cpus=each.shape.cpu_milli, weight=each.weight,
            types=each.shape.models,
        )
        for each in weighted
    ]  # fmt: skip
    measured = FilledFragmentation(fleet, weighted)
    fitting = np.flatnonzero(fleet.fits(np.arange(len(fleet)), new))
    options = measured.options(fitting, new)
    for at, where in enumerate(options.nodes):
        assert options.before[at] == pytest.approx(fragmentation(wants, _left(fleet, int(where))), abs=1e-6)
        cards = [int(options.cards[at])] if new.shares else tightest_cards(fleet.free[where], new)
        fleet.put(int(where), new, cards)
        assert options.after[at] == pytest.approx(fragmentation(wants, _left(fleet, int(where))), abs=1e-6)
        fleet.put(int(where), pod(new.gpus, -new.gpu_milli, -new.cpu_milli, -new.memory_mib), cards)


def _left(fleet: Fleet, where: int) -> Left:
    cards = tuple(int(free) for free in fleet.free[where, : fleet.gpus[where]])
    return Left(cards=cards, cpus=float(fleet.cpu[where]), type_name=fleet.models[fleet.model[where]])


@pytest.mark.parametrize("policy", sorted(PLACEMENTS))
def test_every_placement_fills_a_fleet_the_same_way_twice(policy: str) -> None:
    random = Random(5)
    pods = [random.choice([pod(milli=300), pod(), pod(gpus=2), pod(gpus=0, milli=0)]) for _ in range(60)]
    orders = [Order(seed=1, order=tuple(range(60))), Order(seed=2, order=tuple(reversed(range(60))))]
    first, second = (study([node(f"n{at}", gpus=4) for at in range(6)], pods, orders, policy) for _ in range(2))
    assert first == second
    assert first.seeds == (1, 2)
    assert 50 < first.allocated_percent[100].mean <= 100


def test_an_unknown_placement_names_those_there_are() -> None:
    with pytest.raises(UnknownChoice, match="there is random, dotprod"):
        study(NODES, [], [], "best")


def test_load_is_told_as_the_mean_over_a_whole_per_cent() -> None:
    nodes = [node(f"n{at:02}", gpus=1) for at in range(10)]
    result = replay_orders(nodes, [pod()], [Order(seed=1, order=(0,) * 13)], lambda fleet, order: FirstFit())
    assert {load: each.mean for load, each in result.allocated_percent.items()} == {
        80: 80, 90: 90, 100: 100, 110: 100, 120: 100, 130: 100,
    }  # fmt: skip
    assert result.dropped == 3
