"""The composition root of the scheduler."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import asyncpg
from asyncpg.pool import Pool
from makeway_runtime.errors import TransientError
from makeway_runtime.health import Check, stuck_check
from makeway_runtime.kafka.publisher import Publisher
from makeway_runtime.postgres.pool import open_pool
from makeway_schemas.topics import DEAD_LETTERS, JOB_EVENTS, NODE_PLANS

from makeway_scheduler.owner import Owner
from makeway_scheduler.policies import first_policy
from makeway_scheduler.settings import SchedulerSettings
from makeway_scheduler.store import Store

_DEAF_SECONDS: Final = 15.0


class Scheduler:
    """The service: stands by for its pool, and runs it while it owns it."""

    def __init__(self, settings: SchedulerSettings) -> None:
        """Opens nothing yet."""
        self._settings = settings
        self._publisher = Publisher(settings, client="scheduler", topics=(NODE_PLANS, JOB_EVENTS, DEAD_LETTERS))
        self._pool: Pool[asyncpg.Record] | None = None
        self._owner: Owner | None = None

    async def start(self) -> None:
        """Open the database. The broker may be away: it is waited for while working."""
        self._pool = await open_pool(self._settings, service="scheduler")
        store = Store(self._pool, self._settings.pool)
        self._owner = Owner(self._settings, store, self._publisher, first_policy(self._settings.policy_file))

    async def run(self) -> None:
        """Work until cancelled."""
        if self._owner is None:
            raise TransientError("not started")
        await self._owner.run()

    async def stop(self) -> None:
        """Close what is open."""
        await self._publisher.stop()
        if self._pool is not None:
            self._pool.terminate()

    def checks(self) -> Sequence[Check]:
        """Standing by is healthy; owning is when a cycle ends and the broker answers."""
        return (
            stuck_check("cycle", self._busy_since, max_seconds=30.0),
            Check(name="broker", probe=self._broker),
            Check(name="database", probe=self._database),
        )

    def _busy_since(self) -> float | None:
        cycle = self._owner.cycle if self._owner is not None else None
        return cycle.busy_since if cycle is not None else None

    async def _broker(self) -> str | None:
        owner = self._owner
        if owner is None or owner.loop is None:
            return None
        last = owner.loop.last_poll_at
        if last is None:
            return "the inbox is not read yet"
        age_seconds = time.monotonic() - last
        return None if age_seconds < _DEAF_SECONDS else f"no answer from the broker for {age_seconds:.0f} s"

    async def _database(self) -> str | None:
        if self._pool is None:
            return "not connected"
        return None if self._pool.get_size() > 0 else "no connection"
