"""What happens to a batch of records between the broker and the handler.

1. Records whose headers are no CloudEvent go to `on_poison`; a record without value is a compaction tombstone, skipped.
2. The rest goes to the handler, as one batch, in order.
3. The handler raises PoisonFound: those go to `on_poison`, the rest is handed over again.
4. It raises something transient: the same batch again after a growing, jittered delay, for as long as it takes.
5. It raises anything else: the same, `isolate_after` times; then each record alone, and one that still fails goes to
   `on_poison`. The stream goes on.

So the handler must be idempotent, and nothing is skipped without `on_poison` having kept it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import structlog
from opentelemetry.trace import SpanKind
from tenacity import stop_after_attempt

from makeway_runtime import metrics, retry, tracing
from makeway_runtime.cloudevents import from_headers
from makeway_runtime.errors import InvalidEvent
from makeway_runtime.kafka.messages import Incoming, Poison, PoisonFound, Record

_LOG: Final = structlog.get_logger(__name__)

Handler = Callable[[Sequence[Incoming]], Awaitable[None]]
PoisonHandler = Callable[[Poison], Awaitable[None]]


class Pulse:
    """Since when (time.monotonic()) the handler has been at its present try; None between tries.

    A handler that fails and is tried again is alive; one whose single try never ends is stuck.
    """

    __slots__ = ("busy_since",)

    def __init__(self) -> None:
        self.busy_since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Hands batches to `handler`, as the module says."""

    handler: Handler
    on_poison: PoisonHandler
    is_transient: Callable[[BaseException], bool] = retry.is_transient
    isolate_after: int = 4
    within_seconds: float | None = None
    """Gives up with the last transient error after this long; None: never. A consumer group needs a limit below its
    `max_poll_interval`, since it loses its partitions there."""
    pulse: Pulse = field(default_factory=Pulse)

    async def deliver(self, records: Sequence[Record]) -> None:
        """Returns when every record was handled or kept as poison."""
        batch: list[Incoming] = []
        for record in records:
            if record.value is None:
                continue
            incoming = _incoming(record, record.value)
            if isinstance(incoming, Poison):
                await self._keep(incoming)
            else:
                batch.append(incoming)
        await self._hand_over(batch)
        for topic in {record.topic for record in records}:
            metrics.CONSUMED.labels(topic).inc(sum(record.topic == topic for record in records))

    async def _hand_over(self, batch: Sequence[Incoming]) -> None:
        if not batch:
            return
        try:
            await self._try(batch)
        except PoisonFound as found:
            rest = [message for message in batch if (message.partition, message.offset) not in found.reasons]
            if len(rest) == len(batch):
                await self._isolate(batch, found)
                return
            for message in batch:
                reason = found.reasons.get((message.partition, message.offset))
                if reason is not None:
                    await self._keep(_poison(message, reason))
            await self._hand_over(rest)
        except Exception as error:
            if self.is_transient(error):
                raise
            await self._isolate(batch, error)

    async def _isolate(self, batch: Sequence[Incoming], error: Exception) -> None:
        if len(batch) == 1:
            await self._keep(_poison(batch[0], f"the handler failed: {error!r}"))
            return
        for message in batch:
            await self._hand_over([message])

    async def _try(self, batch: Sequence[Incoming]) -> None:
        # The first try costs nothing extra: under load there are hundreds of batches a second.
        try:
            await self._call(batch)
        except PoisonFound:
            raise
        except Exception:  # noqa: BLE001 - whatever a handler raises, its batch is not lost
            await self._persist(batch)

    async def _persist(self, batch: Sequence[Incoming]) -> None:
        tries = retry.backoff(retry_on=self._is_other).copy(stop=stop_after_attempt(self.isolate_after))
        async for attempt in tries:
            with attempt:
                async for patience in retry.backoff(within_seconds=self.within_seconds, retry_on=self.is_transient):
                    with patience:
                        await self._call(batch)

    async def _call(self, batch: Sequence[Incoming]) -> None:
        self.pulse.busy_since = time.monotonic()
        try:
            with _span(batch):
                await self.handler(batch)
        except PoisonFound:
            raise
        except Exception as error:
            topic = batch[0].topic
            metrics.HANDLER_FAILURES.labels(topic).inc()
            _LOG.warning("a handler failed", topic=topic, messages=len(batch), error=repr(error))
            raise
        finally:
            self.pulse.busy_since = None

    def _is_other(self, error: BaseException) -> bool:
        return isinstance(error, Exception) and not isinstance(error, PoisonFound) and not self.is_transient(error)

    async def _keep(self, poison: Poison) -> None:
        metrics.POISON.labels(poison.topic).inc()
        _LOG.error(
            "message set aside",
            topic=poison.topic,
            partition=poison.partition,
            offset=poison.offset,
            reason=poison.reason,
        )
        async for attempt in retry.backoff(retry_on=lambda error: isinstance(error, Exception)):
            with attempt:
                await self.on_poison(poison)


def _span(batch: Sequence[Incoming]) -> AbstractContextManager[object]:
    """The span of handling a batch: under the message's own trace when it is one, linked to all of them otherwise."""
    topic = batch[0].topic
    if len(batch) == 1:
        return tracing.span(f"process {topic}", kind=SpanKind.CONSUMER, traceparent=batch[0].event.traceparent)
    origins = tuple({message.event.traceparent for message in batch if message.event.traceparent is not None})
    return tracing.span(
        f"process {topic}",
        kind=SpanKind.CONSUMER,
        links=origins,
        attributes={"messaging.system": "kafka", "messaging.batch.message_count": len(batch)},
    )


def _incoming(record: Record, value: bytes) -> Incoming | Poison:
    try:
        event = from_headers(record.headers)
    except InvalidEvent as error:
        return Poison(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            key=record.key,
            value=value,
            headers=tuple((name, value or b"") for name, value in record.headers),
            reason=str(error),
        )
    return Incoming(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        received=datetime.fromtimestamp(record.timestamp / 1000, UTC),
        key=record.key,
        value=value,
        event=event,
        headers=tuple(record.headers),
    )


def _poison(message: Incoming, reason: str) -> Poison:
    return Poison(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        key=message.key,
        value=message.value,
        headers=message.headers,
        reason=reason,
    )
