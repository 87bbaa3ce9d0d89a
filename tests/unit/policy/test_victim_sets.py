"""Which runs leave together, and which stay because others leave."""

from makeway_policy import lifecycle
from makeway_policy.choices import Preempt
from makeway_policy.decide import decide
from makeway_policy.model import Gpu, Group, Job, Node, Shape
from makeway_policy.presets import DEFAULT
from makeway_policy.state import PoolState


def pool(cards: int) -> PoolState:
    state = PoolState()
    state.put_node(Node(node_id="n"))
    for index in range(cards):
        state.put_gpu(Gpu(gpu_id=f"n/{index}", node_id="n", index=index, type_name="A", vram_mib=80))
    state.put_group(Group(name="g", max_down=1))
    return state


def put(state: PoolState, order: int, class_name: str, shape: Shape, **given: object) -> None:
    state.put_job(
        Job(
            **{
                "job_id": f"j{order}", "order": order, "team": "t", "class_name": class_name,
                "submitted_at": float(order), "queued_since": float(order), "shape": shape,
            }
            | given
        )
    )  # fmt: skip


def start_all(state: PoolState) -> None:
    decide(state, DEFAULT, 10.0)
    for run_id in tuple(state.runs):
        lifecycle.run_started(state, run_id, 10.0)


def victims(state: PoolState) -> set[str]:
    """Whom the next decision tells to leave."""
    found = [choice for choice in decide(state, DEFAULT, 20.0).choices if isinstance(choice, Preempt)]
    return {victim.job_id for choice in found for victim in choice.victims}


def test_a_run_that_gives_no_card_keeps_nobody_of_its_group_from_leaving() -> None:
    state = pool(cards=2)
    put(state, 1, "low", Shape(gpus=0, cpus=1.0), group="g")
    put(state, 2, "low", Shape(gpus=1), group="g")
    put(state, 3, "low", Shape(gpus=1), preemptible=False)
    start_all(state)
    put(state, 4, "high", Shape(gpus=1))
    assert victims(state) == {"j2"}


def test_where_a_group_has_one_to_spare_the_next_after_it_leaves_beside() -> None:
    state = pool(cards=3)
    put(state, 1, "low", Shape(gpus=1), group="g")
    put(state, 2, "low", Shape(gpus=1), group="g")
    put(state, 3, "low", Shape(gpus=1), own_priority=280)
    start_all(state)
    put(state, 4, "high", Shape(gpus=2))
    assert victims(state) == {"j2", "j3"}


def test_nobody_leaves_where_only_more_than_a_group_has_to_spare_would_do() -> None:
    state = pool(cards=2)
    put(state, 1, "low", Shape(gpus=1), group="g")
    put(state, 2, "low", Shape(gpus=1), group="g")
    start_all(state)
    put(state, 4, "high", Shape(gpus=2))
    assert not victims(state)
