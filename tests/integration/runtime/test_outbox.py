"""The outbox between the real database and the real broker: what was committed is published, whatever happens."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg
import pytest
import servers
from asyncpg.pool import Pool
from makeway.local.servers import ServerProcess
from makeway_runtime import tracing
from makeway_runtime.kafka.messages import Outgoing
from makeway_runtime.kafka.publisher import Publisher
from makeway_runtime.postgres import outbox as outbox_module
from makeway_runtime.postgres.outbox import Outbox, OutboxRow, OutboxStore
from makeway_runtime.postgres.pool import Connection, DedicatedConnection, open_pool, transaction
from makeway_schemas.topics import TopicSpec
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from runtime_builders import Reading, database_settings, eventually, kafka_settings, publishing, running, topic

TABLE = """
CREATE TABLE test_outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text NOT NULL, value text NOT NULL,
    traceparent text, created_at timestamptz NOT NULL DEFAULT now())
"""
INSERT = "INSERT INTO test_outbox (topic, value, traceparent) VALUES ($1, $2, $3) RETURNING id"
OLDER = (
    "SELECT id, topic, value, traceparent FROM test_outbox"
    " WHERE created_at < now() - make_interval(secs => $1) ORDER BY id LIMIT $2"
)
DELETE = "DELETE FROM test_outbox WHERE id = ANY($1::bigint[])"
HEADERS = {
    "ce_specversion": "1.0",
    "ce_id": "1",
    "ce_type": "test",
    "ce_source": "tests",
    "ce_time": "2026-01-01T00:00:00+00:00",
}
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def row(row_id: int, name: str, value: str, traceparent: str | None = None) -> OutboxRow:
    return OutboxRow(
        id=row_id, topic=name, key=b"k", value=value.encode(), headers=HEADERS, partition=0, traceparent=traceparent
    )


async def fetch_older_than(connection: Connection, age_seconds: float, limit: int) -> Sequence[OutboxRow]:
    found = await connection.fetch(OLDER, age_seconds, limit)
    return [row(each["id"], each["topic"], each["value"], each["traceparent"]) for each in found]


async def delete(connection: Connection, ids: Sequence[int]) -> None:
    await connection.execute(DELETE, list(ids))


STORE = OutboxStore(shard="test", fetch_older_than=fetch_older_than, delete=delete)


@dataclass(frozen=True, kw_only=True)
class Stand:
    outbox: Outbox
    pool: Pool
    topic: TopicSpec
    reading: Reading

    async def write(self, value: int, *, connection: Connection | None = None) -> OutboxRow:
        """Writes a row, in a transaction of its own unless one is given."""
        if connection is not None:
            row_id = await connection.fetchval(INSERT, self.topic.name, str(value), TRACEPARENT)
            return row(row_id, self.topic.name, str(value), TRACEPARENT)
        async with transaction(self.pool) as own:
            return await self.write(value, connection=own)

    async def remaining(self) -> int:
        return int(await self.pool.fetchval("SELECT count(*) FROM test_outbox"))


@asynccontextmanager
async def standing(
    database: servers.Database, kafka: servers.KafkaAddress, name: str, *, publisher: Publisher | None = None
) -> AsyncIterator[Stand]:
    await servers.execute(database.dsn, TABLE)
    settings, spec = kafka_settings(kafka, kafka_publish_timeout_seconds=2), topic(name)
    on_database = database_settings(database.dsn)
    pool = await open_pool(on_database, service="test")
    reading = Reading(settings, spec)
    async with publishing(settings, spec) as own, running(reading):
        yield Stand(outbox=Outbox(on_database, pool, publisher or own, STORE), pool=pool, topic=spec, reading=reading)
    await asyncio.wait_for(pool.close(), 10)


async def test_rows_are_published_at_once_in_commit_order_and_then_deleted(
    database: servers.Database, kafka_server: servers.KafkaAddress, topic_prefix: str
) -> None:
    async with standing(database, kafka_server, f"{topic_prefix}outbox") as stand, running(stand.outbox):
        for value in range(20):
            stand.outbox.committed([await stand.write(value)])
        await eventually(lambda: stand.reading.values == list(range(20)))
        await eventually(lambda: len(stand.outbox.acknowledged_ids()) in (0, 20))
        async with asyncio.timeout(10):
            while await stand.remaining():
                await asyncio.sleep(0.05)


async def test_acknowledged_ids_are_given_until_their_deletion_is_committed(
    database: servers.Database, kafka_server: servers.KafkaAddress, topic_prefix: str
) -> None:
    async with standing(database, kafka_server, f"{topic_prefix}ack") as stand:
        stand.outbox.committed([await stand.write(1)])
        await asyncio.wait_for(stand.outbox.flush(), 10)
        ids = stand.outbox.acknowledged_ids()
        assert len(ids) == 1
        assert stand.outbox.acknowledged_ids() == ids
        stand.outbox.deleted(ids)
        assert stand.outbox.acknowledged_ids() == ()


async def test_rows_of_two_interleaved_transactions_are_all_published(
    database: servers.Database, kafka_server: servers.KafkaAddress, topic_prefix: str
) -> None:
    async with standing(database, kafka_server, f"{topic_prefix}inter") as stand, running(stand.outbox):
        async with transaction(stand.pool) as early:
            await stand.write(1, connection=early)
            later = await stand.write(2)
            stand.outbox.committed([later])
            await eventually(lambda: stand.reading.values == [2])
        # The lower id was committed last, and its process died before it could say so.
        await eventually(lambda: stand.reading.values == [2, 1])


async def test_rows_of_a_process_that_died_are_swept(
    database: servers.Database, kafka_server: servers.KafkaAddress, topic_prefix: str
) -> None:
    async with standing(database, kafka_server, f"{topic_prefix}swept") as stand:
        for value in range(5):
            await stand.write(value)
        async with running(stand.outbox):
            await eventually(lambda: stand.reading.values == list(range(5)))
            async with asyncio.timeout(10):
                while await stand.remaining():
                    await asyncio.sleep(0.05)
    assert stand.reading.values == list(range(5))


async def test_two_sweepers_take_turns(
    database: servers.Database, kafka_server: servers.KafkaAddress, topic_prefix: str
) -> None:
    async with standing(database, kafka_server, f"{topic_prefix}two") as stand:
        settings = kafka_settings(kafka_server)
        async with publishing(settings, stand.topic) as publisher:
            other = Outbox(database_settings(database.dsn), stand.pool, publisher, STORE)
            async with running(stand.outbox), running(other):
                for value in range(50):
                    await stand.write(value)
                await eventually(lambda: len(stand.reading.values) >= 50)
    assert stand.reading.values == list(range(50))


async def test_when_the_broker_is_away_rows_wait_and_then_come_in_order(
    database: servers.Database, own_kafka: ServerProcess
) -> None:
    async with standing(database, servers.address_of(own_kafka), "waiting") as stand, running(stand.outbox):
        stand.outbox.committed([await stand.write(0)])
        await eventually(lambda: stand.reading.values == [0])
        own_kafka.kill()
        for value in range(1, 6):
            stand.outbox.committed([await stand.write(value)])
        await asyncio.to_thread(own_kafka.start)
        await eventually(lambda: set(stand.reading.values) == set(range(6)))
    # At least once: a publish whose answer was lost is repeated; first appearances are in order.
    assert list(dict.fromkeys(stand.reading.values)) == list(range(6))


async def test_more_rows_than_memory_keeps_come_by_the_sweeper(
    database: servers.Database,
    kafka_server: servers.KafkaAddress,
    topic_prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox_module, "MAX_QUEUED_ROWS", 3)
    async with standing(database, kafka_server, f"{topic_prefix}full") as stand:
        for value in range(10):
            stand.outbox.committed([await stand.write(value)])
        async with running(stand.outbox):
            await eventually(lambda: len(stand.reading.values) >= 10)
    assert stand.reading.values == list(range(10))


class Posts:
    """A broker that takes everything at once."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        self.values += [message.value for message in messages]


