"""FastStream consumer groups on the real broker: the same promises as the hot loop's."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import servers
from aiokafka.admin import AIOKafkaAdminClient
from makeway_runtime.errors import TransientError
from makeway_runtime.kafka.connection import client_options
from makeway_runtime.kafka.dead_letters import DeadLetters
from makeway_runtime.kafka.delivery import Delivery, PoisonHandler
from makeway_runtime.kafka.messages import Incoming, Outgoing, Poison
from makeway_runtime.kafka.stream import StreamOptions, StreamReader, faststream_broker
from makeway_runtime.kafka.topics import ensure_topics
from makeway_runtime.settings import ServiceSettings
from runtime_builders import eventually, headers, kafka_settings, message, publishing, topic


@dataclass
class Group:
    values: list[int] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    poison: list[Poison] = field(default_factory=list)

    async def handle(self, batch: Sequence[Incoming]) -> None:
        if self.failures:
            raise self.failures.pop()
        self.values.extend(int(message.value) for message in batch)

    async def keep(self, poison: Poison) -> None:
        self.poison.append(poison)


@asynccontextmanager
async def reading(
    settings: ServiceSettings,
    name: str,
    group: Group,
    *,
    on_poison: PoisonHandler | None = None,
    within_seconds: float = 30,
) -> AsyncIterator[StreamReader]:
    broker = faststream_broker(settings, client="test")
    delivery = Delivery(handler=group.handle, on_poison=on_poison or group.keep, within_seconds=within_seconds)
    reader = StreamReader(broker, StreamOptions(topic=name, group=f"{name}-group", batch_timeout_ms=20), delivery)
    await broker.start()
    try:
        yield reader
    finally:
        await asyncio.wait_for(broker.stop(), 20)


async def test_a_new_group_reads_from_the_earliest_and_goes_on_after_its_commit(
    kafka_server: servers.KafkaAddress, topic_prefix: str
) -> None:
    settings, spec = kafka_settings(kafka_server), topic(f"{topic_prefix}stream")
    async with publishing(settings, spec) as publisher:
        await publisher.publish([message(spec.name, number) for number in range(5)])
        first = Group()
        async with reading(settings, spec.name, first) as reader:
            await eventually(lambda: first.values == list(range(5)))
            await eventually(lambda: reader.last_poll_at is not None)
        await publisher.publish([message(spec.name, 5)])
        second = Group()
        async with reading(settings, spec.name, second):
            await eventually(lambda: len(second.values) > 0)
    assert second.values == [5]


async def test_a_group_whose_topic_was_gone_reads_the_new_one_soon(
    kafka_server: servers.KafkaAddress, topic_prefix: str
) -> None:
    settings, spec = kafka_settings(kafka_server), topic(f"{topic_prefix}stream-gone")
    group = Group()
    async with publishing(settings, spec) as publisher:
        await publisher.publish([message(spec.name, 1)])
        async with reading(settings, spec.name, group) as reader:
            await eventually(lambda: group.values == [1])
            consumer = reader._subscriber.consumer
            assert consumer is not None
            admin = AIOKafkaAdminClient(**client_options(settings, client="test"))
            await admin.start()
            await admin.delete_topics([spec.name])
            await admin.close()
            await eventually(lambda: not consumer.assignment())  # it has asked while there was none
            await ensure_topics(settings, [spec])
            await publisher.publish([message(spec.name, 2)])
            await eventually(lambda: group.values == [1, 2])


async def test_a_handler_error_loses_nothing(kafka_server: servers.KafkaAddress, topic_prefix: str) -> None:
    settings, spec = kafka_settings(kafka_server), topic(f"{topic_prefix}stream-error")
    group = Group(failures=[TransientError("db"), KeyError("bug")])
    async with publishing(settings, spec) as publisher, reading(settings, spec.name, group):
        await publisher.publish([message(spec.name, number) for number in range(5)])
        await eventually(lambda: len(group.values) >= 5)
    assert group.values == list(range(5))


async def test_an_error_past_the_limit_seeks_back_and_comes_again(
    kafka_server: servers.KafkaAddress, topic_prefix: str
) -> None:
    settings, spec = kafka_settings(kafka_server), topic(f"{topic_prefix}stream-limit")
    group = Group(failures=[TransientError("db") for _ in range(6)])
    async with (
        publishing(settings, spec) as publisher,
        reading(settings, spec.name, group, within_seconds=0.001),
    ):
        await publisher.publish([message(spec.name, number) for number in range(5)])
        await eventually(lambda: len(group.values) >= 5)
    assert group.values == list(range(5))


async def test_poison_in_a_batch_goes_to_dead_letters_and_the_stream_goes_on(
    kafka_server: servers.KafkaAddress, topic_prefix: str
) -> None:
    settings, spec = kafka_settings(kafka_server), topic(f"{topic_prefix}stream-poison")
    dead = topic(f"{topic_prefix}dead")
    foreign = Outgoing(topic=spec.name, key=b"k", value=b"x", headers=(*headers(), ("ce_id", b"\xff")), partition=0)
    unreadable = Outgoing(topic=spec.name, key=b"k", value=b"not a number", headers=headers(), partition=0)
    group, letters = Group(), []

    async def keep_letter(batch: Sequence[Incoming]) -> None:
        letters.extend(batch)

    async with publishing(settings, spec, dead) as publisher:
        dead_letters = DeadLetters(publisher, topic=dead.name, source="tests")
        dead_group = Group()
        dead_group.handle = keep_letter  # type: ignore[method-assign]
        async with (
            reading(settings, spec.name, group, on_poison=dead_letters),
            reading(settings, dead.name, dead_group),
        ):
            await publisher.publish([message(spec.name, 0), foreign, unreadable, message(spec.name, 1)])
            await eventually(lambda: 1 in group.values and len(letters) == 2)
    assert group.values.count(1) == 1
    assert [letter.value for letter in letters] == [b"x", b"not a number"]
    assert letters[0].event.extensions["reason"] == "header ce_id is not UTF-8"
    assert ("original-ce_id", b"\xff") in letters[0].headers
    assert "ValueError" in letters[1].event.extensions["reason"]


async def test_a_group_without_a_limit_for_its_retries_is_refused(kafka_server: servers.KafkaAddress) -> None:
    broker = faststream_broker(kafka_settings(kafka_server), client="test")
    delivery = Delivery(handler=Group().handle, on_poison=Group().keep)
    with pytest.raises(ValueError, match="within_seconds"):
        StreamReader(broker, StreamOptions(topic="t", group="g"), delivery)
