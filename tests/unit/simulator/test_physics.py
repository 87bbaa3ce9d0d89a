"""What a run's course is, at every moment of it."""

import math

from hypothesis import given
from hypothesis import strategies as st
from makeway_policy.model import Mode
from makeway_simulator.physics import Course

TIMES = st.floats(0, 1e6)
SPANS = st.floats(1e-3, 1e4)


@given(ready_at=TIMES, interval=SPANS, save=st.floats(0, 100), work=SPANS)
def test_the_next_save_is_always_still_to_come(ready_at: float, interval: float, save: float, work: float) -> None:
    course = Course(
        ready_at=ready_at, saved_seconds=0.0, work_seconds=work, interval_seconds=max(interval, work / 50),
        save_seconds=save, mode=Mode.CHECKPOINT,
    )  # fmt: skip
    now, saves = ready_at, 0
    while math.isfinite(following := course.next_save_at(now)):
        assert following > now
        now, saves = following, saves + 1
        assert course.saved_at(now) == now
    assert saves <= 50
