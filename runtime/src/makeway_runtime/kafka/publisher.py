"""Publishing groups of messages, within a time limit, healing after trouble."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from makeway_schemas.topics import TopicSpec

from makeway_runtime import metrics
from makeway_runtime.errors import PublishUncertain, TransientError
from makeway_runtime.kafka.closing import closed_within
from makeway_runtime.kafka.connection import producer_options
from makeway_runtime.kafka.messages import Outgoing
from makeway_runtime.kafka.topics import ensure_topics
from makeway_runtime.retry import asked_to_end
from makeway_runtime.settings import ServiceSettings

_LOG: Final = structlog.get_logger(__name__)


class Publisher:
    """One idempotent producer, replaced after any trouble.

    An idempotent aiokafka producer retries for ever, and so does its stop(), when the broker is gone. So every step
    here has a time limit; after one has passed, the producer is thrown away and a new one is made, which also makes the
    topics again that the broker may have lost.
    """

    def __init__(self, settings: ServiceSettings, *, client: str, topics: Sequence[TopicSpec]) -> None:
        """`client` names the process in the broker's logs; `topics` are all that this publisher may write to."""
        self._settings = settings
        self._client = client
        self._topics = tuple(topics)
        # A task, so that a publish that gives up leaves it going for the next one: cancelled half-way, aiokafka would
        # leave its connection open.
        self._making: asyncio.Task[AIOKafkaProducer] | None = None
        # The publishing calls under way, so that none outlives the producer it waits for.
        self._waiting: dict[asyncio.Timeout, AIOKafkaProducer] = {}
        self._stopped = False
        self.last_success_at: float | None = None
        """time.monotonic() of the last publish that was acknowledged."""

    async def start(self) -> None:
        """Connects and makes missing topics. Raises TransientError when the broker is out of reach."""
        try:
            async with asyncio.timeout(self._settings.kafka_publish_timeout_seconds):
                await self._ready_producer()
        except (KafkaError, OSError, TimeoutError) as error:
            raise TransientError(f"the broker is out of reach: {error!r}") from error

    async def stop(self) -> None:
        """Flushes and closes, within `kafka_stop_timeout_seconds`."""
        self._stopped = True
        making, self._making = self._making, None
        if making is None:
            return
        limit_seconds = self._settings.kafka_stop_timeout_seconds
        await asyncio.wait([making], timeout=limit_seconds)
        if not making.done():
            making.cancel()
            await asyncio.wait([making], timeout=limit_seconds)
        elif making.exception() is None:
            await self._close(making.result(), flush_seconds=limit_seconds)

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Sends all, pipelined, in order per partition; returns when all are acknowledged.

        Raises PublishUncertain within `kafka_publish_timeout_seconds` otherwise.
        """
        if not messages:
            return
        if self._stopped:
            raise PublishUncertain("the publisher is stopped")
        started_at = time.monotonic()
        producer: AIOKafkaProducer | None = None
        try:
            async with asyncio.timeout(self._settings.kafka_publish_timeout_seconds) as limit:
                producer = await self._ready_producer()
                self._waiting[limit] = producer
                try:
                    await _send_all(producer, messages)
                finally:
                    del self._waiting[limit]
        except (KafkaError, TransientError, OSError, TimeoutError) as error:
            metrics.PUBLISH_FAILURES.inc()
            await self._drop(producer)
            raise PublishUncertain(f"{len(messages)} messages were not all acknowledged: {error!r}") from error
        self._count(messages, time.monotonic() - started_at)

    def _count(self, messages: Sequence[Outgoing], seconds: float) -> None:
        self.last_success_at = time.monotonic()
        metrics.PUBLISH_SECONDS.observe(seconds)
        for message in messages:
            metrics.PUBLISHED.labels(message.topic).inc()

    async def _ready_producer(self) -> AIOKafkaProducer:
        if self._making is None or (self._making.done() and self._making.exception() is not None):
            self._making = asyncio.create_task(self._make())
            # Whoever waited may have given up: the failure is then nobody's, and no news.
            self._making.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._making)

    async def _make(self) -> AIOKafkaProducer:
        await ensure_topics(self._settings, self._topics)
        producer = AIOKafkaProducer(**producer_options(self._settings, client=self._client))
        try:
            await producer.start()
        except BaseException as error:
            await closed_within(self._settings.kafka_stop_timeout_seconds, producer.stop(), what="producer")
            if isinstance(error, asyncio.CancelledError) and not asked_to_end():
                raise TransientError("a task of the Kafka client was cancelled") from error
            raise
        return producer

    async def _drop(self, producer: AIOKafkaProducer | None) -> None:
        """Throws a producer away, unless another call has done so already."""
        making = self._making
        if producer is None or making is None or not making.done() or making.exception() is not None:
            return
        if making.result() is producer:
            self._making = None
            await self._close(producer, flush_seconds=0.0)

    async def _close(self, producer: AIOKafkaProducer, *, flush_seconds: float) -> None:
        await _close(producer, flush_seconds)
        for limit, used in self._waiting.items():
            if used is producer:
                limit.reschedule(asyncio.get_running_loop().time())


async def _send_all(producer: AIOKafkaProducer, messages: Sequence[Outgoing]) -> None:
    acknowledgements = [
        await producer.send(
            message.topic,
            value=message.value,
            key=message.key,
            partition=message.partition,
            headers=list(message.headers),
        )
        for message in messages
    ]
    results = await asyncio.gather(*acknowledgements, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def _close(producer: AIOKafkaProducer, flush_seconds: float) -> None:
    """Closes, giving up what is not acknowledged after `flush_seconds`. Never hangs."""
    stopping = asyncio.ensure_future(producer.stop())
    await asyncio.wait([stopping], timeout=flush_seconds)
    if not stopping.done():
        # stop() waits for the sender to flush, which an idempotent sender without a broker never does; there is no
        # public way to end it. With its task cancelled stop() goes on and closes the connections.
        sender = producer._sender
        if sender is not None and sender.sender_task is not None:
            sender.sender_task.cancel()
        await asyncio.wait([stopping], timeout=1.0)
    if not stopping.done():
        stopping.cancel()
        _LOG.warning("a Kafka producer could not be closed")
    elif not stopping.cancelled() and stopping.exception() is not None:
        _LOG.info("a Kafka producer closed with an error", error=repr(stopping.exception()))
