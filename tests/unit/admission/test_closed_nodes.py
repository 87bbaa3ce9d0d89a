"""A job that only closed nodes could run is told so, and nothing of runs elsewhere."""

from datetime import UTC, datetime
from typing import Any

import pytest
from makeway_admission.closed_nodes import Closed, closed_nodes
from makeway_policy.model import Shape
from makeway_policy.rules import Policy

SINCE = datetime(2026, 11, 30, 8, tzinfo=UTC)


def node(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "node_id": name, "state": "READY", "cordoned": False, "drain": "no", "accepts_runs": True, "refusal": "",
        "note": "", "labels": {}, "cpus": 8, "memory_mib": 1024, "state_since": SINCE, **fields,
    }  # fmt: skip


def gpu(node_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "gpu_id": f"{node_id}/0", "node_id": node_id, "gpu_index": 0, "type_name": "A100", "capacity_mib": 80_000,
        "capacity_slots": 4, "mig_profile": None, "condition": "ok", "reason": "", "cordoned": False, **fields,
    }  # fmt: skip


def closed(rows: list[dict[str, Any]], *gpus: dict[str, Any], **asked: Any) -> Closed | None:
    return closed_nodes(Shape(**asked), rows, gpus or [gpu(each["node_id"]) for each in rows], Policy())


DEAD = {"state": "DEAD", "note": "declared dead by ann: on fire"}


@pytest.mark.parametrize(
    ("fields", "said", "helps"),
    [
        (DEAD, "declared dead by ann: on fire, since 2026-11-30T08:00:00+00:00", "n1 being heard again"),
        (
            {"state": "DEAD", "cordoned": True, "note": "drained by eve: fans\ndeclared dead by ann"},
            "declared dead by ann; drained by eve: fans, since 2026-11-30T08:00:00+00:00",
            "n1 being heard again",
        ),
        ({"state": "DEAD"}, "declared dead, since 2026-11-30T08:00:00+00:00", "n1 being heard again"),
        ({"state": "UNKNOWN"}, "nothing is heard of it since 2026-11-30T08:00:00+00:00", "n1 being heard again"),
        (
            {"cordoned": True, "drain": "gently", "note": "drained by ann: fans"},
            "drained by ann: fans",
            "n1 being opened again (node uncordon)",
        ),
        (
            {"accepts_runs": False, "refusal": "its disk is full"},
            "takes no runs: its disk is full",
            "n1 taking runs again",
        ),
    ],
)
def test_the_only_node_that_could_run_it_is_named_with_why_it_takes_no_runs(
    fields: dict[str, Any], said: str, helps: str
) -> None:
    found = closed([node("n1", **fields), node("n2")], nodes=frozenset({"n1"}))
    assert found is not None
    assert found.reason == f"no node that could run it takes runs now: n1 ({said})"
    assert found.helps == (helps,)


def test_by_type_and_size_too_only_the_nodes_that_could_run_it_count() -> None:
    nodes = [node("n1", **DEAD), node("n2")]
    cards = (gpu("n1", type_name="H200"), gpu("n2"))
    assert closed(nodes, *cards, gpu_type="H200") is not None
    assert closed(nodes, *cards, gpu_type="A100") is None
    assert closed(nodes, *cards, min_vram_mib=90_000) is None


def test_an_open_node_that_could_run_it_is_what_it_waits_for() -> None:
    assert closed([node("n1", **DEAD), node("n2")]) is None


def test_many_nodes_are_counted() -> None:
    found = closed([node(f"n{number}", **DEAD) for number in range(5)])
    assert found is not None
    assert found.reason.endswith("+00:00), and 2 more")


def test_nothing_of_runs_elsewhere_is_said_to_help_or_to_bound_the_wait() -> None:
    found = closed([node("n1", **DEAD), node("n2")], nodes=frozenset({"n1"}))
    assert found is not None
    stored = {
        "gpus": {"node dead": 1},
        "possible_victims": [{"run": "j.1"}],
        "would_help": ["the end of runs on suitable GPUs, or another node with such GPUs"],
        "expected_start": "2026-11-30T09:00:00+00:00",
        "worst_case_wait": "2h",
    }
    assert found.instead(stored) == {
        "gpus": {"node dead": 1},
        "possible_victims": [],
        "would_help": ["n1 being heard again", "another node that has what the job asks for"],
        "expected_start": "none: every node that could run it is closed",
        "worst_case_wait": "unbounded: every node that could run it is closed",
    }


FAULT = "its driver has told of a fault: XID 79"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"condition": "quarantined", "reason": FAULT}, FAULT),
        (
            {"condition": "lost", "reason": "absent from its node's newest report"},
            "absent from its node's newest report",
        ),
        ({"condition": "lost"}, "lost"),
        ({"condition": "occupied", "reason": "used by process 7"}, "used by process 7"),
        ({"cordoned": True}, "cordoned"),
    ],
)
def test_a_card_that_is_out_of_use_is_named_where_nothing_else_could_run_it(fields: dict[str, Any], said: str) -> None:
    cards = (gpu("n1"), gpu("n1", gpu_id="n1/1", gpu_index=1, **fields), gpu("n2"))
    found = closed([node("n1"), node("n2")], *cards, gpus=2)
    assert found is not None
    assert found.reason == f"what could run it takes no runs now: GPU 1 of n1 ({said})"
    assert found.helps == ("GPU 1 of n1 in use again",)
    cause = "all that could run it takes no runs"
    assert found.instead({})["worst_case_wait"] == f"unbounded: {cause}"
    assert closed([node("n1"), node("n2")], *cards) is None


def test_closed_nodes_and_cards_that_are_out_of_use_are_named_together() -> None:
    cards = (gpu("n1"), gpu("n2", condition="quarantined", reason=FAULT), gpu("n3", type_name="H200", condition="lost"))
    found = closed([node("n1", **DEAD), node("n2"), node("n3")], *cards, gpu_type="A100")
    assert found is not None
    assert found.reason.startswith("what could run it takes no runs now: n1 (declared dead by ann: on fire")
    assert found.reason.endswith(f", GPU 0 of n2 ({FAULT})")
    assert found.helps == ("n1 being heard again", "GPU 0 of n2 in use again")
