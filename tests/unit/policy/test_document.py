"""A policy as a document: what it leaves out, what it takes away, where each value comes from, and the way back."""

import pytest
from makeway_policy.checks import problems
from makeway_policy.document import completed, flattened, from_document, is_duration, name_in_document, sources
from makeway_policy.presets import DEFAULT, PLAIN, PRESETS

MIXED = {
    "preset": "plain",
    "delta": 4,
    "victim_weights": {"cost": 3.0},
    "gpu_aliases": {"A100": ["NVIDIA A100-SXM4-80GB"]},
    "classes": {
        "high": {"mode": "OFF", "grace": 45.0, "sla_wait": None},
        "low": None,
        "batch": {"value": 130, "own_value_min": 100, "own_value_max": 150},
    },
}


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_is_its_own_document_and_is_in_order(name: str) -> None:
    assert from_document({"preset": name}) == PRESETS[name]
    assert problems(PRESETS[name]) == ()


def test_an_empty_document_is_the_default() -> None:
    assert from_document({}) == DEFAULT


@pytest.mark.parametrize("document", [{}, {"preset": "fifo"}, MIXED])
def test_a_document_with_every_value_spelled_out_means_the_same(document: dict[str, object]) -> None:
    assert from_document(completed(document)) == from_document(document)


def test_what_is_not_named_is_the_presets() -> None:
    policy = from_document(MIXED)
    assert set(policy.classes) == {"urgent", "high", "normal", "batch"}
    assert policy.classes["urgent"] == PLAIN.classes["urgent"]
    assert policy.victim_weights == {"v": 1.0, "cost": 3.0}
    assert policy.gpu_aliases == {"A100": ("NVIDIA A100-SXM4-80GB",)}


def test_an_added_class_is_as_normal_but_for_its_names() -> None:
    batch, normal = from_document(MIXED).classes["batch"], PLAIN.classes["normal"]
    assert (batch.name, batch.alias, batch.value) == ("batch", None, 130)
    assert (batch.mode, batch.grace_seconds) == (normal.mode, normal.grace_seconds)


def test_each_value_says_where_it_comes_from() -> None:
    where = sources(MIXED)
    assert {path: where[path] for path in ("delta", "name", "order", "victim_weights.cost", "victim_weights.v")} == {
        "delta": "file",
        "name": "default",
        "order": "preset plain",
        "victim_weights.cost": "file",
        "victim_weights.v": "preset plain",
    }
    assert [where[f"classes.{path}"] for path in ("high.grace", "high.value", "batch.value", "batch.mode")] == [
        "file",
        "preset plain",
        "file",
        "class normal",
    ]
    assert set(where) == {path for path in flattened(completed(MIXED)) if path not in ("preset", "classes.low")}


def test_durations_lose_their_unit_in_the_name() -> None:
    assert name_in_document("classes.high.own_value_min") == "classes.high.own_value_min"
    assert name_in_document("hold_expiry_seconds") == "hold_expiry"
    assert name_in_document("empty_seconds") == "empty_seconds"
    assert is_duration("classes.high.grace")
    assert is_duration("empty_seconds")
    assert not is_duration("classes.high.value")


def test_two_classes_of_one_name_are_a_problem() -> None:
    policy = from_document({"classes": {"low": {"alias": "normal"}}})
    assert problems(policy) == ("classes.low.alias: normal means class normal already",)
