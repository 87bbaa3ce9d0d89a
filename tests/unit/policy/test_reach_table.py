"""The table of what nodes have to offer: rows of nodes that come and go, places for more cards than there were."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from makeway_policy.decide import decide
from makeway_policy.index import Index
from makeway_policy.model import Gpu, Job, Node, Shape
from makeway_policy.presets import DEFAULT
from makeway_policy.reach_table import Card, ReachTable, Sorted
from makeway_policy.state import PoolState


def reach(*runs: tuple[str, float], model: str = "A") -> Any:
    """What a node with one run of that v on each card has to offer."""
    cards = []
    for number, (run_id, v) in enumerate(runs):
        gpu = SimpleNamespace(gpu_id=number, type_name=model, vram_mib=80, mig_profile=None)
        threshold = (v, 0.0, 0.0)
        figures = (*threshold * 3, 100.0, 30.0, 1.0, 0.0, 1.0, 5.0, float(hash(run_id) % 2**52))
        cards.append(SimpleNamespace(card=SimpleNamespace(gpu=gpu), figures=figures))
    return SimpleNamespace(cards=tuple(cards), room=SimpleNamespace(uniform=True))


@pytest.fixture
def nodes() -> dict[str, Any]:
    return {}


def test_thresholds_are_in_order_and_a_run_counts_once(nodes: dict[str, Any]) -> None:
    nodes["n"] = reach(("a", 500.0), ("b", 200.0), ("a", 500.0))
    table = ReachTable(nodes, nodes.get)
    table.refresh()
    assert table.thresholds(Sorted.PLAIN, 1)[0].tolist() == [200.0]
    assert table.thresholds(Sorted.PLAIN, 3)[0].tolist() == [500.0]
    assert table.cards(Card.RUN_CARDS)[:3, 0].tolist() == [2.0, 1.0, 2.0]
    assert np.isfinite(table.cards(Card.LOST)[:4, 0]).tolist() == [True, True, False, False]


def test_rows_of_nodes_that_are_gone_are_used_again(nodes: dict[str, Any]) -> None:
    table = ReachTable((), nodes.get)
    for number in range(100):
        nodes.clear()
        nodes[f"n{number}"] = reach(("a", 500.0))
        table.stale.update(dict.fromkeys((f"n{number - 1}", f"n{number}")))
        table.refresh()
    assert len(table.node_ids) < 5
    assert np.isfinite(table.thresholds(Sorted.PLAIN, 1)[0]).sum() == 1


def test_a_node_with_more_cards_than_any_before_finds_place(nodes: dict[str, Any]) -> None:
    nodes["small"] = reach(("a", 500.0))
    table = ReachTable(nodes, nodes.get)
    table.refresh()
    nodes["large"] = reach(*((f"r{number}", float(number)) for number in range(56)))
    table.stale["large"] = None
    table.refresh()
    assert table.thresholds(Sorted.PLAIN, 56)[0].tolist() == [np.inf, 55.0]
    assert table.thresholds(Sorted.PLAIN, 1)[0].tolist() == [500.0, 0.0]


def test_nodes_that_come_and_go_take_no_more_memory() -> None:
    state = PoolState()
    for number in range(50):
        name = f"n{number}"
        state.put_node(Node(node_id=name))
        state.put_gpu(Gpu(gpu_id=f"{name}/0", node_id=name, index=0, type_name="A", vram_mib=80))
        state.put_job(
            Job(
                job_id=f"j{number}", order=number, team="t", class_name="urgent", submitted_at=float(number),
                queued_since=float(number), shape=Shape(gpus=2),
            )
        )  # fmt: skip
        decide(state, DEFAULT, float(number))
        state.remove_gpu(f"{name}/0")
        state.remove_node(name)
        decide(state, DEFAULT, float(number))
        index = Index.of(state, DEFAULT)
        index.hosts._victim_nodes.refresh()
    assert len(index.hosts._victim_nodes._table.node_ids) < 5
