"""The same handlers on FastStream's consumer groups, for topics where a few milliseconds do not count.

FastStream's own acknowledgements lose messages: its default acknowledges before the handler, ACK also after an error,
MANUAL with the next message. NACK_ON_ERROR is the one that does not; alone it would redeliver without pause, so
`Delivery` retries with back-off inside the handler and keeps poison. Never `max_workers`: they break order or lose the
last commit.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from faststream import AckPolicy
from faststream.kafka import KafkaBroker
from faststream.kafka.annotations import KafkaMessage
from faststream.security import BaseSecurity, SASLPlaintext

from makeway_runtime.kafka.connection import (
    FETCH_MAX_WAIT_MS,
    MAX_POLL_INTERVAL_MS,
    REQUEST_TIMEOUT_MS,
    RETRY_BACKOFF_MS,
    SESSION_TIMEOUT_MS,
    tls_context,
)
from makeway_runtime.kafka.delivery import Delivery
from makeway_runtime.kafka.messages import Record
from makeway_runtime.settings import ServiceSettings

GROUP_METADATA_MAX_AGE_MS: Final = 5_000
"""A group that finds its topic gone, as after a broker that lost its data, has no partitions until it asks again."""
RETRY_WITHIN_SECONDS: Final = MAX_POLL_INTERVAL_MS / 1000 / 2
"""What `Delivery.within_seconds` is for a group: past it FastStream seeks back and the group keeps its partitions."""


def faststream_broker(settings: ServiceSettings, *, client: str) -> KafkaBroker:
    """Returns a broker with safe options. Its stop() waits `stop_timeout_seconds` for handlers."""
    return KafkaBroker(
        settings.kafka_bootstrap,
        client_id=f"makeway-{client}",
        acks="all",
        enable_idempotence=True,
        allow_auto_create_topics=False,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        metadata_max_age_ms=GROUP_METADATA_MAX_AGE_MS,
        retry_backoff_ms=RETRY_BACKOFF_MS,
        graceful_timeout=settings.stop_timeout_seconds,
        ack_policy=AckPolicy.NACK_ON_ERROR,
        security=_security(settings),
        logger=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What one reader reads. An empty poll is followed by a pause of `batch_timeout_ms`."""

    topic: str
    group: str
    max_records: int = 500
    batch_timeout_ms: int = 200


class StreamReader:
    """A batch subscriber of `broker` that hands its batches to `delivery`. Make it before the broker starts."""

    def __init__(self, broker: KafkaBroker, options: StreamOptions, delivery: Delivery) -> None:
        """`delivery.within_seconds` must be set, for example to RETRY_WITHIN_SECONDS."""
        if delivery.within_seconds is None:
            raise ValueError("a consumer group needs a limit for its retries: set within_seconds")
        self._delivery = delivery
        self._answer_ms = 0
        self._answered_at: float | None = None
        self._subscriber = broker.subscriber(
            options.topic,
            group_id=options.group,
            batch=True,
            max_records=options.max_records,
            batch_timeout_ms=options.batch_timeout_ms,
            auto_offset_reset="earliest",
            ack_policy=AckPolicy.NACK_ON_ERROR,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
            fetch_max_wait_ms=FETCH_MAX_WAIT_MS,
            parser=_parse,
            decoder=_decode_nothing,
        )
        self._subscriber(self._consume)

    @property
    def busy_since(self) -> float | None:
        """time.monotonic() since when the handler has been at its present try; None between tries."""
        return self._delivery.pulse.busy_since

    @property
    def last_poll_at(self) -> float | None:
        """time.monotonic() when the broker's latest answer was first seen here; None before any."""
        consumer = getattr(self._subscriber, "consumer", None)
        if consumer is None:
            return None
        answers = [consumer.last_poll_timestamp(partition) for partition in consumer.assignment()]
        known = [answer for answer in answers if answer is not None]
        if known and min(known) != self._answer_ms:
            self._answer_ms = min(known)
            self._answered_at = time.monotonic()
        return self._answered_at

    async def _consume(self, message: KafkaMessage) -> None:
        records: Sequence[Record] = message.raw_message
        await self._delivery.deliver(records)


async def _parse(records: tuple[Any, ...], original: Callable[[Any], Awaitable[Any]]) -> Any:
    """FastStream decodes every header as UTF-8 and would fail on a binary one; `Delivery` reads the records as came."""
    message = await original(tuple(replace(record, headers=()) for record in records))
    message.raw_message = records
    return message


async def _decode_nothing(_message: Any) -> list[bytes]:
    return []


def _security(settings: ServiceSettings) -> BaseSecurity:
    tls = tls_context(settings)
    if settings.kafka_password is None:
        return BaseSecurity(ssl_context=tls)
    return SASLPlaintext(
        username=settings.kafka_username or "",
        password=settings.kafka_password.get_secret_value(),
        ssl_context=tls,
        use_ssl=tls is not None,
    )
