"""The consuming loop of hot topics: assigned partitions, no group, one `getmany` after the other.

A consumer group would leave a partition alone for up to its session time-out after a crash, and FastStream sleeps
after an empty poll; both cost more than a hot topic may. Where to start is the caller's business: state lives in
Postgres and in the nodes, never in committed offsets.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from makeway_schemas.topics import TopicSpec

from makeway_runtime import metrics, retry
from makeway_runtime.errors import TransientError
from makeway_runtime.kafka.closing import close_consumer
from makeway_runtime.kafka.connection import consumer_options
from makeway_runtime.kafka.delivery import Delivery
from makeway_runtime.kafka.topics import ensure_topics
from makeway_runtime.settings import ServiceSettings

_LOG: Final = structlog.get_logger(__name__)

Start = Literal["end", "beginning"] | int | datetime
"""The first message to read: by place, by offset, or the first one not older than an aware time."""

STOP_TIMEOUT_SECONDS: Final = 3.0
STALLED_SECONDS: Final = 20.0
"""Without an answer for this long the consumer is thrown away and a new one is made: aiokafka's can get stuck."""
FRESH_SECONDS: Final = 6.0
"""The broker answers a fetch at least every two seconds; without an answer for this long, nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """What one loop reads."""

    topic: TopicSpec
    partitions: tuple[int, ...]
    start: Start = "end"
    max_records: int = 500
    poll_seconds: float = 1.0


class _TopicVanished(TransientError):
    """The topic, or the whole broker's data, is gone."""


