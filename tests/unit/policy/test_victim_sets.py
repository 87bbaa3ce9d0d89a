"""Which runs leave together, and which stay because others leave."""

import pytest
from makeway_policy import lifecycle
from makeway_policy.choices import Preempt
from makeway_policy.decide import decide
from makeway_policy.model import Gpu, Group, Job, Node, Shape, Team
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


def why_not(reason: str, name: str) -> dict[str, object]:
    """What keeps the run of two cards from leaving, or from leaving beside that of one."""
    if reason == "group":
        return {"group": "g"} if name in ("g1", "g2") else {}
    others: dict[str, dict[str, object]] = {
        "guarantee": {"team": "u"}, "deadline": {"grace_seconds": 300.0}, "submitted before": {"submitted_at": 0.0},
    }  # fmt: skip
    return others[reason] if name == "g2" else {}


@pytest.mark.parametrize("reason", ["group", "guarantee", "deadline", "submitted before"])
def test_a_node_counts_for_what_leaves_there_without_whom_it_may_not_take(reason: str) -> None:
    """Runs of 1, 2 and 3 cards cost 10, 20 and 25: without that of 2 the last leaves alone, and costs less than 27."""
    state, now = PoolState(), 1e6
    state.put_group(Group(name="g", max_down=1))
    state.put_team(Team(team_id="t"))
    state.put_team(Team(team_id="u", guarantee=2.0))
    for node_id, cards in (("a", 6), ("b", 3)):
        state.put_node(Node(node_id=node_id))
        for index in range(cards):
            state.put_gpu(Gpu(gpu_id=f"{node_id}/{index}", node_id=node_id, index=index, type_name="A", vram_mib=80))
    runs = (("g1", "a", 1, 10.0), ("g2", "a", 2, 10.0), ("c3", "a", 3, 25 / 3), ("b3", "b", 3, 9.0))
    for order, (name, node_id, gpus, seconds) in enumerate(runs, start=1):
        given: dict[str, object] = {
            "job_id": name, "submitted_at": now - 5, "queued_since": now - 5, "restart_seconds": seconds,
        }  # fmt: skip
        put(state, order, "low", Shape(gpus=gpus, nodes=frozenset({node_id})), **given | why_not(reason, name))
    decide(state, DEFAULT, now - 4)
    for run_id in tuple(state.runs):
        lifecycle.run_started(state, run_id, now)
    aged = reason == "submitted before"
    given = {"submitted_at": now - 50, "queued_since": now - 50, "deadline": now + 60 if reason == "deadline" else None}
    put(state, 9, "low" if aged else "urgent", Shape(gpus=3), promoted=aged, **given)
    found = [choice for choice in decide(state, DEFAULT, now).choices if isinstance(choice, Preempt)]
    assert [victim.job_id for choice in found for victim in choice.victims] == ["c3"]
