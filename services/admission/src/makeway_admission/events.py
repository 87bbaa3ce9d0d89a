"""The history of jobs as server-sent events, from any point, then live."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query
from makeway_schemas.states import TERMINAL
from starlette.responses import Response

from makeway_admission.access import Principal
from makeway_admission.answers import PROBLEMS, Responses
from makeway_admission.doors import Doors, ServiceDoors, Viewer, visible_job
from makeway_admission.jobs import cursor_of
from makeway_admission.reads import Record
from makeway_admission.streams import EVENT_STREAM, KeepAlive, StreamResponse, server_sent
from makeway_admission.views import event_view

router: Final = APIRouter(tags=["events"], responses=PROBLEMS)

_PAGE: Final = 200
_STREAM: Final[Responses] = {
    200: {"content": {EVENT_STREAM: {}}, "description": "One `EventView` an event; `id` is the cursor."}
}

Cursor = Annotated[str | None, Query(description="Begin after this event; Last-Event-ID counts more.")]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID")]
Follow = Annotated[bool, Query(description="false: end after what is there now.")]


@router.get("/v1/jobs/{job_id}/events", response_class=Response, responses=_STREAM)
async def job_events(
    doors: ServiceDoors,
    principal: Viewer,
    job_id: str,
    cursor: Cursor = None,
    last_event_id: LastEventId = None,
    follow: Follow = True,
) -> Response:
    """A job's events. Ends after the terminal one; a client that comes back after it gets 204 and is to stop."""
    head = await visible_job(doors, principal, job_id)
    after = cursor_of(last_event_id or cursor)
    if after is not None and head["ended_at"] is not None and not await doors.store.events_of_job(job_id, after, 1):
        return Response(status_code=204)
    parts = _job_stream(doors, job_id, after or 0, follow=follow)
    return StreamResponse(parts, doors.streams, doors.access.until_refused, media_type=EVENT_STREAM)


@router.get("/v1/events", response_class=Response, responses=_STREAM)
async def team_events(
    doors: ServiceDoors,
    principal: Viewer,
    cursor: Cursor = None,
    last_event_id: LastEventId = None,
    follow: Follow = True,
) -> Response:
    """The events of all jobs that the token sees; without a cursor those that are still to come."""
    after = cursor_of(last_event_id or cursor)
    if after is None:
        after = await doors.store.newest_event()
    parts = _team_stream(doors, principal, after, follow=follow)
    return StreamResponse(parts, doors.streams, doors.access.until_refused, media_type=EVENT_STREAM)


async def _job_stream(doors: Doors, job_id: str, after: int, *, follow: bool) -> AsyncGenerator[bytes, None]:
    ended = False
    keep_alive = KeepAlive()
    with doors.feed.subscribe(job_id) as subscription:
        while not subscription.closing:
            rows = await doors.store.events_of_job(job_id, after, _PAGE)
            for row in rows:
                yield _sent(row)
                after = row["event_id"]
                ended = ended or row["state"] in TERMINAL
            if len(rows) == _PAGE:
                continue
            if ended or not follow:
                return
            head = await doors.store.job_head(job_id)
            if head is None or head["ended_at"] is not None:
                # It ended between the two questions, or its terminal event is gone: one more look.
                ended = True
                continue
            await subscription.wait()
            if keep_alive.is_due(sent=bool(rows)):
                yield keep_alive.TEXT


async def _team_stream(doors: Doors, principal: Principal, after: int, *, follow: bool) -> AsyncGenerator[bytes, None]:
    keep_alive = KeepAlive()
    yield keep_alive.TEXT
    with doors.feed.subscribe(None) as subscription:
        while not subscription.closing:
            rows = await doors.store.events_of_team(principal.team, after, _PAGE)
            for row in rows:
                yield _sent(row)
                after = row["event_id"]
            if len(rows) == _PAGE:
                continue
            if not follow:
                return
            await subscription.wait()
            if keep_alive.is_due(sent=bool(rows)):
                yield keep_alive.TEXT


def _sent(row: Record) -> bytes:
    view = event_view(row)
    return server_sent(view.kind, view.model_dump_json(), event_id=str(view.sequence))
