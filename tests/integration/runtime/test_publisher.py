"""The publisher on the real broker: all acknowledged or said so, never hanging, healing by itself."""

import asyncio
import os
import signal
import time

import pytest
import servers
from makeway.local.servers import ServerProcess
from makeway_runtime.errors import PublishUncertain, TransientError
from makeway_runtime.kafka.publisher import Publisher
from makeway_runtime.kafka.topics import ensure_topics
from runtime_builders import (
    Reading,
    eventually,
    forget_half_open_connections,
    kafka_settings,
    message,
    publishing,
    running,
    topic,
)


async def test_messages_of_a_partition_arrive_in_order(kafka_server: servers.KafkaAddress, topic_prefix: str) -> None:
    settings, spec = kafka_settings(kafka_server), topic(f"{topic_prefix}order")
    reading = Reading(settings, spec)
    async with publishing(settings, spec) as publisher, running(reading):
        await publisher.publish([message(spec.name, number) for number in range(500)])
        await eventually(lambda: len(reading.values) == 500)
    assert reading.values == list(range(500))


async def test_topics_get_the_partitions_and_settings_of_the_list(
    kafka_server: servers.KafkaAddress, topic_prefix: str
) -> None:
    settings, spec = kafka_settings(kafka_server), topic(f"{topic_prefix}three", partitions=3)
    await ensure_topics(settings, [spec])
    await ensure_topics(settings, [spec])
    reading = Reading(settings, spec)
    async with publishing(settings, spec) as publisher, running(reading):
        await publisher.publish([message(spec.name, number, partition=number) for number in range(3)])
        await eventually(lambda: sorted(reading.values) == [0, 1, 2])


async def test_without_a_broker_start_and_stop_are_bounded() -> None:
    nobody = servers.KafkaAddress(bootstrap="127.0.0.1:9", username=None, password=None)
    publisher = Publisher(kafka_settings(nobody), client="test", topics=[topic("t")])
    started_at = time.monotonic()
    with pytest.raises(TransientError):
        await publisher.start()
    await publisher.stop()
    assert time.monotonic() - started_at < 5


async def test_with_the_broker_killed_publish_and_stop_are_bounded_and_it_heals(own_kafka: ServerProcess) -> None:
    settings = kafka_settings(
        servers.address_of(own_kafka), kafka_publish_timeout_seconds=2, kafka_stop_timeout_seconds=1
    )
    spec = topic("healing")
    async with publishing(settings, spec) as publisher:
        await publisher.publish([message(spec.name, 0)])
        own_kafka.kill()
        started_at = time.monotonic()
        with pytest.raises(PublishUncertain):
            await publisher.publish([message(spec.name, 1)])
        assert time.monotonic() - started_at < 4
        stopping_at = time.monotonic()
        other = Publisher(settings, client="other", topics=[spec])
        await other.stop()
        assert time.monotonic() - stopping_at < 3
        await asyncio.to_thread(own_kafka.start)
        await _published(publisher, spec.name, 1)
        reading = Reading(settings, spec)
        async with running(reading):
            await eventually(lambda: 1 in reading.values)
        assert reading.values[0] == 0


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_with_the_broker_paused_publish_is_bounded_and_heals(own_kafka: ServerProcess) -> None:
    settings = kafka_settings(servers.address_of(own_kafka), kafka_publish_timeout_seconds=1)
    spec = topic("paused")
    async with publishing(settings, spec) as publisher:
        os.kill(own_kafka.pid, signal.SIGSTOP)
        try:
            started_at = time.monotonic()
            with pytest.raises(PublishUncertain):
                await publisher.publish([message(spec.name, 0)])
            assert time.monotonic() - started_at < 4
        finally:
            os.kill(own_kafka.pid, signal.SIGCONT)
        await _published(publisher, spec.name, 1)
    forget_half_open_connections()


async def test_stop_is_bounded_while_messages_hang(own_kafka: ServerProcess) -> None:
    settings = kafka_settings(
        servers.address_of(own_kafka), kafka_publish_timeout_seconds=60, kafka_stop_timeout_seconds=1
    )
    publisher = Publisher(settings, client="test", topics=[topic("hanging")])
    await publisher.start()
    own_kafka.kill()
    hanging = asyncio.create_task(publisher.publish([message("hanging", 0)]))
    await asyncio.sleep(0)
    started_at = time.monotonic()
    await publisher.stop()
    assert time.monotonic() - started_at < 4
    with pytest.raises(PublishUncertain):
        await asyncio.wait_for(hanging, 5)


async def test_with_kafka_wiped_the_topics_are_made_again(own_kafka: ServerProcess) -> None:
    settings = kafka_settings(servers.address_of(own_kafka), kafka_publish_timeout_seconds=3)
    spec = topic("wiped", partitions=2)
    reading = Reading(settings, spec)
    async with publishing(settings, spec) as publisher, running(reading):
        await publisher.publish([message(spec.name, number) for number in range(5)])
        await eventually(lambda: reading.values == list(range(5)))
        await asyncio.to_thread(own_kafka.wipe)
        await _published(publisher, spec.name, 7)
        await eventually(lambda: 7 in reading.values)


async def _published(publisher: Publisher, name: str, number: int) -> None:
    """Publishes as the outbox does: again until it is acknowledged."""
    async with asyncio.timeout(40):
        while True:
            try:
                await publisher.publish([message(name, number)])
            except PublishUncertain:
                await asyncio.sleep(0.05)
            else:
                return
