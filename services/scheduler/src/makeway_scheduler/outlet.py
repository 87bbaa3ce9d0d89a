"""Plans and events on their way to Kafka: all there is goes out whenever the last sending is acknowledged.

Of several plans of a node that wait, only the newest is sent. A plan that is lost is asked for by the node's next
report; an event that is lost is found by the sweeper, because its row is not marked as published.
"""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import structlog
from makeway_runtime.cloudevents import EventHeaders, to_headers
from makeway_runtime.errors import PublishUncertain
from makeway_runtime.kafka.messages import Outgoing
from makeway_runtime.kafka.publisher import Publisher
from makeway_schemas.events import EVENT_TYPE, JobEvent
from makeway_schemas.plans import PLAN_TYPE
from makeway_schemas.states import JobState
from makeway_schemas.topics import JOB_EVENTS, NODE_PLANS

from makeway_scheduler.records import Event

_LOG: Final = structlog.get_logger(__name__)
_PAUSE_SECONDS: Final = 0.5
_MOST_EVENTS: Final = 5_000


class Outlet:
    """Sends plans and events in the order of their commits. Run ``run()`` as a task."""

    def __init__(self, publisher: Publisher, *, pool: str) -> None:
        """``pool`` names the source of the messages."""
        self._publisher = publisher
        self._source = f"makeway/scheduler/{pool}"
        self._plans: dict[str, tuple[str, bytes]] = {}
        self._events: dict[int, Outgoing] = {}
        self._published: dict[int, None] = {}
        self._wake = asyncio.Event()

    def put_plan(self, node_id: str, plan_id: str, body: bytes) -> None:
        """A node's newest plan; call it after the commit."""
        self._plans[node_id] = (plan_id, body)
        self._wake.set()

    def put_events(self, events: Iterable[tuple[int, Event]]) -> None:
        """Events with their ids; call it after the commit. Beyond a limit they are left to the sweeper."""
        for event_id, event in events:
            if len(self._events) < _MOST_EVENTS:
                self._events[event_id] = self._event_message(event_id, event)
        self._wake.set()

    def published(self) -> tuple[int, ...]:
        """Ids of events that the broker has acknowledged and that no commit has marked yet."""
        return tuple(self._published)

    def marked(self, event_ids: Iterable[int]) -> None:
        """A commit has marked these as published."""
        for event_id in event_ids:
            self._published.pop(event_id, None)

    def waiting(self, event_id: int) -> bool:
        """Whether an event is on its way already."""
        return event_id in self._events or event_id in self._published

    def clear(self) -> None:
        """Forget everything: the pool has another owner."""
        self._plans.clear()
        self._events.clear()
        self._published.clear()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._send()

    async def _send(self) -> None:
        plans = dict(self._plans)
        events = dict(self._events)
        messages = [self._plan_message(node_id, *plan) for node_id, plan in plans.items()]
        try:
            await self._publisher.publish([*messages, *events.values()])
        except PublishUncertain as error:
            _LOG.warning("plans and events were not acknowledged, trying again", error=str(error))
            await asyncio.sleep(_PAUSE_SECONDS)
            self._wake.set()
            return
        for node_id, plan in plans.items():
            if self._plans.get(node_id) == plan:
                del self._plans[node_id]
        for event_id in events:
            if self._events.pop(event_id, None) is not None:
                self._published[event_id] = None

    def _plan_message(self, node_id: str, plan_id: str, body: bytes) -> Outgoing:
        return Outgoing(
            topic=NODE_PLANS.name,
            key=node_id.encode(),
            value=body,
            partition=NODE_PLANS.partition_of(node_id),
            headers=self._headers(plan_id, PLAN_TYPE, subject=node_id),
        )

    def _event_message(self, event_id: int, event: Event) -> Outgoing:
        body = JobEvent(
            id=f"{self._source}/event/{event_id}",
            correlation_id=event.job_id,
            causation_id=event.causation_id,
            traceparent=event.traceparent,
            sequence=event_id,
            job_id=event.job_id,
            at=datetime.fromtimestamp(event.at, UTC),
            kind=event.kind,
            state=JobState(event.state),
            run=event.run_number,
            data=dict(event.data),
        )
        return Outgoing(
            topic=JOB_EVENTS.name,
            key=event.job_id.encode(),
            value=body.model_dump_json(exclude_none=True).encode(),
            partition=JOB_EVENTS.partition_of(event.job_id),
            headers=self._headers(body.id, EVENT_TYPE, subject=event.job_id, traceparent=event.traceparent),
        )

    def _headers(
        self, event_id: str, event_type: str, *, subject: str, traceparent: str | None = None
    ) -> tuple[tuple[str, bytes], ...]:
        return to_headers(
            EventHeaders(
                id=event_id,
                type=event_type,
                source=self._source,
                time=datetime.now(UTC),
                subject=subject,
                traceparent=traceparent,
            )
        )
