"""Builders for tests of the runtime on real servers."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import servers
from makeway_runtime.cloudevents import EventHeaders, Headers, to_headers
from makeway_runtime.kafka.delivery import Delivery
from makeway_runtime.kafka.loop import HotLoop, LoopOptions, Start
from makeway_runtime.kafka.messages import Incoming, Outgoing, Poison
from makeway_runtime.kafka.publisher import Publisher
from makeway_runtime.settings import DatabaseServiceSettings, ServiceSettings
from makeway_schemas.topics import TopicSpec

DEADLINE_SECONDS = 30.0


def kafka_settings(address: servers.KafkaAddress, **values: object) -> ServiceSettings:
    """Settings of a service on that broker."""
    return ServiceSettings.model_validate(
        {
            "state_dir": Path("/nonexistent"),
            "runtime_dir": Path("/nonexistent"),
            "kafka_bootstrap": address.bootstrap,
            "kafka_username": address.username,
            "kafka_password": address.password,
            **values,
        }
    )


def database_settings(dsn: str, **values: object) -> DatabaseServiceSettings:
    """Settings of a service on that database."""
    return DatabaseServiceSettings.model_validate(
        {"state_dir": Path("/nonexistent"), "runtime_dir": Path("/nonexistent"), "postgres_dsn": dsn, **values}
    )


def topic(name: str, partitions: int = 1) -> TopicSpec:
    """A topic with Kafka's defaults."""
    return TopicSpec(name=name, key="key", partitions=partitions, config=MappingProxyType({}))


def headers(event_id: str = "1") -> Headers:
    """Headers of a valid event."""
    return to_headers(EventHeaders(id=event_id, type="test", source="tests", time=datetime(2026, 1, 1, tzinfo=UTC)))


def message(name: str, number: int, *, partition: int | None = 0) -> Outgoing:
    """The message number so-and-so."""
    return Outgoing(topic=name, key=b"k", value=str(number).encode(), headers=headers(str(number)), partition=partition)


async def eventually(holds: Callable[[], bool], *, within_seconds: float = DEADLINE_SECONDS) -> None:
    """Waits until a condition holds; fails at the deadline."""
    deadline = time.monotonic() + within_seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"did not come true within {within_seconds} s")
        await asyncio.sleep(0.01)


class Runs(Protocol):
    async def run(self) -> None: ...


@asynccontextmanager
async def running(what: Runs) -> AsyncIterator[None]:
    """Runs something as a task; its errors come out at the end."""
    task = asyncio.create_task(what.run())
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def forget_half_open_connections() -> None:
    """Collects what aiokafka drops without closing when it gives up a connection that is still greeting the broker.

    The collector closes them in a service too; a test does it while its loop still runs, and ignores the warnings.
    """
    gc.collect()


@asynccontextmanager
async def publishing(settings: ServiceSettings, *topics: TopicSpec) -> AsyncIterator[Publisher]:
    """A started publisher."""
    publisher = Publisher(settings, client="test", topics=topics)
    await publisher.start()
    try:
        yield publisher
    finally:
        await publisher.stop()


@dataclass
class Reading:
    """A hot loop and what it has handled so far."""

    settings: ServiceSettings
    topic: TopicSpec
    start: Start = "beginning"
    values: list[int] = field(default_factory=list)
    poison: list[Poison] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    loop: HotLoop = field(init=False)

    def __post_init__(self) -> None:
        options = LoopOptions(
            topic=self.topic, partitions=tuple(range(self.topic.partitions)), start=self.start, poll_seconds=0.2
        )
        delivery = Delivery(handler=self.handle, on_poison=self.keep)
        self.loop = HotLoop(self.settings, options, delivery, client="test")

    async def handle(self, batch: Sequence[Incoming]) -> None:
        if self.failures:
            raise self.failures.pop()
        self.values.extend(int(message.value) for message in batch)

    async def keep(self, poison: Poison) -> None:
        self.poison.append(poison)

    async def run(self) -> None:
        await self.loop.run()
