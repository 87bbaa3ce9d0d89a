"""The process's Prometheus registry and the series that every service has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

REGISTRY: Final = CollectorRegistry(auto_describe=True)
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

PUBLISHED = Counter("makeway_kafka_published", "Messages acknowledged by the broker.", ["topic"], registry=REGISTRY)
PUBLISH_SECONDS = Histogram(
    "makeway_kafka_publish_seconds",
    "From sending a group of messages to its last acknowledgement.",
    registry=REGISTRY,
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0),
)
PUBLISH_FAILURES = Counter(
    "makeway_kafka_publish_failures", "Publishing calls with an unknown outcome.", registry=REGISTRY
)
CONSUMED = Counter("makeway_kafka_consumed", "Messages handled.", ["topic"], registry=REGISTRY)
HANDLER_FAILURES = Counter(
    "makeway_kafka_handler_failures", "Tries of a batch that failed.", ["topic"], registry=REGISTRY
)
POISON = Counter("makeway_kafka_poison", "Messages that could not be used.", ["topic"], registry=REGISTRY)
CONSUMER_LAG = Gauge("makeway_kafka_consumer_lag", "Messages not yet read.", ["topic", "partition"], registry=REGISTRY)
OUTBOX_PENDING = Gauge("makeway_outbox_pending", "Committed rows not yet acknowledged.", registry=REGISTRY)
LOOP_LAG_SECONDS = Gauge(
    "makeway_loop_lag_seconds", "How late the event loop woke up the last time.", registry=REGISTRY
)


_REFRESHERS: Final[list[Callable[[], Awaitable[None]]]] = []


def refresh_before_page(refresh: Callable[[], Awaitable[None]]) -> None:
    """Has `refresh` awaited before each page, for series that are read from elsewhere only when somebody asks."""
    _REFRESHERS.append(refresh)


async def page() -> bytes:
    """Returns what /metrics answers."""
    for refresh in _REFRESHERS:
        await refresh()
    return generate_latest(REGISTRY)
