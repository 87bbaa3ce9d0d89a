"""Admitting jobs: all that wait while a transaction runs go into the next one, each decided by itself.

Idle, a submit is written at once; under load a commit carries tens of jobs. One connection writes, so commits and the
facts handed to the outbox have one order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import asyncpg
import structlog
from asyncpg.pool import Pool
from makeway_runtime import retry
from makeway_runtime.errors import TransientError
from makeway_runtime.postgres.outbox import Outbox
from makeway_runtime.postgres.pool import Connection
from makeway_runtime.postgres.transient import is_transient

from makeway_admission import admitting
from makeway_admission.facts import fact_row
from makeway_admission.settings import AdmissionSettings

_LOG: Final = structlog.get_logger(__name__)

_MOST_JOBS: Final = 64
_MOST_WAITING: Final = 2_000
_RETRY_SECONDS: Final = 3.0
_KEEP_CONNECTION_SECONDS: Final = 5.0


class Outcome(StrEnum):
    """What became of a request to admit a job."""

    ADMITTED = "admitted"
    REPEATED = "repeated"
    KEY_REUSED = "key_reused"
    UNKNOWN_TEAM = "unknown_team"
    QUEUE_FULL = "queue_full"
    TEAM_LIMIT = "team_limit"
    USER_LIMIT = "user_limit"
    HARD_GROUPS_ALLOWANCE = "hard_groups_allowance"
    CLASS_LIMIT = "class_limit"
    CLASS_ALLOWANCE = "class_allowance"
    NOT_PREEMPTIBLE_ALLOWANCE = "not_preemptible_allowance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the transaction said. `bound` is the limit that was met, in GPUs or jobs."""

    outcome: Outcome
    job_id: str
    name: str
    bound: int | None = None


@dataclass(slots=True)
class _Waiting:
    request: admitting.JobRequest
    answer: asyncio.Future[Answer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Intake:
    """Takes requests and answers each once its transaction has committed. `run()` must run."""

    def __init__(self, settings: AdmissionSettings, pool: Pool[asyncpg.Record], outbox: Outbox) -> None:
        """Nothing is written before `run`."""
        self._settings = settings
        self._pool = pool
        self._outbox = outbox
        self._queue: deque[_Waiting] = deque()
        self._wake = asyncio.Event()

    async def admit(self, request: admitting.JobRequest) -> Answer:
        """The committed answer. Raises TransientError when it cannot be written now, or nobody knows whether it was."""
        if len(self._queue) >= _MOST_WAITING:
            raise TransientError("more submits are waiting than can be written")
        waiting = _Waiting(request)
        self._queue.append(waiting)
        self._wake.set()
        return await waiting.answer

    async def run(self) -> None:
        """Writes until cancelled; whoever waits then is told to try again."""
        try:
            while True:
                await self._wake.wait()
                await self._write_while_busy()
        finally:
            for waiting in self._queue:
                _fail(waiting, TransientError("admission is stopping"))
            self._queue.clear()

    async def _write_while_busy(self) -> None:
        """Keeps one connection for as long as submits follow each other and it works."""
        try:
            async with self._pool.acquire(timeout=self._settings.postgres_acquire_timeout_seconds) as connection:
                works = True
                while works and await self._something_waits():
                    self._wake.clear()
                    while works and self._queue:
                        batch = [self._queue.popleft() for _ in range(min(len(self._queue), _MOST_JOBS))]
                        works = await self._write(connection, batch)
        except Exception as error:
            if not is_transient(error):
                raise
            _LOG.warning("submits cannot be written", error=repr(error))
            while self._queue:
                _fail(self._queue.popleft(), TransientError("the database is out of reach"))
        if self._queue:
            self._wake.set()

    async def _something_waits(self) -> bool:
        try:
            async with asyncio.timeout(_KEEP_CONNECTION_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    async def _write(self, connection: Connection, batch: Sequence[_Waiting]) -> bool:
        """Answers every request of the batch: one that fails is tried one by one. False: the connection may be gone."""
        open_requests = [waiting for waiting in batch if not waiting.answer.done()]
        try:
            await self._write_once(connection, open_requests)
        except Exception as error:  # noqa: BLE001 - whatever it was, each request gets an answer
            _LOG.warning("admitting failed, trying again", jobs=len(open_requests), error=repr(error))
            for waiting in open_requests:
                await self._write_alone(waiting)
            return False
        return True

    async def _write_alone(self, waiting: _Waiting) -> None:
        # A lost answer may hide a commit. The same job id, or the same key, makes the repetition harmless.
        try:
            async for attempt in retry.backoff(within_seconds=_RETRY_SECONDS, retry_on=is_transient):
                with attempt:
                    async with self._pool.acquire(timeout=1.0) as connection:
                        await self._write_once(connection, [waiting])
        except Exception as error:  # noqa: BLE001 - it is the requester's to hear
            _fail(waiting, error)

    async def _write_once(self, connection: Connection, batch: Sequence[_Waiting]) -> None:
        published = self._outbox.acknowledged_ids()
        written = await admitting.admit_jobs(
            connection, self._settings.pool, published, [each.request for each in batch]
        )
        self._outbox.deleted(published)
        self._outbox.committed(
            [fact_row(row.outbox_id, self._settings.pool, row.fact) for row in written if row.outbox_id is not None]
        )
        for waiting, row in zip(batch, written, strict=True):
            if not waiting.answer.done():
                waiting.answer.set_result(
                    Answer(outcome=Outcome(row.outcome), job_id=row.job_id, name=row.name, bound=row.bound)
                )


def _fail(waiting: _Waiting, error: Exception) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)
