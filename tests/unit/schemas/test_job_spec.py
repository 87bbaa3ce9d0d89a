"""What a job may ask for: every refusal names the field and the limit."""

from typing import Any

import pytest
from makeway_schemas.job_spec import JobSpec
from pydantic import ValidationError


def spec(**changes: Any) -> JobSpec:
    return JobSpec.model_validate({"command": ["/bin/true"], **changes})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gpus", -100),
        ("gpus", 0.5),
        ("gpus", 1e18),
        ("gpus", 9223372036854775808),
        ("gpus", float("nan")),
        ("gpus", True),
        ("gpus", "2"),
        ("gpus", 4097),
        ("vram_mib", -1),
        ("vram_mib", float("nan")),
        ("vram_mib", float("inf")),
        ("vram_mib", 0),
        ("min_vram_mib", "80GB"),
        ("time_limit", -5),
        ("time_limit", 0),
        ("time_limit", "1e3s"),
        ("time_limit", float("inf")),
        ("preemption.grace", -1),
        ("preemption.signal", "SIGKILL"),
        ("preemption.mode", "MAYBE"),
        ("priority", 1e30),
        ("priority", -1),
        ("preemptible", "yes"),
        ("name", "a" * 254),
        ("name", "a\nb"),
        ("name", "\u202eevil"),
        ("name", " a"),
        ("team", "../x"),
        ("class", "a b"),
        ("working_dir", "relative"),
        ("env", {"MAKEWAY_JOB_ID": "x"}),
        ("env", {"A=B": "x"}),
        ("env", {"A": "\0"}),
        ("labels", {"": "x"}),
        ("command", []),
        ("command", ["a\0b"]),
        ("comand", ["/bin/true"]),
    ],
)
def test_a_bad_value_is_refused_at_its_field(field: str, value: object) -> None:
    outer, _, inner = field.partition(".")
    with pytest.raises(ValidationError) as caught:
        spec(**{outer: {inner: value} if inner else value})
    assert caught.value.errors()[0]["loc"][0] == outer


@pytest.mark.parametrize(
    "name", ["a" * 253, "训练-作业-1", "é", "e\u0301", "👩‍🚀", "a b", "../x", "job-1", "JOB-1", ""]
)
def test_a_printable_name_is_kept_byte_for_byte(name: str) -> None:
    assert spec(name=name).name.encode() == name.encode()


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("1h30m", 5400.0), ("250ms", 0.25), (12, 12.0), ("2d", 172800.0)]
)
def test_durations_are_read_as_people_write_them(text: object, seconds: float) -> None:
    assert spec(time_limit=text).time_limit == seconds


def test_sizes_are_read_as_people_write_them() -> None:
    assert spec(vram_mib="64GiB").vram_mib == 65536


def test_exactly_one_of_command_and_script_is_given() -> None:
    with pytest.raises(ValidationError, match="exactly one of command and script"):
        JobSpec.model_validate({})
    with pytest.raises(ValidationError, match="exactly one of command and script"):
        spec(script="echo")


def test_what_does_not_fit_a_plan_is_refused_with_the_limit() -> None:
    with pytest.raises(ValidationError, match="at most 65536 fit"):
        spec(env={"A": "x" * 60_000, "B": "x" * 6_000})


def test_a_job_without_gpus_asks_for_no_card() -> None:
    assert spec(gpus=0).gpus == 0
    with pytest.raises(ValidationError, match="asks for no card"):
        spec(gpus=0, gpu_type="A100")
