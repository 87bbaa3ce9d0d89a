"""Facts on their way to the scheduler: in order, nothing dropped, all that there is whenever the last send is done.

Under load one message carries many facts, idle a single one goes at once. While the broker is away facts wait here with
the time they happened at, and their ages are filled in when they are sent. Only the newest report is ever waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol
from uuid import uuid4

import structlog
from makeway_runtime import retry
from makeway_runtime.cloudevents import EventHeaders, to_headers
from makeway_runtime.errors import TransientError
from makeway_runtime.kafka.messages import Outgoing
from makeway_schemas.facts import BATCH_TYPE, CheckpointAcked, Fact, FactBatch, NodeReport
from makeway_schemas.topics import SCHEDULER_INBOX

from makeway_executor import clock

_LOG: Final = structlog.get_logger(__name__)

MAX_FACTS: Final = 200


class Publishing(Protocol):
    """What an outlet needs of a publisher."""

    async def publish(self, messages: list[Outgoing]) -> None:
        """Returns when all are acknowledged; raises TransientError otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    fact: Fact
    at_ns: int


class Outlet:
    """One sender a node."""

    def __init__(
        self, publisher: Publishing, *, node_id: str, pool: str, build_report: Callable[[], NodeReport]
    ) -> None:
        """`build_report` is asked when a report is due, at the moment of sending."""
        self._publisher = publisher
        self._source = f"/nodes/{node_id}"
        self._pool = pool
        self._build_report = build_report
        self._waiting: list[_Waiting] = []
        self._report_due = False
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, fact: Fact, *, at_ns: int) -> None:
        """Takes a fact that happened at `at_ns` since boot."""
        self._waiting.append(_Waiting(fact=fact, at_ns=at_ns))
        self._wake()

    def ask_report(self) -> None:
        """Has a report sent after the facts that are waiting."""
        self._report_due = True
        self._wake()

    @property
    def waiting(self) -> int:
        """How many facts are not acknowledged yet."""
        return len(self._waiting)

    async def flushed(self) -> None:
        """Returns once everything is acknowledged."""
        await self._idle.wait()

    async def run(self) -> None:
        """Sends until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            async for attempt in retry.backoff(initial_seconds=0.1, longest_seconds=2.0, before_sleep=None):
                with attempt:
                    await self._send_all()
            self._idle.set()

    def _wake(self) -> None:
        self._idle.clear()
        self._wanted.set()

    async def _send_all(self) -> None:
        while self._waiting or self._report_due:
            sending = self._waiting[:MAX_FACTS]
            facts = [_aged(waiting) for waiting in sending]
            reporting = self._report_due and len(sending) == len(self._waiting)
            if reporting:
                self._report_due = False
                facts.append(self._build_report())
            try:
                await self._publisher.publish([self._message(facts)])
            except TransientError as error:
                self._report_due |= reporting
                _LOG.warning("facts wait for the broker", waiting=len(self._waiting), error=str(error))
                raise
            del self._waiting[: len(sending)]

    def _message(self, facts: list[Fact]) -> Outgoing:
        batch = FactBatch(source=self._source, facts=tuple(facts))
        headers = EventHeaders(
            id=uuid4().hex, type=BATCH_TYPE, source=self._source, time=datetime.now(UTC), subject=self._pool
        )
        return Outgoing(
            topic=SCHEDULER_INBOX.name,
            key=self._pool.encode(),
            value=batch.model_dump_json(exclude_none=True).encode(),
            headers=to_headers(headers),
            partition=SCHEDULER_INBOX.partition_of(self._pool),
        )


def _aged(waiting: _Waiting) -> Fact:
    age_seconds = clock.age_seconds(waiting.at_ns)
    if isinstance(waiting.fact, CheckpointAcked):
        ack = waiting.fact.ack.model_copy(update={"age_seconds": age_seconds})
        return waiting.fact.model_copy(update={"ack": ack})
    if "age_seconds" not in type(waiting.fact).model_fields:
        return waiting.fact
    return waiting.fact.model_copy(update={"age_seconds": age_seconds})
