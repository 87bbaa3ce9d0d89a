"""The place in the queue by the policy's own order."""

from datetime import UTC, datetime, timedelta
from typing import Any

from makeway_admission.why import queue_order
from makeway_policy.rules import Policy

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def waiting(order: int, *, waited_seconds: float = 0, **values: Any) -> dict[str, Any]:
    since = NOW - timedelta(seconds=waited_seconds)
    return {
        "job_id": f"job-{order}",
        "admission_order": order,
        "team_id": "team-a",
        "class_name": "normal",
        "submitted_at": since,
        "queued_since": since,
        "own_priority": None,
        "manual_priority": None,
        **values,
    }


def ids(*rows: dict[str, Any]) -> list[str]:
    return [row["job_id"] for _, row in queue_order(rows, Policy(), NOW.timestamp())]


def test_value_comes_first_then_submit_time_then_the_order_of_admission() -> None:
    assert ids(
        waiting(1),
        waiting(2),
        waiting(3, waited_seconds=1),
        waiting(4, class_name="urgent"),
        waiting(5, own_priority=600),
        waiting(6, own_priority=600, manual_priority=1),
    ) == ["job-4", "job-5", "job-3", "job-1", "job-2", "job-6"]


def test_a_job_that_has_waited_long_rises() -> None:
    assert ids(waiting(1, class_name="high"), waiting(2, waited_seconds=5 * 7200)) == ["job-2", "job-1"]
