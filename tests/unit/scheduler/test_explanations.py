"""What is stored with a decision to wait can always be written."""

import pytest
from makeway_scheduler.explanations import _time


@pytest.mark.parametrize("at", [1e12, -1e12, 1e300, float("inf"), float("nan")])
def test_a_moment_beyond_the_calendar_does_not_stop_the_decision(at: float) -> None:
    assert (_time(at) or "").endswith("s after 1970")


def test_a_moment_is_written_to_the_second_in_utc() -> None:
    assert _time(1_798_790_400.4) == "2027-01-01T08:00:00+00:00"
