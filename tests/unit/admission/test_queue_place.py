"""The place in the queue by the policy's own order."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from makeway_admission.queue_place import cut_of, queue_order, value_of
from makeway_policy.rules import Policy

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
POLICY = Policy()


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
    return [row["job_id"] for _, row in queue_order(rows, POLICY, NOW)]


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


@given(
    st.sampled_from(["urgent", "high", "normal", "low"]),
    st.none() | st.integers(0, 1000),
    st.lists(st.floats(0, 400_000), min_size=1, max_size=20),
    st.integers(0, 1100),
)
def test_a_cut_divides_a_group_as_the_policy_s_values_do(
    class_name: str, manual: int | None, waits: list[float], value: int
) -> None:
    sinces = [NOW - timedelta(seconds=seconds) for seconds in waits]
    group = {
        "class_name": class_name,
        "own_priority": None,
        "manual_priority": manual,
        "first_since": min(sinces),
        "last_since": max(sinces),
    }
    cut = cut_of(group, value, POLICY, NOW)
    for since in sinces:
        worth = value_of(group, since, POLICY, NOW)
        assert (cut.above is not None and since <= cut.above) == (worth > value)
        assert (cut.level is not None and since <= cut.level) == (worth >= value)
