"""Facts on their way to the cycle: whose they are, in what order they are taken, and that none is taken twice."""

import asyncio
from datetime import UTC, datetime

import pytest
from makeway_runtime.cloudevents import EventHeaders
from makeway_runtime.kafka.messages import Incoming, PoisonFound
from makeway_scheduler import inbox
from makeway_scheduler.inbox import MOST_IN_A_BATCH, Inbox
from makeway_schemas.facts import BATCH_TYPE, Fact, FactBatch, RunStarted


def fact(number: int) -> RunStarted:
    return RunStarted(id=str(number), node_id="n", session="s", run_id="00000000zzzz.1", pid=number, age_seconds=0.0)


def message(*numbers: int, key: bytes = b"default", value: bytes | None = None, kind: str = BATCH_TYPE) -> Incoming:
    body = FactBatch(source="/n", facts=tuple(map(fact, numbers))).model_dump_json().encode()
    now = datetime.now(UTC)
    return Incoming(
        topic="scheduler.inbox", partition=3, offset=numbers[0] if numbers else 99, received=now, key=key,
        value=body if value is None else value, event=EventHeaders(id="i", type=kind, source="/n", time=now),
    )  # fmt: skip


def numbers_of(facts: list[Fact]) -> list[int]:
    return [each.pid for each in facts if isinstance(each, RunStarted)]


async def test_facts_are_taken_in_the_order_in_which_they_came() -> None:
    box = Inbox("default")
    await box.handle([message(1, 2), message(3)])
    assert numbers_of(box.take()) == [1, 2, 3]
    assert not box.wake.is_set()


async def test_what_is_of_another_pool_or_of_another_kind_is_passed_over_unread() -> None:
    box = Inbox("default")
    await box.handle([message(value=b"garbage", key=b"other"), message(value=b"garbage", kind="of.something.else")])
    assert len(box) == 0


async def test_where_a_message_cannot_be_read_nothing_of_its_batch_is_kept() -> None:
    """The batch comes again without it: whatever was kept would be there twice."""
    box = Inbox("default")
    with pytest.raises(PoisonFound) as raised:
        await box.handle([message(1), message(value=b"garbage")])
    assert list(raised.value.reasons) == [(3, 99)]
    assert len(box) == 0


def test_what_is_put_back_comes_first_and_in_its_order() -> None:
    box = Inbox("default")
    box.put([fact(1), fact(2), fact(3)])
    taken = box.take()
    box.put([fact(4)])
    box.put_back(taken)
    assert box.wake.is_set()
    assert (box.put_so_far, box.taken_so_far) == (4, 0)
    assert numbers_of(box.take()) == [1, 2, 3, 4]
    assert box.taken_so_far == 4


def test_a_batch_is_bounded_and_the_rest_is_not_forgotten() -> None:
    box = Inbox("default")
    box.put([fact(number) for number in range(MOST_IN_A_BATCH + 1)])
    assert len(box.take()) == MOST_IN_A_BATCH
    assert box.wake.is_set()
    assert numbers_of(box.take()) == [MOST_IN_A_BATCH]
    assert not box.wake.is_set()


async def test_reading_waits_while_too_much_is_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "MOST_WAITING", 2)
    box = Inbox("default")
    await box.handle([message(1, 2)])
    reading = asyncio.create_task(box.handle([message(3)]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reading.done()
    assert numbers_of(box.take()) == [1, 2]
    await asyncio.wait_for(reading, 20)
    assert numbers_of(box.take()) == [3]
