"""Between broker and handler: nothing is lost, nothing blocks."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from makeway_runtime.cloudevents import EventHeaders, to_headers
from makeway_runtime.errors import PublishUncertain, TransientError
from makeway_runtime.kafka.delivery import Delivery, Handler
from makeway_runtime.kafka.messages import Incoming, Poison, PoisonFound
from makeway_runtime.tracing import current_traceparent

HEADERS = to_headers(EventHeaders(id="1", type="t", source="s", time=datetime(2026, 1, 1, tzinfo=UTC)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeRecord:
    offset: int
    value: bytes | None = b"{}"
    headers: tuple[tuple[str, bytes], ...] = HEADERS
    topic: str = "topic"
    partition: int = 0
    timestamp: int = 1_700_000_000_000
    key: bytes | None = None


@dataclass
class Kept:
    poison: list[Poison] = field(default_factory=list)

    async def __call__(self, poison: Poison) -> None:
        self.poison.append(poison)

    @property
    def offsets(self) -> list[int]:
        return [poison.offset for poison in self.poison]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delays are tenacity's business; here only their being there matters."""
    sleep = asyncio.sleep

    async def at_once(_seconds: float) -> None:
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", at_once)


def offsets(batch: Sequence[Incoming]) -> list[int]:
    return [message.offset for message in batch]


async def delivered(handler: Handler, records: Sequence[FakeRecord], **options: int) -> Kept:
    kept = Kept()
    await Delivery(handler=handler, on_poison=kept, **options).deliver(records)  # type: ignore[arg-type]
    return kept


async def test_a_batch_arrives_whole_and_in_order() -> None:
    seen: list[list[int]] = []

    async def handler(batch: Sequence[Incoming]) -> None:
        seen.append(offsets(batch))

    await delivered(handler, [FakeRecord(offset=offset) for offset in range(4)])
    assert seen == [[0, 1, 2, 3]]


async def test_a_handler_error_loses_nothing() -> None:
    seen: list[list[int]] = []

    async def handler(batch: Sequence[Incoming]) -> None:
        seen.append(offsets(batch))
        if len(seen) < 8:
            raise TransientError("database away")

    kept = await delivered(handler, [FakeRecord(offset=offset) for offset in range(3)])
    assert seen == [[0, 1, 2]] * 8
    assert kept.poison == []


async def test_what_may_pass_is_waited_for_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    hours = itertools.count(time.monotonic(), 3600.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(hours))
    tries: list[int] = []

    async def handler(_batch: Sequence[Incoming]) -> None:
        tries.append(1)
        if len(tries) < 20:
            raise TransientError("database away")

    kept = await delivered(handler, [FakeRecord(offset=0)])
    assert (len(tries), kept.poison) == (20, [])


async def test_a_fault_that_passes_costs_no_message() -> None:
    seen: list[list[int]] = []

    async def handler(batch: Sequence[Incoming]) -> None:
        seen.append(offsets(batch))
        if len(seen) < 4:
            raise KeyError("bug")

    kept = await delivered(handler, [FakeRecord(offset=0), FakeRecord(offset=1)])
    assert (seen, kept.poison) == ([[0, 1]] * 4, [])


async def test_poison_is_kept_however_often_that_fails_at_first() -> None:
    kept = Kept()
    tries: list[int] = []

    async def on_poison(poison: Poison) -> None:
        tries.append(poison.offset)
        if len(tries) < 4:
            raise PublishUncertain("the broker is away")
        await kept(poison)

    async def handler(_batch: Sequence[Incoming]) -> None:
        raise PoisonFound({(0, 0): "no such version"})

    await Delivery(handler=handler, on_poison=on_poison).deliver([FakeRecord(offset=0)])
    assert (tries, kept.offsets) == ([0] * 4, [0])


async def test_poison_by_its_headers_is_set_aside_and_the_stream_goes_on() -> None:
    seen: list[list[int]] = []

    async def handler(batch: Sequence[Incoming]) -> None:
        seen.append(offsets(batch))

    bad = FakeRecord(offset=1, headers=(*HEADERS, ("ce_type", b"\xff")))
    kept = await delivered(handler, [FakeRecord(offset=0), bad, FakeRecord(offset=2)])
    assert seen == [[0, 2]]
    assert kept.poison[0].reason == "header ce_type is not UTF-8"
    assert kept.poison[0].headers[-1] == ("ce_type", b"\xff")


