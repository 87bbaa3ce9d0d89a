"""What was noted lately is known name by name; of what was noted before, only that there was more."""

from makeway_policy.lately import Lately


def test_what_was_noted_since_is_told_once_each() -> None:
    lately = Lately(256)
    lately.add("n1")
    before = lately.count
    for name in ("n3", "n2", "n3"):
        lately.add(name)
    assert lately.since(before) == ["n2", "n3"]
    assert lately.since(lately.count) == []


def test_of_too_many_it_is_not_known_which() -> None:
    lately = Lately(256)
    for number in range(1000):
        lately.add(f"n{number}")
    assert lately.since(0) is None
    assert lately.since(lately.count - 2) == ["n998", "n999"]