async def test_a_process_that_does_not_sweep_publishes_its_own_rows_again_after_too_many(
    database: servers.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each of its rows would wait for the other's sweep, for as long as it lives."""
    monkeypatch.setattr(outbox_module, "MAX_QUEUED_ROWS", 3)
    monkeypatch.setattr(outbox_module, "LOCK_RETRY_SECONDS", 0.01)
    await servers.execute(database.dsn, TABLE)
    settings, posts = database_settings(database.dsn), Posts()
    sweeper = await DedicatedConnection.open(settings, service="test", on_lost=lambda: None)
    assert await sweeper.try_lock("outbox/test")
    pool = await open_pool(settings, service="test")
    outbox = Outbox(settings, pool, posts, STORE)  # type: ignore[arg-type]
    outbox.committed([row(number, "t", "too many") for number in range(4)])
    async with running(outbox), asyncio.timeout(10):
        while not posts.values:
            outbox.committed([row(9, "t", "later")])
            await asyncio.sleep(0.01)
    assert set(posts.values) == {b"later"}
    await sweeper.close()
    await pool.close()


async def test_the_trace_goes_through_the_outbox(
    database: servers.Database,
    kafka_server: servers.KafkaAddress,
    topic_prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "tracer", lambda: provider.get_tracer("test"))
    async with standing(database, kafka_server, f"{topic_prefix}trace") as stand:
        received: list[str | None] = []
        original = stand.reading.handle

        async def handle(batch: Sequence[object]) -> None:
            received.extend(message.event.traceparent for message in batch)  # type: ignore[attr-defined]
            await original(batch)  # type: ignore[arg-type]

        object.__setattr__(stand.reading.loop._delivery, "handler", handle)
        stand.outbox.committed([await stand.write(1)])
        await asyncio.wait_for(stand.outbox.flush(), 10)
        await eventually(lambda: len(received) == 1 and len(exporter.get_finished_spans()) == 2)
    spans = {span.name.split()[0]: span for span in exporter.get_finished_spans()}
    publish, process = spans["publish"], spans["process"]
    assert publish.parent is not None
    assert f"{publish.parent.span_id:016x}" == "b7ad6b7169203331"
    assert received == [f"00-0af7651916cd43dd8448eb211c80319c-{publish.context.span_id:016x}-01"]
    assert process.parent is not None
    assert process.parent.span_id == publish.context.span_id


async def test_a_database_restart_stops_nothing_for_good(
    own_postgres: ServerProcess, kafka_server: servers.KafkaAddress, topic_prefix: str
) -> None:
    dsn: str = own_postgres.server.dsn()  # type: ignore[attr-defined]
    database = servers.Database(name="postgres", dsn=dsn)
    async with standing(database, kafka_server, f"{topic_prefix}restart") as stand, running(stand.outbox):
        await stand.write(1)
        await asyncio.to_thread(own_postgres.restart)
        async with asyncio.timeout(20):
            while True:
                try:
                    await stand.write(2)
                    break
                except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                    await asyncio.sleep(0.05)
        await eventually(lambda: set(stand.reading.values) == {1, 2})
