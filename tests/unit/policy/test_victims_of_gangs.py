"""Which runs leave for a gang, member by member."""

from dataclasses import replace

import pytest
from makeway_policy import lifecycle
from makeway_policy.decide import decide
from makeway_policy.index import Index
from makeway_policy.judge import judge
from makeway_policy.model import Gpu, Group, Job, Node, Shape
from makeway_policy.presets import DEFAULT
from makeway_policy.state import PoolState
from makeway_policy.victim_sets import Plan

NOW = 1e6


def pool(nodes: dict[str, list[tuple[str, int, float]]]) -> PoolState:
    """Full nodes of the runs (name, cards, seconds that each of its cards loses), all of low class."""
    state = PoolState()
    for node_id, runs in nodes.items():
        state.put_node(Node(node_id=node_id))
        for index in range(sum(gpus for _, gpus, _ in runs)):
            state.put_gpu(Gpu(gpu_id=f"{node_id}/{index}", node_id=node_id, index=index, type_name="A", vram_mib=80))
        for name, gpus, restart_seconds in runs:
            job = Job(
                job_id=name, order=len(state.jobs) + 1, team="t", class_name="low", submitted_at=NOW - 5000,
                queued_since=NOW - 5000, shape=Shape(gpus=gpus, nodes=frozenset({node_id})),
                restart_seconds=restart_seconds,
            )  # fmt: skip
            state.put_job(job)
    decide(state, DEFAULT, NOW - 1)
    for run in tuple(state.runs.values()):
        lifecycle.run_started(state, run.run_id, NOW)
    return state


def victims_for(state: PoolState, shape: Shape) -> list[str] | None:
    index = Index.of(state, DEFAULT)
    index.sync(NOW)
    job = Job(job_id="p", order=99, team="t", class_name="urgent", submitted_at=NOW, queued_since=NOW, shape=shape)
    found = judge(index, job, NOW)
    return sorted(each.run.job_id for each in found.victims) if isinstance(found, Plan) else None


@pytest.mark.parametrize("distinct_nodes", [False, True])
def test_a_node_counts_for_a_member_without_whom_it_does_not_need(distinct_nodes: bool) -> None:
    """On x the run of two cards comes after that of one, which is not needed then: it costs less than y."""
    nodes = {"x": [("x1", 1, 190.0), ("x2", 2, 100.0)], "y": [("y2", 2, 150.0)], "z": [("z2", 2, 10.0)]}
    shape = Shape(gpus=2, members=2, distinct_nodes=distinct_nodes)
    assert victims_for(pool(nodes), shape) == ["x2", "z2"]


def test_a_member_beside_another_makes_its_victim_needless() -> None:
    """With the run of two cards on x both members have room there, and that of one stays: y beside it costs more."""
    nodes = {"x": [("x1", 1, 10.0), ("x2", 2, 10.0)], "y": [("y1", 1, 15.0)]}
    assert victims_for(pool(nodes), Shape(gpus=1, members=2)) == ["x2"]


def test_a_member_takes_whoever_comes_next_where_a_group_bars_the_first() -> None:
    """One of the group leaves for the first member; on the other node nobody else of it may."""
    state = pool({"x": [("x1", 1, 10.0)], "y": [("y1", 1, 20.0), ("y2", 1, 500.0)]})
    state.put_group(Group(name="g", max_down=1))
    for job_id in ("x1", "y1"):
        state.put_job(replace(state.jobs[job_id], group="g"))
    assert victims_for(state, Shape(gpus=1, members=2, distinct_nodes=True)) == ["x1", "y2"]
