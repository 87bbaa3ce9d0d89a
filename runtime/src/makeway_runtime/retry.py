"""Back-off with jitter, by tenacity."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_delay,
    stop_never,
    wait_random_exponential,
)

from makeway_runtime.errors import TransientError


def is_transient(error: BaseException) -> bool:
    """True for what may pass by itself: connections, time-outs, and whatever says so by its class."""
    return isinstance(error, (TransientError, OSError, TimeoutError))


def asked_to_end() -> bool:
    """True when the running task was cancelled from outside: a library may let out a cancellation of its own tasks."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def backoff(
    *,
    initial_seconds: float = 0.05,
    longest_seconds: float = 5.0,
    within_seconds: float | None = None,
    retry_on: Callable[[BaseException], bool] = is_transient,
    before_sleep: Callable[[RetryCallState], None] | None = None,
) -> AsyncRetrying:
    """Returns `async for attempt in backoff(): with attempt: ...`: doubling delays with full jitter, then the error.

    Without `within_seconds` it goes on for ever; cancelling ends it. Tenacity's `copy(stop=...)` gives other ends.
    """
    return AsyncRetrying(
        retry=retry_if_exception(retry_on),
        wait=wait_random_exponential(multiplier=initial_seconds, max=longest_seconds),
        stop=stop_never if within_seconds is None else stop_after_delay(within_seconds),
        before_sleep=before_sleep,
        sleep=_sleep_unless_cancelled,
        reraise=True,
    )


async def _sleep_unless_cancelled(seconds: float) -> None:
    """Before Python 3.12 a library's `asyncio.wait_for` may turn a cancellation into an error that would be retried."""
    if asked_to_end():
        raise asyncio.CancelledError
    await asyncio.sleep(seconds)
