"""The collector, wired: `gpu.samples` in; Prometheus, `gpu_readings` and `samples` out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import asyncpg
import structlog
from asyncpg.pool import Pool
from makeway_runtime import metrics, retry
from makeway_runtime.health import Check, reader_check, stuck_check
from makeway_runtime.kafka.dead_letters import DeadLetters
from makeway_runtime.kafka.delivery import Delivery
from makeway_runtime.kafka.publisher import Publisher
from makeway_runtime.kafka.stream import RETRY_WITHIN_SECONDS, StreamOptions, StreamReader, faststream_broker
from makeway_runtime.postgres.pool import open_pool, ping
from makeway_runtime.postgres.transient import is_transient
from makeway_runtime.service import run
from makeway_schemas.topics import DEAD_LETTERS, GPU_SAMPLES

from makeway_telemetry.collector.handlers import SamplesHandler
from makeway_telemetry.collector.page import View, ViewCollector
from makeway_telemetry.collector.readings import NewestReadings
from makeway_telemetry.collector.settings import CollectorSettings
from makeway_telemetry.collector.store import Store

_LOG: Final = structlog.get_logger(__name__)

FORGET_SECONDS: Final = 600.0
FORGET_READINGS: Final = timedelta(days=7)
PAGE_TIMEOUT_SECONDS: Final = 2.0
STALLED_SECONDS: Final = 120.0


class Collector:
    """A `Service`."""

    def __init__(self, settings: CollectorSettings) -> None:
        """Opens nothing yet."""
        self._settings = settings
        self._newest = NewestReadings()
        self._page = ViewCollector(dcgm_names=settings.dcgm_names)
        self._publisher = Publisher(settings, client="collector", topics=(GPU_SAMPLES, DEAD_LETTERS))
        self._broker = faststream_broker(settings, client="collector")
        self._pool: Pool[asyncpg.Record] | None = None
        self._store: Store | None = None
        self._reader: StreamReader | None = None

    async def start(self) -> None:
        """Opens database and broker; fails when either is away, to be started again."""
        self._pool = await open_pool(self._settings, service="collector")
        self._store = Store(self._pool)
        await self._publisher.start()
        delivery = Delivery(
            handler=SamplesHandler(self._newest, self._store),
            on_poison=DeadLetters(self._publisher, topic=DEAD_LETTERS.name, source="makeway/collector"),
            is_transient=is_transient,
            within_seconds=RETRY_WITHIN_SECONDS,
        )
        options = StreamOptions(
            topic=GPU_SAMPLES.name, group=self._settings.group, batch_timeout_ms=self._settings.batch_timeout_ms
        )
        self._reader = StreamReader(self._broker, options, delivery)
        await self._broker.start()
        metrics.REGISTRY.register(self._page)
        metrics.refresh_before_page(self.refresh)

    async def run(self) -> None:
        """Forgets what is too old, now and then, until cancelled; the reader works by itself."""
        store = self._opened_store()
        while True:
            now = datetime.now(UTC)
            async for attempt in retry.backoff(initial_seconds=1.0, longest_seconds=60.0, retry_on=is_transient):
                with attempt:
                    await store.forget(
                        samples_before=now - timedelta(hours=self._settings.history_hours),
                        readings_before=now - FORGET_READINGS,
                    )
            await asyncio.sleep(FORGET_SECONDS)

    async def stop(self) -> None:
        """Finishes the batch at hand and lets broker and database go."""
        await self._broker.stop()
        await self._publisher.stop()
        if self._pool is not None:
            await self._pool.close()

    def checks(self) -> Sequence[Check]:
        """Readers, and the database."""
        pool, reader = self._pool, self._reader
        if pool is None or reader is None:
            raise RuntimeError("checks needs start first")

        async def database() -> str | None:
            await ping(pool)
            return None

        return (
            reader_check(GPU_SAMPLES.name, reader),
            reader_check(f"{GPU_SAMPLES.name} stalled", reader, max_age_seconds=STALLED_SECONDS, vital=True),
            stuck_check(f"{GPU_SAMPLES.name} handler", lambda: reader.busy_since),
            Check(name="database", probe=database),
        )

    async def refresh(self) -> None:
        """Sets the page's view. Raises nothing: without the database the page shows the readings and says so."""
        store = self._opened_store()
        readings = self._newest.fresh(datetime.now(UTC), stale_seconds=self._settings.stale_seconds)
        try:
            async with asyncio.timeout(PAGE_TIMEOUT_SECONDS):
                capacity, leases = await store.capacity(), await store.leases()
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            _LOG.warning("the metrics page lacks what the database knows", error=repr(error))
            self._page.view = View(readings=readings, database_up=False)
        else:
            self._page.view = View(readings=readings, capacity=capacity, leases=leases)

    def _opened_store(self) -> Store:
        if self._store is None:
            raise RuntimeError("the collector is not started")
        return self._store


def main() -> int:
    """Runs the collector. Returns the exit code."""
    return run(Collector, CollectorSettings.model_validate({}), name="collector")
