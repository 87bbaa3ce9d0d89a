"""Closing a library's client: within a time limit, and whatever its own tasks do."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer

_LOG: Final = structlog.get_logger(__name__)


async def closed_within(seconds: float, closing: Coroutine[Any, Any, None], *, what: str) -> bool:
    """Whether that ended well in time. Raises nothing that comes out of it.

    It runs as a task of its own: a client that cancels its inner tasks and awaits them lets their cancellation out,
    which here would end the caller; and one that loses a cancellation could keep the caller for ever.
    """
    task = asyncio.ensure_future(closing)
    await asyncio.wait([task], timeout=seconds)
    if not task.done():
        task.cancel()
        _LOG.warning("a Kafka client could not be closed", client=what)
        return False
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    if error is not None:
        _LOG.info("a Kafka client closed with an error", client=what, error=repr(error))
    return error is None


async def close_consumer(consumer: AIOKafkaConsumer, *, within_seconds: float) -> None:
    """Closes a consumer and its connections."""
    if not await closed_within(within_seconds, consumer.stop(), what="consumer"):
        # A fetch that failed and waits before it tries again raises its cancellation, and stop() goes no further: the
        # connections and the task that asks for metadata would live on. There is no public way to end them.
        await closed_within(within_seconds, consumer._client.close(), what="consumer's connections")
