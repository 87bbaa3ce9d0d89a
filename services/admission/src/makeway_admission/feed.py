"""Wakes the readers of streams when something happened to a job.

`job.events` is read only while somebody listens, from its end, and only for its keys: what happened is read from the
database by each reader's own cursor, so a slow reader holds nothing here and a lost message costs a second, no event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import structlog
from makeway_runtime.kafka.delivery import Delivery
from makeway_runtime.kafka.loop import HotLoop, LoopOptions, partitions_of
from makeway_runtime.kafka.messages import Incoming, Poison
from makeway_runtime.settings import ServiceSettings
from makeway_schemas.topics import JOB_EVENTS

_LOG: Final = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 1.0
"""How often a reader looks by itself, in case the message that should have woken it was lost."""
_LOOK_WHILE_STARTING_SECONDS: Final = 0.1
_LINGER_SECONDS: Final = 30.0


class Subscription:
    """One reader's bell. `moved` says that the job's state may have changed, not only its log."""

    def __init__(self, feed: Feed) -> None:
        """Rings once at the start, so that the first look is immediate."""
        self._feed = feed
        self.bell = asyncio.Event()
        self.moved = True

    async def wait(self) -> None:
        """Returns when something happened, or it is time to look."""
        try:
            async with asyncio.timeout(self._feed.look_seconds):
                await self.bell.wait()
        except TimeoutError:
            self.moved = True
        self.bell.clear()

    @property
    def closing(self) -> bool:
        """True when the service stops and streams should end."""
        return self._feed.closing


class Feed:
    """Readers by job, and the consumer that serves them while there are any."""

    def __init__(self, settings: ServiceSettings) -> None:
        """Reads nothing before the first subscription."""
        self._settings = settings
        self._of_job: dict[str, set[Subscription]] = {}
        self._of_all: set[Subscription] = set()
        self._wanted = asyncio.Event()
        self._loop: HotLoop | None = None
        self.closing = False

    @property
    def look_seconds(self) -> float:
        """How long a reader waits before it looks by itself: short until the consumer knows where it starts."""
        started = self._loop is not None and self._loop.started.is_set()
        return LOOK_SECONDS if started else _LOOK_WHILE_STARTING_SECONDS

    @contextmanager
    def subscribe(self, job_id: str | None) -> Iterator[Subscription]:
        """A bell for one job, or for all."""
        subscription = Subscription(self)
        readers = self._of_all if job_id is None else self._of_job.setdefault(job_id, set())
        readers.add(subscription)
        self._wanted.set()
        try:
            yield subscription
        finally:
            readers.discard(subscription)
            if job_id is not None and not readers:
                self._of_job.pop(job_id, None)

    async def run(self) -> None:
        """Serves until cancelled."""
        while True:
            await self._wanted.wait()
            delivery = Delivery(handler=self._ring, on_poison=_ignore)
            options = LoopOptions(topic=JOB_EVENTS, partitions=partitions_of(JOB_EVENTS), start="end")
            self._loop = HotLoop(self._settings, options, delivery, client="admission-feed")
            reading = asyncio.create_task(self._loop.run())
            try:
                await self._until_unwanted()
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                self._loop = None

    async def _until_unwanted(self) -> None:
        """Returns once nobody has listened for a while."""
        while self._wanted.is_set():
            self._wanted.clear()
            await asyncio.sleep(_LINGER_SECONDS)
            if self._of_job or self._of_all:
                self._wanted.set()

    def close(self) -> None:
        """Tells every reader that its stream should end."""
        self.closing = True
        for readers in (self._of_all, *self._of_job.values()):
            for subscription in readers:
                subscription.bell.set()

    async def _ring(self, messages: Sequence[Incoming]) -> None:
        for job_id in {(message.key or b"").decode(errors="replace") for message in messages}:
            for subscription in self._of_job.get(job_id, ()):
                subscription.moved = True
                subscription.bell.set()
        for subscription in self._of_all:
            subscription.moved = True
            subscription.bell.set()


async def _ignore(poison: Poison) -> None:
    # Only keys matter here. Whoever writes the topic answers for what is in it.
    _LOG.warning("a message of job.events has no readable headers", offset=poison.offset, reason=poison.reason)