class HotLoop:
    """Reads some partitions of one topic and hands each batch to `delivery`.

    It survives a broker that is away (it goes on where it was), a topic that was deleted or a broker that lost all its
    data (it makes the topic again and reads the new one from its beginning), and offsets that retention has removed
    (it goes on from the oldest).
    """

    def __init__(self, settings: ServiceSettings, options: LoopOptions, delivery: Delivery, *, client: str) -> None:
        """`client` names the process in the broker's logs."""
        self._settings = settings
        self._options = options
        self._delivery = delivery
        self._client = client
        self._partitions = [TopicPartition(options.topic.name, number) for number in options.partitions]
        self._positions: dict[TopicPartition, int] = {}
        self._caught_up: set[TopicPartition] = set()
        self._answers: dict[TopicPartition, tuple[int, float]] = {}
        self._session_began_at = 0.0
        self._stopping = asyncio.Event()
        self.started = asyncio.Event()
        """Set once the positions to start from are known: what is published afterwards will be read."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._options.topic.name

    @property
    def busy_since(self) -> float | None:
        """time.monotonic() since when the handler has been at its present try; None between tries."""
        return self._delivery.pulse.busy_since

    @property
    def last_poll_at(self) -> float | None:
        """time.monotonic() of the latest answer of the broker for the partition that has waited longest for one."""
        if len(self._answers) < len(self._partitions):
            return None
        return min(heard_at for _, heard_at in self._answers.values())

    @property
    def caught_up(self) -> bool:
        """True when everything was handled that the broker had at its latest answer, and that answer is fresh."""
        last = self.last_poll_at
        fresh = last is not None and time.monotonic() - last < FRESH_SECONDS
        return fresh and len(self._caught_up) == len(self._partitions)

    @property
    def positions(self) -> dict[int, int]:
        """Partition number to the offset of the next message to handle."""
        return {partition.partition: offset for partition, offset in self._positions.items()}

    async def run(self) -> None:
        """Reads until `stop()`; never ends by itself. Raises only what `on_poison` cannot keep for good."""
        while not self._stopping.is_set():
            async for attempt in retry.backoff(initial_seconds=0.1, longest_seconds=3.0, retry_on=_is_trouble):
                with attempt:
                    if not self._stopping.is_set():
                        await self._session(attempt.retry_state.attempt_number)

    async def stop(self) -> None:
        """Asks `run` to return after the batch at hand."""
        self._stopping.set()

    async def _session(self, attempt_number: int) -> None:
        """Reads with one consumer until told to stop. Returns after trouble that came after progress: try anew soon."""
        await ensure_topics(self._settings, [self._options.topic])
        consumer = AIOKafkaConsumer(**consumer_options(self._settings, client=self._client))
        self._session_began_at = time.monotonic()
        polls = 0
        try:
            await consumer.start()
            consumer.assign(self._partitions)
            await self._seek(consumer)
            self.started.set()
            while not self._stopping.is_set():
                await self._poll(consumer)
                polls += 1
        except asyncio.CancelledError as error:
            if retry.asked_to_end():
                raise
            raise TransientError("a task of the Kafka client was cancelled") from error
        except (KafkaError, TransientError, OSError, TimeoutError) as error:
            if isinstance(error, _TopicVanished):
                self._positions = dict.fromkeys(self._partitions, 0)
            _LOG.warning("reading was interrupted", topic=self.topic, attempt=attempt_number, error=repr(error))
            if polls == 0:
                raise
        finally:
            self._caught_up.clear()
            self._answers.clear()
            await close_consumer(consumer, within_seconds=STOP_TIMEOUT_SECONDS)

    async def _seek(self, consumer: AIOKafkaConsumer) -> None:
        unknown = [partition for partition in self._partitions if partition not in self._positions]
        for partition, offset in self._positions.items():
            consumer.seek(partition, offset)
        if unknown:
            await self._seek_first(consumer, unknown)
        for partition in self._partitions:
            self._positions[partition] = await consumer.position(partition)
        # The first fetch of a partition without news is answered late: ask, so as to know at once that nothing waits.
        ends = await consumer.end_offsets(self._partitions)
        for partition in self._partitions:
            self._note(partition, answered_ms=0, end=ends[partition])

    async def _seek_first(self, consumer: AIOKafkaConsumer, unknown: list[TopicPartition]) -> None:
        """Goes to where the options say, on partitions that were not read before."""
        start = self._options.start
        if isinstance(start, datetime):
            since_ms = int(start.timestamp() * 1000)
            found = await consumer.offsets_for_times(dict.fromkeys(unknown, since_ms))
            unknown = [partition for partition in unknown if found.get(partition) is None]
            for partition, place in found.items():
                if place is not None:
                    consumer.seek(partition, place.offset)
            start = "end"
        if isinstance(start, int):
            for partition in unknown:
                consumer.seek(partition, start)
        elif unknown:
            seek = consumer.seek_to_end if start == "end" else consumer.seek_to_beginning
            if not await seek(*unknown):
                raise TransientError("the broker did not say where its partitions start and end")

    async def _poll(self, consumer: AIOKafkaConsumer) -> None:
        found: dict[TopicPartition, list[Any]] = await consumer.getmany(
            timeout_ms=int(self._options.poll_seconds * 1000), max_records=self._options.max_records
        )
        for partition, records in found.items():
            await self._delivery.deliver(records)
            self._positions[partition] = records[-1].offset + 1
        self._look(consumer)
        if not found:
            await self._check(consumer)

    async def _check(self, consumer: AIOKafkaConsumer) -> None:
        """Looks for trouble that aiokafka keeps to itself. Raises TransientError."""
        known = consumer.partitions_for_topic(self.topic) or set()
        if not known.issuperset(self._options.partitions):
            raise _TopicVanished(f"topic {self.topic} is gone")
        heard_at = self._session_began_at if self.last_poll_at is None else self.last_poll_at
        if time.monotonic() - heard_at > STALLED_SECONDS:
            raise TransientError(f"no answer from the broker for {STALLED_SECONDS:.0f} s")
        for partition in self._partitions:
            if partition not in self._caught_up and self.last_poll_at is not None:
                # Retention may have removed all that was left to read: the consumer knows, and reads from memory.
                async with asyncio.timeout(STOP_TIMEOUT_SECONDS):
                    self._positions[partition] = await consumer.position(partition)

    def _look(self, consumer: AIOKafkaConsumer) -> None:
        """Notes how far the broker is and when it last answered."""
        for partition in self._partitions:
            answered_ms = consumer.last_poll_timestamp(partition)
            end = consumer.highwater(partition)
            if answered_ms is not None and end is not None:
                self._note(partition, answered_ms=answered_ms, end=end)

    def _note(self, partition: TopicPartition, *, answered_ms: int, end: int) -> None:
        if self._answers.get(partition, (None, 0.0))[0] != answered_ms:
            self._answers[partition] = (answered_ms, time.monotonic())
        lag = max(0, end - self._positions.get(partition, 0))
        metrics.CONSUMER_LAG.labels(partition.topic, partition.partition).set(lag)
        if lag == 0:
            self._caught_up.add(partition)
        else:
            self._caught_up.discard(partition)


def _is_trouble(error: BaseException) -> bool:
    return isinstance(error, (KafkaError, TransientError, OSError, TimeoutError))


def partitions_of(topic: TopicSpec) -> tuple[int, ...]:
    """Returns all partition numbers of a topic."""
    return tuple(range(topic.partitions))
