"""The outbox: rows written in the same transaction as the state they speak of, published after the commit.

1. Each process hands the rows of a transaction to `Outbox.committed` right after its commit, in commit order; they are
   published at once, all that wait in one go. This is the fast way.
2. Acknowledged rows are deleted in the next transaction of the service (`acknowledged_ids`, `deleted`), or by the
   sweeper when the service is idle.
3. One sweeper for all processes (by advisory lock) publishes every second what is older than a second: rows of a
   process that died between its commit and its publish, or whose commit's answer was lost.

There is no cursor: a row is pending for as long as it is there. A reader that remembers the highest id it saw never
sees a lower id that commits later. A row may be published twice; receivers are idempotent by state.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import asyncpg
import structlog
from asyncpg.pool import Pool
from opentelemetry.trace import SpanKind

from makeway_runtime import metrics, retry, tracing
from makeway_runtime.errors import CommitUncertain, PublishUncertain
from makeway_runtime.kafka.messages import Outgoing
from makeway_runtime.kafka.publisher import Publisher
from makeway_runtime.postgres.pool import Connection, DedicatedConnection, transaction
from makeway_runtime.postgres.transient import is_transient
from makeway_runtime.settings import DatabaseServiceSettings

_LOG: Final = structlog.get_logger(__name__)

SWEEP_SECONDS: Final = 1.0
MIN_AGE_SECONDS: Final = 1.0
SWEEP_ROWS: Final = 500
MAX_QUEUED_ROWS: Final = 5_000
LOCK_RETRY_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """A committed row. `headers` are those of the message but for the trace, which `traceparent` carries."""

    id: int
    topic: str
    key: bytes | None
    value: bytes
    headers: Mapping[str, str]
    partition: int | None = None
    traceparent: str | None = None


FetchOlderThan = Callable[[Connection, float, int], Awaitable[Sequence[OutboxRow]]]
"""(connection, age in seconds, limit) to the oldest rows of at least that age, by id."""
Delete = Callable[[Connection, Sequence[int]], Awaitable[Any]]
"""(connection, ids): deletes those rows; ids that are gone already are fine."""


def one_message_a_row(rows: Sequence[OutboxRow]) -> Sequence[Outgoing]:
    """Returns a message for each row, with the row's trace carried on."""
    return [_message(row) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxStore:
    """The service's own statements on its own table. `shard` names the rows that one sweeper looks after.

    `compose` makes messages of all rows that wait, in their order: a service may put many rows into one message.
    """

    shard: str
    fetch_older_than: FetchOlderThan
    delete: Delete
    compose: Callable[[Sequence[OutboxRow]], Sequence[Outgoing]] = one_message_a_row


class Outbox:
    """Publishes the rows of one service's outbox. Run `run()` as a task for as long as the service lives."""

    def __init__(
        self,
        settings: DatabaseServiceSettings,
        pool: Pool[asyncpg.Record],
        publisher: Publisher,
        store: OutboxStore,
    ) -> None:
        """Nothing happens before `run`, except that `committed` keeps rows."""
        self._settings = settings
        self._pool = pool
        self._publisher = publisher
        self._store = store
        self._queue: deque[OutboxRow] = deque()
        self._acknowledged: dict[int, None] = {}
        self._wake = asyncio.Event()
        # The sweeper and the fast way take turns, so that neither overtakes the other within one process.
        self._publishing = asyncio.Lock()
        self._overflowed = False

    def committed(self, rows: Sequence[OutboxRow]) -> None:
        """Takes the rows of a transaction that was committed; call it in commit order, never before the commit."""
        if self._overflowed or len(self._queue) + len(rows) > MAX_QUEUED_ROWS:
            # The broker is away for long. The rows are safe in the table; the sweeper brings them in order.
            self._overflowed = True
            return
        self._queue.extend(rows)
        metrics.OUTBOX_PENDING.set(len(self._queue))
        self._wake.set()

    def acknowledged_ids(self) -> tuple[int, ...]:
        """Ids that are published: delete them in the next transaction, then tell `deleted` after its commit."""
        return tuple(self._acknowledged)

    def deleted(self, ids: Sequence[int]) -> None:
        """Forgets ids whose deletion was committed."""
        for row_id in ids:
            self._acknowledged.pop(row_id, None)

    async def run(self) -> None:
        """Publishes and sweeps until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publish_own())
            group.create_task(self._sweep_for_ever())

    async def flush(self) -> None:
        """Returns when all that `committed` was given is acknowledged. Give it a limit: the broker may be away."""
        while self._queue:
            await self._publish_queued()

    async def _publish_own(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                # The first try costs nothing extra: under load there are hundreds a second.
                await self._publish_queued()
            except PublishUncertain:
                async for attempt in retry.backoff(longest_seconds=2.0):
                    with attempt:
                        await self._publish_queued()

    async def _publish_queued(self) -> None:
        async with self._publishing:
            rows = list(self._queue)
            if not rows:
                return
            await self._publish(rows)
            for _ in rows:
                self._queue.popleft()
            metrics.OUTBOX_PENDING.set(len(self._queue))

    async def _publish(self, rows: Sequence[OutboxRow]) -> None:
        await self._publisher.publish(self._store.compose(rows))
        self._acknowledged.update(dict.fromkeys(row.id for row in rows))

    async def _sweep_for_ever(self) -> None:
        while True:
            async for attempt in retry.backoff(initial_seconds=0.5, retry_on=_may_pass):
                with attempt:
                    await self._sweep_while_owner()

    async def _sweep_while_owner(self) -> None:
        lost = asyncio.Event()
        owner = await DedicatedConnection.open(self._settings, service="outbox-sweeper", on_lost=lost.set)
        try:
            while not await owner.try_lock(f"outbox/{self._store.shard}"):
                await self._delete_acknowledged()
                if not self._queue:
                    self._overflowed = False  # what was too much is the sweeper's; what comes now need not wait for it
                await asyncio.sleep(LOCK_RETRY_SECONDS)
            while not lost.is_set():
                swept = await self._sweep(owner.connection)
                if swept < SWEEP_ROWS:
                    self._overflowed = False
                    await asyncio.sleep(SWEEP_SECONDS)
        finally:
            await owner.close()

    async def _sweep(self, connection: Connection) -> int:
        """Publishes and deletes what is old. Returns how many rows were found."""
        await self._delete_acknowledged()
        async with self._publishing:
            found = await self._store.fetch_older_than(connection, MIN_AGE_SECONDS, SWEEP_ROWS)
            queued = {row.id for row in self._queue}
            rows = [row for row in found if row.id not in queued and row.id not in self._acknowledged]
            if rows:
                _LOG.info("publishing rows that nobody had published", rows=len(rows), shard=self._store.shard)
                await self._publish(rows)
        if rows:
            await self._delete_acknowledged()
        return len(rows)

    async def _delete_acknowledged(self) -> None:
        ids = self.acknowledged_ids()
        if not ids:
            return
        async with transaction(
            self._pool, acquire_timeout_seconds=self._settings.postgres_acquire_timeout_seconds
        ) as connection:
            await self._store.delete(connection, ids)
        self.deleted(ids)


def _may_pass(error: BaseException) -> bool:
    # Deleting twice is harmless, so an uncertain commit may simply be repeated here.
    return is_transient(error) or isinstance(error, (CommitUncertain, PublishUncertain))


def _message(row: OutboxRow) -> Outgoing:
    """Makes the row's trace current for the publishing span, so that whoever receives it hangs below its writer."""
    headers = [(name, value.encode()) for name, value in row.headers.items()]
    with tracing.span(f"publish {row.topic}", kind=SpanKind.PRODUCER, traceparent=row.traceparent):
        # Without an exporter there is no span of our own; the row's context travels on as it is.
        traceparent = tracing.current_traceparent() or row.traceparent
    if traceparent is not None:
        headers.append(("traceparent", traceparent.encode()))
    return Outgoing(topic=row.topic, key=row.key, value=row.value, headers=tuple(headers), partition=row.partition)
