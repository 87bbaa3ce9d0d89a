"""What a job may ask for: every refusal names the field and the limit."""

import re
from typing import Any

import pytest
from makeway_schemas.durations import DURATION_TEXT, parse_duration
from makeway_schemas.job_spec import JobSpec
from makeway_schemas.whole_numbers import read_whole
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
        ("gpus_max", 0),
        ("gpus", "2.."),
        ("gpus", "-1..2"),
        ("shares", 0),
        ("shares", 1.5),
        ("mig", "1g 5gb"),
        ("cpus", 0),
        ("cpus", float("nan")),
        ("memory", "64GB"),
        ("memory", -1),
        ("topology", "always"),
        ("constraints.labels", {"": "x"}),
        ("constraints.affinity", {"a b": "x"}),
        ("constraints.anti_affinity", {"a": "\n"}),
        ("constraints.nodes", ["Node_1"]),
        ("constraints.exclude_nodes", "node-1"),
        ("constraints.zones", ["x"]),
        ("begin_at", "2026-12-01T00:00:00"),
        ("deadline", "tomorrow"),
        ("begin_at", 20270101),
        ("begin_at", 5),
        ("deadline", "20270101"),
        ("deadline", 1.8e9),
        ("begin_at", "9999-12-31T23:59:59-14:00"),
        ("deadline", "0001-01-01T00:00:00+14:00"),
        ("on_deadline", "wait"),
        ("max_wait", 0),
        ("requeue", "no"),
        ("retries.max", -1),
        ("retries.max", 1001),
        ("retries.backoff", -1),
        ("retries.exit_codes", [256]),
        ("retries.exit_codes", [True]),
        ("preemption.exempt_after", 0),
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


@pytest.mark.parametrize("text", ["1h1h", "5s1h", "1m1m30s", "1ms1s", "1h30m1h"])
def test_a_duration_has_each_unit_once_and_the_larger_first(text: str) -> None:
    with pytest.raises(ValidationError, match="each of d, h, m, s and ms at most once and in this order"):
        spec(time_limit=text)
    assert re.match(DURATION_TEXT, text) is None


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ("-5s", "greater than 0"), ("-1h30m", "greater than 0"), (-5, "greater than 0"), ("-inf", "greater than 0"),
        ("inf", "less than or equal to 31622400"), (".inf", "less than or equal to 31622400"),
        (float("inf"), "less than or equal to 31622400"), (10**400, "less than or equal to 31622400"),
        ("٣s", "a duration is a number of seconds or a text"), (float("nan"), "finite"),
        ("--5s", "a duration is a number of seconds or a text"),
    ],
)  # fmt: skip
def test_a_duration_beyond_its_bounds_is_refused_with_the_bound(given: object, bound: str) -> None:
    with pytest.raises(ValidationError, match=bound):
        spec(time_limit=given)


@pytest.mark.parametrize("given", ["-5s", "inf", "-inf", float("inf"), float("nan")])
def test_a_duration_without_a_field_to_bound_it_is_neither_negative_nor_endless(given: object) -> None:
    with pytest.raises(ValueError, match="a duration"):
        parse_duration(given)


@pytest.mark.parametrize("text", ["1d2h3m4s5ms", "1h30m", "5ms", "1.5h", "90s"])
def test_a_duration_that_is_read_matches_its_schema_too(text: str) -> None:
    assert re.match(DURATION_TEXT, text) is not None
    assert parse_duration(text) > 0
    assert re.match(DURATION_TEXT, "") is None


@pytest.mark.parametrize("digits", [20, 23, 50, 400, 5000])
@pytest.mark.parametrize(
    ("field", "form", "most"),
    [
        ("gpus", "1..{}", 4096),
        ("time_limit", "{}h", 31_622_400),
        ("vram_mib", "{}GiB", 16_777_216),
        ("memory", "{}TiB", 1_073_741_824),
    ],
)
def test_a_number_that_is_too_long_is_refused_with_the_limit(field: str, form: str, most: int, digits: int) -> None:
    with pytest.raises(ValidationError, match=f"(less than or equal to|must be at most) {most}"):
        spec(**{field: form.format("9" * digits)})


@pytest.mark.parametrize("digits", [20, 300, 5000])
def test_a_whole_number_of_any_length_keeps_its_sign_and_size(digits: int) -> None:
    assert read_whole("9" * digits) > 10**19
    assert read_whole("-" + "9" * digits) < -(10**19)
    assert read_whole("+" + "0" * digits + "7") == 7


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


def test_a_range_of_gpus_is_read_as_its_two_numbers() -> None:
    wanted = spec(gpus="2..4")
    assert (wanted.gpus, wanted.gpus_max) == (2, 4)
    assert JobSpec.model_validate_json(wanted.model_dump_json(exclude_unset=True)) == wanted


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpus": "4..2"}, "at most 2 is less than at least 4"),
        ({"gpus": "2..4", "gpus_max": 4}, "give one of them"),
        ({"gpus": "0..4"}, "asks for no card"),
        ({"gpus": "2..5000"}, "4096"),
        ({"shares": 1, "vram_mib": 10}, "different parts of a card"),
        ({"mig": "1g.5gb", "shares": 1}, "different parts of a card"),
        ({"gpus": 0, "shares": 1}, "asks for no card"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        spec(**changes)


def test_a_moment_is_kept_with_its_zone() -> None:
    begin = spec(begin_at="2026-12-01T01:00:00+01:00").begin_at
    assert begin is not None
    assert begin.isoformat() == "2026-12-01T01:00:00+01:00"


def test_a_moment_that_is_refused_says_how_one_is_written_and_until_when() -> None:
    with pytest.raises(ValidationError, match="2027-01-01T08:00:00Z"):
        spec(begin_at=20270101)
    with pytest.raises(ValidationError, match="to 2100-01-01T00:00:00Z"):
        spec(begin_at="9999-12-31T23:59:59-14:00")
