"""The hot loop on the real broker."""

import asyncio
import os
import signal
from datetime import UTC, datetime

import pytest
import servers
from aiokafka.admin import AIOKafkaAdminClient
from makeway.local.servers import ServerProcess
from makeway_runtime.errors import TransientError
from makeway_runtime.health import reader_check
from makeway_runtime.kafka import connection as connection_module
from makeway_runtime.kafka import loop as loop_module
from makeway_runtime.kafka.connection import client_options
from makeway_runtime.kafka.messages import Outgoing
from makeway_runtime.kafka.topics import ensure_topics
from runtime_builders import (
    Reading,
    eventually,
    forget_half_open_connections,
    headers,
    kafka_settings,
    message,
    publishing,
    running,
    topic,
)


async def test_reading_from_the_end_skips_what_was_there(kafka_server: servers.KafkaAddress, topic_prefix: str) -> None:
    settings, spec = kafka_settings(kafka_server), topic(f"{topic_prefix}end")
    async with publishing(settings, spec) as publisher:
        await publisher.publish([message(spec.name, 0)])
        reading = Reading(settings, spec, start="end")
        async with running(reading):
            await asyncio.wait_for(reading.loop.started.wait(), 20)
            await publisher.publish([message(spec.name, 1)])
            await eventually(lambda: len(reading.values) > 0)
    assert reading.values == [1]


async def test_reading_from_an_offset_and_from_a_time(kafka_server: servers.KafkaAddress, topic_prefix: str) -> None:
    settings, spec = kafka_settings(kafka_server), topic(f"{topic_prefix}place")
    async with publishing(settings, spec) as publisher:
        await publisher.publish([message(spec.name, number) for number in range(3)])
        await asyncio.sleep(0.002)
        since = datetime.now(UTC)
        await publisher.publish([message(spec.name, 3)])
    by_offset, by_time = Reading(settings, spec, start=2), Reading(settings, spec, start=since)
    async with running(by_offset), running(by_time):
        await eventually(lambda: by_offset.values == [2, 3] and by_time.values == [3])


async def test_a_handler_error_loses_nothing_and_keeps_the_order(
    kafka_server: servers.KafkaAddress, topic_prefix: str
) -> None:
    settings, spec = kafka_settings(kafka_server), topic(f"{topic_prefix}error")
    reading = Reading(settings, spec, failures=[TransientError("db"), OSError("db"), KeyError("bug")])
    async with publishing(settings, spec) as publisher, running(reading):
        await publisher.publish([message(spec.name, number) for number in range(20)])
        await eventually(lambda: len(reading.values) == 20)
    assert reading.values == list(range(20))
    assert reading.poison == []


async def test_a_binary_header_is_poison_and_the_stream_goes_on(
    kafka_server: servers.KafkaAddress, topic_prefix: str
) -> None:
    settings, spec = kafka_settings(kafka_server), topic(f"{topic_prefix}poison")
    foreign = Outgoing(topic=spec.name, key=None, value=b"x", headers=(*headers(), ("ce_id", b"\xff")), partition=0)
    bare = Outgoing(topic=spec.name, key=None, value=b"x", partition=0)
    reading = Reading(settings, spec)
    async with publishing(settings, spec) as publisher, running(reading):
        await publisher.publish([message(spec.name, 0), foreign, bare, message(spec.name, 1)])
        await eventually(lambda: reading.values == [0, 1])
    assert [poison.reason for poison in reading.poison] == [
        "header ce_id is not UTF-8",
        "header ce_specversion is missing",
    ]


async def test_caught_up_means_read_to_the_end(kafka_server: servers.KafkaAddress, topic_prefix: str) -> None:
    settings, spec = kafka_settings(kafka_server), topic(f"{topic_prefix}caught")
    reading = Reading(settings, spec)
    async with publishing(settings, spec) as publisher:
        await publisher.publish([message(spec.name, number) for number in range(10)])
        assert not reading.loop.caught_up
        async with running(reading):
            await eventually(lambda: reading.loop.caught_up)
            assert len(reading.values) == 10
            reading.failures.extend(TransientError("db") for _ in range(50))
            await publisher.publish([message(spec.name, 10)])
            await eventually(lambda: not reading.loop.caught_up)
            reading.failures.clear()
            await eventually(lambda: reading.loop.caught_up)
            assert reading.values[-1] == 10


