"""What was offered lately is known node by node; of what was offered before, only that there was more."""

from makeway_policy.offers import Offers


def test_what_was_offered_since_is_told_once_each() -> None:
    offers = Offers()
    offers.add("n1")
    before = offers.count
    for node_id in ("n3", "n2", "n3"):
        offers.add(node_id)
    assert offers.since(before) == ["n2", "n3"]
    assert offers.since(offers.count) == []


def test_of_too_many_offers_it_is_not_known_which() -> None:
    offers = Offers()
    for number in range(1000):
        offers.add(f"n{number}")
    assert offers.since(0) is None
    assert offers.since(offers.count - 2) == ["n998", "n999"]
