"""Back-off: what may pass is tried again, and a cancellation ends it, also one that a library has lost."""

import asyncio

import pytest
from makeway_runtime import retry
from makeway_runtime.errors import TransientError


async def test_what_may_pass_is_tried_again() -> None:
    tries = 0
    async for attempt in retry.backoff(initial_seconds=0.001):
        with attempt:
            tries += 1
            if tries < 3:
                raise TransientError("not yet")
    assert tries == 3


async def test_a_cancellation_that_a_library_turned_into_an_error_ends_it() -> None:
    began = asyncio.Event()

    async def loses_cancellations() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise TransientError("the connection was refused") from None

    async def work() -> None:
        async for attempt in retry.backoff(initial_seconds=0.001):
            with attempt:
                began.clear()
                await loses_cancellations()

    task = asyncio.create_task(work())
    await began.wait()
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=5)
    assert done
    with pytest.raises(asyncio.CancelledError):
        task.result()


async def test_a_limit_around_it_ends_it() -> None:
    async def work() -> None:
        async for attempt in retry.backoff(initial_seconds=0.001, longest_seconds=0.01):
            with attempt:
                raise TransientError("never")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await work()
