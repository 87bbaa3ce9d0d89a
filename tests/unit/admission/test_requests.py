"""Fields that are wrong are named as in the request, with the limit that they break."""

from typing import Any

import pytest
from makeway_admission.errors import Refused
from makeway_admission.requests import parse_job, parse_model
from makeway_schemas.api import PriorityChange, TeamBody
from makeway_schemas.refusals import path_of


def fields_of(document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(Refused) as refused:
        parse_job({"command": ["true"], **document})
    return {each.field: each.message for each in refused.value.problem.fields}


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        ({"gpus": 5000}, "gpus", "must be at most 4096"),
        ({"gpus": 10**30}, "gpus", "must be at most 4096"),
        ({"gpus": 10**299}, "gpus", "must be at most 4096"),
        ({"gpus": "1..99999999999999999999"}, "gpus", "must be at most 4096"),
        ({"time_limit": 10**299}, "time_limit", "must be at most 31622400"),
        ({"cpus": 10**299}, "cpus", "must be at most 100000"),
        ({"memory": 10**299}, "memory", "must be at most 1073741824"),
        ({"gpus": -1}, "gpus", "must be at least 0"),
        ({"gpus": float("nan")}, "gpus", "must be a whole number"),
        ({"priority": 20_000}, "priority", "must be at most 10000"),
        ({"time_limit": 0}, "time_limit", "must be more than 0"),
        ({"command": []}, "command", "must have at least 1 items"),
        ({"command": ["a", 1]}, "command[1]", "must be a text"),
        ({"command": "true"}, "command", "must be a list"),
        ({"env": {"A": 1}}, "env.A", "must be a text"),
        ({"env": []}, "env", "must be an object of names and values"),
        ({"preemption": {"grace": "x"}}, "preemption.grace", "90s, 15m or 2h"),
        ({"preemption": {"signal": "SIGKILL"}}, "preemption.signal", "'SIGTERM'"),
        ({"preemptible": "yes"}, "preemptible", "must be true or false"),
        ({"gpus": 0, "vram_mib": 1}, "gpus", "asks for no card"),
        ({"vram_mib": 1, "min_vram_mib": 1}, "vram_mib", "give one of them"),
    ],
)
def test_a_wrong_field_is_named_with_its_limit(document: dict[str, Any], field: str, message: str) -> None:
    found = fields_of(document)
    assert list(found) == [field]
    assert message in found[field]


def test_every_wrong_field_is_told_at_once() -> None:
    assert set(fields_of({"gpus": -1, "priority": -1, "nosuch": 1})) == {"gpus", "priority", "nosuch"}


@pytest.mark.parametrize(("given", "meant"), [("gpu", "gpus"), ("timelimit", "time_limit"), ("klass", "class")])
def test_an_unknown_field_is_answered_with_the_nearest_known_name(given: str, meant: str) -> None:
    assert f"did you mean {meant}?" in fields_of({given: 1})[given]


def test_an_unknown_field_like_no_other_is_answered_with_all_names() -> None:
    assert "known are name, labels" in fields_of({"xyzzy": 1})["xyzzy"]


def test_the_code_tells_unknown_fields_from_wrong_ones() -> None:
    for document, code in (({"nosuch": 1}, "unknown_field"), ({"nosuch": 1, "gpus": -1}, "invalid_field")):
        with pytest.raises(Refused) as refused:
            parse_job({"command": ["true"], **document})
        assert refused.value.problem.code == code


def test_other_bodies_are_refused_alike() -> None:
    for model, document, field in ((PriorityChange, {"prority": 1}, "prority"), (TeamBody, {"limit": "8"}, "limit")):
        with pytest.raises(Refused) as refused:
            parse_model(model, document)
        assert field in [each.field for each in refused.value.problem.fields]


def test_a_huge_unknown_name_is_cut() -> None:
    (field,) = fields_of({"x" * 100_000: 1})
    assert len(field) == 300


def test_paths_are_written_as_people_write_them() -> None:
    assert path_of(("preemption", "grace")) == "preemption.grace"
    assert path_of(("command", 0)) == "command[0]"
    assert path_of(("labels", "a b", "[key]")) == "labels.a b"
