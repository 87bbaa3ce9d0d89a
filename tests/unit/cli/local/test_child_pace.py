"""How long a crashed process waits before it is started again."""

from makeway.local.child import Pace, delay_after

PACE = Pace()


def test_the_delay_doubles_up_to_ten_seconds() -> None:
    delays, delay = [], None
    for _ in range(8):
        delay = delay_after(delay, 0.0, PACE)
        delays.append(delay)
    assert delays == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_half_a_minute_of_health_forgives() -> None:
    assert delay_after(10.0, 29.9, PACE) == 10.0
    assert delay_after(10.0, 30.0, PACE) == 0.2
