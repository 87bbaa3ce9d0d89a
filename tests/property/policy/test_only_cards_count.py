"""Where only cards are said to count on a node, a job fits as soon as enough of its cards are free, whoever leaves."""

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest
from makeway_policy import lifecycle, placement
from makeway_policy.decide import decide
from makeway_policy.model import Gpu, Job, LeaseState, Node, RunState, Shape
from makeway_policy.presets import DEFAULT
from makeway_policy.rooms import NodeRoom, node_room, trial_room
from makeway_policy.rules import Strategy
from makeway_policy.state import PoolState, is_leaving

SEEDS = 150


def drawn_node(random: Random) -> PoolState:
    """A node, mostly full, whose runs have their cards' part of CPU and memory, or more, or less, or no card."""
    draw, state = random.choice, PoolState()
    cards, plain = draw([2, 4, 6]), draw([True, False])
    state.put_node(Node(node_id="n", cpus=draw([0.0, 10.0, 24.0]), memory_mib=draw([0, 1007, 2048])))
    for index in range(cards):
        name = "A" if plain else draw("AAB")
        state.put_gpu(Gpu(gpu_id=f"n/{index}", node_id="n", index=index, type_name=name, vram_mib=80, slots=4))
    for order in range(1, 9):
        cpus, memory_mib = draw([None, None, 1.0, 5.0]), draw([None, None, 100, 400])
        shapes = [Shape(gpus=draw([1, 1, 2]))]
        if not plain:
            own = Shape(gpus=draw([1, 2]), cpus=cpus, memory_mib=memory_mib)
            shapes = [*shapes, own, own, Shape(gpus=0, cpus=3.0), Shape(gpus=1, shares=2)]
        job = Job(
            job_id=f"j{order}", order=order, team="t", class_name="low", submitted_at=0.0, queued_since=0.0,
            shape=draw(shapes),
        )  # fmt: skip
        state.put_job(job)
    decide(state, DEFAULT, 1.0)
    for run in tuple(state.runs.values()):
        lifecycle.run_started(state, run.run_id, 2.0)
    for run in tuple(state.runs.values()):
        if not plain and random.random() < 0.15:
            state.put_run(replace(run, state=RunState.NOTICED, lease_state=LeaseState.LEAVING, noticed_at=3.0))
    return state


def fits_without(state: PoolState, room: NodeRoom, gone: tuple[str, ...], shape: Shape) -> bool:
    job = Job(job_id="p", order=99, team="t", class_name="urgent", submitted_at=5.0, queued_since=5.0, shape=shape)
    left = trial_room(state, room, gone, ())
    return placement.fit(left, job, DEFAULT, Strategy.BINPACK, later=True) is not None


def checked(seed: int) -> dict[str, int]:
    random = Random(seed)
    state = drawn_node(random)
    room = node_room(state, state.nodes["n"])
    count = {"only cards": 0, "something else": 0, "refused": 0}
    a_card = Shape(gpus=1, gpu_type="A")
    for shape in (Shape(gpus=1), Shape(gpus=2), Shape(gpus=1, cpus=4.0), Shape(gpus=2, memory_mib=500), a_card):
        if not all(placement.suits(card.gpu, shape, DEFAULT) for card in room.cards if room.uniform):
            continue
        only_cards = placement.only_cards_count(room, shape)
        count["only cards" if only_cards else "something else"] += 1
        staying = [run.run_id for run in state.runs.values() if not is_leaving(run)]
        for number in range(len(staying) + 1):
            for gone in combinations(staying, number):
                free = sum(1 for card in room.cards if all(run_id in gone for run_id in card.staying))
                fits = fits_without(state, room, gone, shape)
                count["refused"] += free >= shape.gpus and not fits
                if only_cards:
                    assert fits is (free >= shape.gpus)
    return count


@pytest.mark.parametrize("seed", range(SEEDS))
def test_where_only_cards_count_a_job_fits_once_enough_are_free(seed: int) -> None:
    checked(seed)


def test_nodes_of_both_kinds_are_drawn() -> None:
    counts = [checked(seed) for seed in range(SEEDS)]
    for kind in counts[0]:
        assert sum(count[kind] for count in counts) > 50
