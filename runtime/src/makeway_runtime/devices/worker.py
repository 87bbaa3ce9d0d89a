"""Calls that may block for ever, away from the event loop and with a time limit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, TypeVar

from makeway_runtime.devices.port import DevicesUnknown

ResultT = TypeVar("ResultT")

MAX_STUCK_THREADS: Final = 4


class BoundedWorker:
    """One daemon thread that makes calls in turn.

    A call that is over its limit keeps its thread, which cannot be ended; a new thread takes over. Not a thread pool of
    the standard library: those are joined when the interpreter ends, which a stuck driver would then prevent.
    """

    def __init__(self, *, limit_seconds: float) -> None:
        """`limit_seconds` is for each call that names none of its own, its waiting in turn included."""
        self._limit_seconds = limit_seconds
        self._jobs: SimpleQueue[Callable[[], None] | None] | None = None
        self._stuck = 0

    async def call(self, function: Callable[[], ResultT], *, limit_seconds: float | None = None) -> ResultT:
        """Returns what `function` returns, raises what it raises, or DevicesUnknown when it takes too long."""
        if self._stuck >= MAX_STUCK_THREADS:
            raise DevicesUnknown(f"{self._stuck} calls to the GPU driver never came back")
        if self._jobs is None:
            self._jobs = _start_thread()
        jobs, loop = self._jobs, asyncio.get_running_loop()
        limit = self._limit_seconds if limit_seconds is None else limit_seconds
        answer: asyncio.Future[ResultT] = loop.create_future()

        def job() -> None:
            try:
                result = function()
            except Exception as error:  # noqa: BLE001 - carried over to the caller
                _tell(loop, answer, error=error)
            else:
                _tell(loop, answer, result=result)

        jobs.put(job)
        try:
            async with asyncio.timeout(limit):
                return await answer
        except TimeoutError as error:
            if self._jobs is jobs:
                self._jobs = None
                self._stuck += 1
                # Should it ever come back, its thread ends.
                jobs.put(self._came_back)
                jobs.put(None)
            raise DevicesUnknown(f"the GPU driver did not answer within {limit:g} s") from error

    def close(self) -> None:
        """Lets the thread end after the calls at hand."""
        if self._jobs is not None:
            self._jobs.put(None)
            self._jobs = None

    def _came_back(self) -> None:
        self._stuck -= 1


def _start_thread() -> SimpleQueue[Callable[[], None] | None]:
    jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def work() -> None:
        while (job := jobs.get()) is not None:
            job()

    threading.Thread(target=work, name="gpu-driver", daemon=True).start()
    return jobs


def _tell(
    loop: asyncio.AbstractEventLoop,
    answer: asyncio.Future[ResultT],
    *,
    result: ResultT | None = None,
    error: Exception | None = None,
) -> None:
    def tell() -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]  # None only where ResultT is

    if not loop.is_closed():
        loop.call_soon_threadsafe(tell)
