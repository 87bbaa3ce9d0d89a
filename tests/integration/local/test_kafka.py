"""The embedded Kafka: real, with a password, and going on where it was."""

import aiokafka
import pytest
import servers
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from makeway.local.servers import ServerProcess

GUESS = "guess"


def login(address: servers.KafkaAddress, password: str | None = None) -> dict[str, str]:
    return {
        "bootstrap_servers": address.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": address.username or "",
        "sasl_plain_password": password or address.password or "",
    }


async def create_topic(address: servers.KafkaAddress, name: str) -> None:
    admin = AIOKafkaAdminClient(**login(address))
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, 1, 1)])
    finally:
        await admin.close()


async def topics(address: servers.KafkaAddress) -> list[str]:
    admin = AIOKafkaAdminClient(**login(address))
    await admin.start()
    try:
        return list(await admin.list_topics())
    finally:
        await admin.close()


async def publish(address: servers.KafkaAddress, topic: str, value: bytes, timeout_ms: int = 40_000) -> int:
    producer = aiokafka.AIOKafkaProducer(**login(address), acks="all", request_timeout_ms=timeout_ms)
    await producer.start()
    try:
        return int((await producer.send_and_wait(topic, value)).offset)
    finally:
        await producer.stop()


async def test_messages_survive_a_kill_and_a_wipe_forgets_them(own_kafka: ServerProcess) -> None:
    address = servers.address_of(own_kafka)
    await create_topic(address, "kept")
    assert await publish(address, "kept", b"one") == 0
    own_kafka.restart()
    assert await publish(address, "kept", b"two") == 1
    own_kafka.kill()
    own_kafka.start()
    assert await publish(address, "kept", b"three") == 2
    own_kafka.wipe()
    assert servers.address_of(own_kafka) == address
    assert "kept" not in await topics(address)


async def test_a_client_without_the_password_is_refused(kafka_server: servers.KafkaAddress) -> None:
    producer = aiokafka.AIOKafkaProducer(**login(kafka_server, password=GUESS), request_timeout_ms=5000)
    with pytest.raises(KafkaError):
        await producer.start()
    await producer.stop()


async def test_topics_are_never_made_by_accident(kafka_server: servers.KafkaAddress, topic_prefix: str) -> None:
    with pytest.raises(KafkaError):
        await publish(kafka_server, f"{topic_prefix}nobody-made-me", b"lost?", timeout_ms=1000)
    assert f"{topic_prefix}nobody-made-me" not in await topics(kafka_server)


async def test_a_topic_made_carries_messages(kafka_server: servers.KafkaAddress, topic_prefix: str) -> None:
    topic = f"{topic_prefix}carried"
    await create_topic(kafka_server, topic)
    await publish(kafka_server, topic, b"hello")
    consumer = aiokafka.AIOKafkaConsumer(topic, **login(kafka_server), auto_offset_reset="earliest")
    await consumer.start()
    try:
        assert (await consumer.getone()).value == b"hello"
    finally:
        await consumer.stop()
