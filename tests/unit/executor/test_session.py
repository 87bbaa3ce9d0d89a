"""Sessions of an executor are told apart, and the newer one is known."""

from makeway_executor import clock


def test_a_later_session_of_a_boot_sorts_after_every_earlier_one() -> None:
    sessions = [clock.new_session() for _ in range(100)]
    assert sessions == sorted(sessions)
    assert len(set(sessions)) == 100
