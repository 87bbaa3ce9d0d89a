"""Outbox rows become as few messages as hold them, in their order."""

import json

import pytest
from makeway_admission import facts
from makeway_runtime.cloudevents import from_headers
from makeway_schemas.topics import SCHEDULER_INBOX


def row(number: int, pool: str = "default") -> facts.OutboxRow:
    return facts.fact_row(number, pool, json.dumps({"id": str(number)}))


def test_all_that_waits_goes_as_one_message() -> None:
    (message,) = facts.compose([row(number) for number in range(100)])
    batch = json.loads(message.value or b"")
    assert [fact["id"] for fact in batch["facts"]] == [str(number) for number in range(100)]
    assert (batch["version"], batch["source"]) == (1, "admission")
    assert (message.topic, message.key, message.partition) == (
        SCHEDULER_INBOX.name,
        b"default",
        SCHEDULER_INBOX.partition_of("default"),
    )
    event = from_headers(message.headers)
    assert (event.type, event.subject) == (facts.BATCH_TYPE, "default")


def test_the_same_facts_sent_again_are_the_same_event() -> None:
    first, again, other = (facts.compose([row(number)])[0] for number in (1, 1, 2))
    ids = [from_headers(message.headers).id for message in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]


def test_pools_do_not_share_a_message_and_order_is_kept() -> None:
    messages = facts.compose([row(1, "a"), row(2, "b"), row(3, "b"), row(4, "a")])
    assert [message.key for message in messages] == [b"a", b"b", b"a"]


def test_a_message_stays_within_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "_MOST_FACTS", 3)
    assert [len(json.loads(each.value or b"")["facts"]) for each in facts.compose([row(n) for n in range(7)])] == [
        3,
        3,
        1,
    ]
    monkeypatch.setattr(facts, "_MOST_BYTES", 25)
    assert [len(json.loads(each.value or b"")["facts"]) for each in facts.compose([row(n) for n in range(5)])] == [
        2,
        2,
        1,
    ]


def test_nothing_makes_no_message() -> None:
    assert facts.compose([]) == []
