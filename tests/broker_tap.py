"""Reading and writing a cluster's topics by hand: what was published, again, in another order, or spoilt."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from live_cluster import LiveCluster
from makeway_schemas.topics import TopicSpec


@dataclass(frozen=True, kw_only=True)
class Letter:
    """One message as it lies in its topic."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def read(cluster: LiveCluster, topic: TopicSpec, key: str) -> list[Letter]:
    """All messages of the key's partition, the oldest first."""
    return asyncio.run(_read(cluster, topic, topic.partition_of(key)))


def publish(cluster: LiveCluster, topic: TopicSpec, key: str, letters: Sequence[Letter]) -> None:
    """Publish to the key's partition, in the order given."""
    asyncio.run(_publish(cluster, topic, topic.partition_of(key), letters))


async def _read(cluster: LiveCluster, topic: TopicSpec, number: int) -> list[Letter]:
    partition = TopicPartition(topic.name, number)
    consumer = AIOKafkaConsumer(**_login(cluster), auto_offset_reset="earliest", enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        await consumer.seek_to_beginning(partition)
        found: list[Letter] = []
        while await consumer.position(partition) < end:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                found += [Letter(key=one.key, value=one.value, headers=tuple(one.headers)) for one in records]
        return found
    finally:
        await consumer.stop()


async def _publish(cluster: LiveCluster, topic: TopicSpec, number: int, letters: Sequence[Letter]) -> None:
    producer = AIOKafkaProducer(**_login(cluster), acks="all", linger_ms=20)
    await producer.start()
    try:
        sent = [
            await producer.send(
                topic.name, key=letter.key, value=letter.value, headers=list(letter.headers), partition=number
            )
            for letter in letters
        ]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


def _login(cluster: LiveCluster) -> dict[str, Any]:
    address = cluster.kafka()
    return {
        "bootstrap_servers": address.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": address.username,
        "sasl_plain_password": address.password,
    }
