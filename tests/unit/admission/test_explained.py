"""An explanation that was stored a while ago is said as of now."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from makeway_admission.explained import as_of, reason_as_of

DECIDED = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)


def at(seconds: float) -> str:
    return (DECIDED + timedelta(seconds=seconds)).isoformat(timespec="seconds")


def said(detail: dict[str, Any], seconds: float, staying: dict[str, bool] | None = None) -> dict[str, Any]:
    """The detail so many seconds after the decision."""
    now = DECIDED + timedelta(seconds=seconds)
    return as_of(detail, staying or {}, decided_at=DECIDED, now=now, recheck_seconds=60.0)


def victim(run: str, spared: str, until: float | None) -> dict[str, Any]:
    return {"run": run, "value": 500, "spared": spared, "until": None if until is None else at(until)}


def test_a_protection_that_has_ended_since_is_not_said_to_hold() -> None:
    detail = {"possible_victims": [victim("a.1", "it is inside its minimum run", 60)]}
    assert said(detail, 30, {"a.1": False}) == detail
    (later,) = said(detail, 61, {"a.1": False})["possible_victims"]
    assert later["spared"] == f"not protected any more: until {at(60)} it is inside its minimum run"
    assert later["until"] is None


def test_runs_that_have_left_are_no_possible_victims_and_those_that_leave_are_said_to() -> None:
    listed = [victim("a.1", "", None), victim("b.1", "it is not preemptible", None), victim("c.1", "", None)]
    left = said({"possible_victims": listed}, 5, {"b.1": True, "c.1": False})["possible_victims"]
    assert [(each["run"], each["spared"]) for each in left] == [("b.1", "it is leaving"), ("c.1", "")]


@pytest.mark.parametrize(
    ("seconds", "words", "kept"),
    [
        (0, "in 1m, or with the next change that concerns it", True),
        (59.5, "in 1s, or with the next change that concerns it", True),
        (61, "due now", False),
        (3600, "with the next change that concerns it, and at least every 1m", False),
    ],
)
def test_the_next_look_never_lies_in_the_past(seconds: float, words: str, kept: bool) -> None:
    now = said({"next_look_at": at(60)}, seconds)
    assert now["next_look"] == words
    assert ("next_look_at" in now) is kept


def test_a_timer_beyond_the_periodic_look_is_not_said_to_be_the_next_one() -> None:
    every = "with the next change that concerns it, and at least every 1m"
    assert said({"next_look_at": at(7200)}, 1) == {"next_look_at": at(7200), "next_look": every}
    assert said({"next_look_at": at(7200)}, 7170)["next_look"] == "in 30s, or with the next change that concerns it"


def test_without_a_timer_the_next_look_is_said_in_words() -> None:
    assert said({"next_look_at": None}, 1) == {
        "next_look": "with the next change that concerns it, and at least every 1m"
    }


def test_what_would_help_and_the_expected_start_are_not_said_once_their_time_is_over() -> None:
    help_by_time = f"time: the first protection of a run that it could take ends at {at(60)}"
    detail = {"would_help": [help_by_time, "another node"], "expected_start": at(90)}
    assert said(detail, 30) == detail
    later = said(detail, 100)
    assert later["would_help"] == ["another node"]
    assert later["expected_start"] == f"none: {at(90)}, by the limits of what ran then, has passed"


def test_why_there_is_no_expected_start_is_said_once() -> None:
    none = f"none: what is free is kept for job x, which is expected to start at {at(60)}"
    assert said({"expected_start": none}, 30)["expected_start"] == none
    later = said({"expected_start": none}, 90)["expected_start"]
    assert later == f"{none}; that time has passed: it is judged again within 1m"


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ("1h", "50m"),
        ("5m", "none: the bound of 5m has passed"),
        ("unbounded: job x has no time limit", "unbounded: job x has no time limit"),
    ],
)
def test_the_longest_wait_is_counted_from_now(stored: str, words: str) -> None:
    assert said({"worst_case_wait": stored}, 600)["worst_case_wait"] == words


def test_a_reason_whose_time_has_passed_says_so() -> None:
    reason = f"what is free is kept for job x, which is expected to start at {at(60)}"
    assert reason_as_of(reason, DECIDED, 60.0) == reason
    later = reason_as_of(reason, DECIDED + timedelta(seconds=61), 60.0)
    assert later == f"{reason}; that time has passed: it is judged again within 1m"


def test_what_is_stored_for_other_decisions_stays_as_it_is() -> None:
    detail = {"a.1": "leaves: v 200 under 1000", "begin_at": at(5), "next_look_at": "9e15 s after 1970"}
    assert said(detail, 10)["begin_at"] == at(5)
    assert said(detail, 10)["a.1"] == "leaves: v 200 under 1000"