async def test_an_empty_topic_is_caught_up_at_once(kafka_server: servers.KafkaAddress, topic_prefix: str) -> None:
    reading = Reading(kafka_settings(kafka_server), topic(f"{topic_prefix}empty", partitions=2), start="end")
    async with running(reading):
        await asyncio.wait_for(reading.loop.started.wait(), 20)
        assert reading.loop.caught_up


async def test_it_goes_on_where_it_was_after_the_broker_was_away(own_kafka: ServerProcess) -> None:
    settings, spec = kafka_settings(servers.address_of(own_kafka)), topic("away")
    reading = Reading(settings, spec, start="end")
    check = reader_check("away", reading.loop, max_age_seconds=4)
    async with running(reading):
        await asyncio.wait_for(reading.loop.started.wait(), 20)
        async with publishing(settings, spec) as publisher:
            await publisher.publish([message(spec.name, 0)])
            await eventually(lambda: reading.values == [0] and reading.loop.caught_up)
        own_kafka.kill()
        await eventually(lambda: not reading.loop.caught_up)
        async with asyncio.timeout(20):
            while await check.probe() is None:
                await asyncio.sleep(0.05)
        await asyncio.to_thread(own_kafka.start)
        async with publishing(settings, spec) as publisher:
            await publisher.publish([message(spec.name, 1)])
        await eventually(lambda: reading.values == [0, 1] and reading.loop.caught_up)
        assert await check.probe() is None


async def test_a_consumer_thrown_away_while_its_fetch_waits_to_try_again_does_not_end_the_loop(
    own_kafka: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    # aiokafka's stop() then raises the cancellation of its own task.
    settings, spec = kafka_settings(servers.address_of(own_kafka)), topic("retrying")
    async with publishing(settings, spec) as publisher:
        await publisher.publish([message(spec.name, 0)])
    monkeypatch.setattr(loop_module, "STALLED_SECONDS", 3.0)
    monkeypatch.setattr(connection_module, "RETRY_BACKOFF_MS", 60_000)
    reading = Reading(settings, spec)
    async with running(reading):
        await eventually(lambda: reading.values == [0])
        monkeypatch.setattr(connection_module, "RETRY_BACKOFF_MS", 100)
        own_kafka.kill()
        await asyncio.sleep(5)
        await asyncio.to_thread(own_kafka.start)
        async with publishing(settings, spec) as publisher:
            await publisher.publish([message(spec.name, 1)])
        await eventually(lambda: reading.values == [0, 1])


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_broker_that_stops_answering_is_noticed_and_left_for_a_new_connection(
    own_kafka: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "STALLED_SECONDS", 4.0)
    settings, spec = kafka_settings(servers.address_of(own_kafka)), topic("stuck")
    reading = Reading(settings, spec)
    check = reader_check("stuck", reading.loop, max_age_seconds=4)
    async with publishing(settings, spec) as publisher, running(reading):
        await publisher.publish([message(spec.name, 0)])
        await eventually(lambda: reading.loop.caught_up)
        os.kill(own_kafka.pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(20):
                while await check.probe() is None:
                    await asyncio.sleep(0.05)
            await eventually(lambda: not reading.loop.caught_up)
        finally:
            os.kill(own_kafka.pid, signal.SIGCONT)
        async with asyncio.timeout(30):
            while await check.probe() is not None:
                await asyncio.sleep(0.05)
    forget_half_open_connections()
    assert reading.values == [0]


async def test_a_deleted_topic_is_made_again_and_read_from_its_beginning(
    kafka_server: servers.KafkaAddress, topic_prefix: str
) -> None:
    settings, spec = kafka_settings(kafka_server), topic(f"{topic_prefix}deleted")
    reading = Reading(settings, spec, start="end")
    async with running(reading):
        await asyncio.wait_for(reading.loop.started.wait(), 20)
        async with publishing(settings, spec) as publisher:
            await publisher.publish([message(spec.name, number) for number in range(10)])
            await eventually(lambda: len(reading.values) == 10)
        admin = AIOKafkaAdminClient(**client_options(settings, client="test"))
        await admin.start()
        await admin.delete_topics([spec.name])
        await admin.close()
        await eventually(lambda: reading.loop.positions == {0: 0})
        await ensure_topics(settings, [spec])
        async with publishing(settings, spec) as publisher:
            await publisher.publish([message(spec.name, 99)])
        await eventually(lambda: reading.values[-1] == 99)