async def test_poison_that_the_handler_names_is_set_aside_and_the_rest_comes_again() -> None:
    seen: list[list[int]] = []

    async def handler(batch: Sequence[Incoming]) -> None:
        seen.append(offsets(batch))
        if 1 in offsets(batch):
            raise PoisonFound({(0, 1): "no such version"})

    kept = await delivered(handler, [FakeRecord(offset=offset) for offset in range(3)])
    assert seen == [[0, 1, 2], [0, 2]]
    assert [(poison.offset, poison.reason) for poison in kept.poison] == [(1, "no such version")]


async def test_poison_is_known_by_its_partition_too() -> None:
    seen: list[list[int]] = []

    async def handler(batch: Sequence[Incoming]) -> None:
        seen.append([message.partition for message in batch])
        if 0 in seen[-1]:
            raise PoisonFound({(0, 1): "no such version"})

    kept = await delivered(handler, [FakeRecord(offset=1), FakeRecord(offset=1, partition=1)])
    assert seen == [[0, 1], [1]]
    assert [poison.partition for poison in kept.poison] == [0]


async def test_poison_that_is_named_after_a_fault_is_set_aside_at_once() -> None:
    seen: list[list[int]] = []

    async def handler(batch: Sequence[Incoming]) -> None:
        seen.append(offsets(batch))
        if len(seen) == 1:
            raise KeyError("bug")
        if 1 in offsets(batch):
            raise PoisonFound({(0, 1): "no such version"})

    kept = await delivered(handler, [FakeRecord(offset=0), FakeRecord(offset=1)])
    assert (seen, kept.offsets) == ([[0, 1], [0, 1], [0]], [1])


async def test_a_message_that_always_fails_is_isolated_and_only_it_is_set_aside() -> None:
    handled: list[int] = []

    async def handler(batch: Sequence[Incoming]) -> None:
        if 2 in offsets(batch):
            raise KeyError("bug")
        handled.extend(offsets(batch))

    kept = await delivered(handler, [FakeRecord(offset=offset) for offset in range(4)], isolate_after=2)
    assert handled == [0, 1, 3]
    assert kept.offsets == [2]
    assert "KeyError" in kept.poison[0].reason


async def test_a_handler_that_names_foreign_poison_still_ends() -> None:
    async def handler(_batch: Sequence[Incoming]) -> None:
        raise PoisonFound({(7, 7): "not of this batch"})

    kept = await delivered(handler, [FakeRecord(offset=0), FakeRecord(offset=1)])
    assert kept.offsets == [0, 1]


async def test_a_tombstone_is_skipped() -> None:
    async def handler(batch: Sequence[Incoming]) -> None:
        raise AssertionError(batch)

    kept = await delivered(handler, [FakeRecord(offset=0, value=None)])
    assert kept.poison == []


async def test_cancelling_ends_the_retries() -> None:
    tries = asyncio.Event()

    async def handler(_batch: Sequence[Incoming]) -> None:
        tries.set()
        raise TransientError("away")

    delivering = asyncio.create_task(delivered(handler, [FakeRecord(offset=0)]))
    await asyncio.wait_for(tries.wait(), 5)
    delivering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await delivering


async def test_with_a_limit_the_transient_error_comes_out_for_the_group_to_seek_back() -> None:
    async def handler(_batch: Sequence[Incoming]) -> None:
        raise TransientError("away")

    with pytest.raises(TransientError):
        await delivered(handler, [FakeRecord(offset=0)], within_seconds=0)


async def test_one_message_is_handled_within_its_own_trace() -> None:
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    seen: list[str | None] = []

    async def handler(_batch: Sequence[Incoming]) -> None:
        seen.append(current_traceparent())

    headers = (*HEADERS, ("traceparent", traceparent.encode()))
    await delivered(handler, [FakeRecord(offset=0, headers=headers)])
    await delivered(handler, [FakeRecord(offset=0, headers=headers), FakeRecord(offset=1)])
    assert seen == [traceparent, None]


async def test_a_try_that_does_not_end_shows_and_a_retry_is_no_such_thing() -> None:
    hanging, seen = asyncio.Event(), []
    delivery: Delivery

    async def handler(_batch: Sequence[Incoming]) -> None:
        seen.append(delivery.pulse.busy_since)
        if len(seen) < 3:
            raise TransientError("away")
        await hanging.wait()

    delivery = Delivery(handler=handler, on_poison=Kept())
    delivering = asyncio.create_task(delivery.deliver([FakeRecord(offset=0)]))
    while len(seen) < 3:
        await asyncio.sleep(0)
    assert delivery.pulse.busy_since == seen[2]
    assert seen[0] < seen[1] < seen[2]
    hanging.set()
    await delivering
    assert delivery.pulse.busy_since is None
