"""Streams that go on where they were: server-sent events (HTML standard, section 9.2) with Last-Event-ID."""

import base64
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import httpx
from makeway_schemas.api import EventView

from makeway.client.transport import OUTAGE_ERRORS, Transport

IDLE_SECONDS: Final = 20.0
"""A stream that is silent for this long, without even a sign of life, is opened anew: a dead connection is silent."""
_REOPEN_SECONDS: Final = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSent:
    """One server-sent event; ``event_id`` is the cursor from which to go on after it."""

    event: str
    data: str
    event_id: str


def server_sent(lines: Iterator[str]) -> Iterator[ServerSent | None]:
    """The events in a stream's lines; None for a comment, which is the server's sign of life."""
    event, event_id, data = "message", "", list[str]()
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if line.startswith(":"):
            yield None
        elif name == "data":
            data.append(value)
        elif name == "event":
            event = value
        elif name == "id":
            event_id = value
        elif not line and data:
            yield ServerSent(event=event, data="\n".join(data), event_id=event_id)
            event, data = "message", []


class ResumingStream:
    """Server-sent events of one path, over outages, each once.

    Yields None after each silence, sign of life and lost connection, so that the reader can look at the state itself:
    an event that got lost delays nobody for long. ``deadline`` (monotonic seconds) shortens the silence, nothing else.
    Ends when the server says that nothing will come any more (204). With ``finite``, where the server ends a stream
    after what is there now, it ends after a whole connection that brought nothing: a server that is shutting down ends
    its streams too, and whoever asks again goes on where that one stopped.
    """

    def __init__(
        self,
        transport: Transport,
        path: str,
        *,
        params: Mapping[str, str],
        after: str,
        deadline: float | None = None,
        finite: bool = False,
    ) -> None:
        self._transport = transport
        self._path = path
        self._params = dict(params)
        self._last_id = after
        self._deadline = deadline
        self._finite = finite
        self._over = False

    def __iter__(self) -> Iterator[ServerSent | None]:
        while not self._over:
            try:
                yield from self._one_connection()
            except httpx.ReadTimeout:
                self._transport.outage.over()
            except OUTAGE_ERRORS as error:
                self._transport.outage.pause(error)
            else:
                time.sleep(0 if self._over else _REOPEN_SECONDS)
            yield None

    def _one_connection(self) -> Iterator[ServerSent | None]:
        headers = {"accept": "text/event-stream"} | ({"last-event-id": self._last_id} if self._last_id else {})
        left = IDLE_SECONDS if self._deadline is None else max(0.01, self._deadline - time.monotonic())
        idle_seconds = min(IDLE_SECONDS, left)
        with self._transport.stream(self._path, self._params, headers=headers, idle_seconds=idle_seconds) as response:
            self._transport.outage.over()
            before = self._last_id
            self._over = response.status_code == httpx.codes.NO_CONTENT
            for item in server_sent(response.iter_lines()):
                if item is not None and item.event_id:
                    self._last_id = item.event_id
                yield item
            self._over = self._over or (self._finite and self._last_id == before)


def job_events(
    transport: Transport, path: str, *, after: int = 0, deadline: float | None = None
) -> Iterator[EventView | None]:
    """A job's events as ``ResumingStream`` gives them."""
    cursor = str(after) if after else ""
    for item in ResumingStream(transport, path, params={}, after=cursor, deadline=deadline):
        yield None if item is None else EventView.model_validate_json(item.data)


def history(transport: Transport, path: str, *, after: int = 0) -> Iterator[EventView]:
    """The events of all jobs after a sequence number, up to now, each once, over outages."""
    params = {"follow": "false", "cursor": str(after)}
    for item in ResumingStream(transport, path, params=params, after="", finite=True):
        if item is not None:
            yield EventView.model_validate_json(item.data)


def log_pieces(
    transport: Transport,
    path: str,
    params: Mapping[str, str],
    *,
    complete: Callable[[], bool],
    deadline: float | None = None,
) -> Iterator[bytes]:
    """The pieces of a log, each byte once, until the server says it is the end and ``complete`` agrees.

    What no run wrote, such as bytes that were lost with their node, is said on stderr. Raises TimeoutError where the
    ``deadline`` (monotonic seconds) comes first.
    """
    for item in ResumingStream(transport, path, params=params, after="", deadline=deadline):
        if item is not None and item.event == "log":
            yield base64.b64decode(json.loads(item.data)["data"])
        elif item is not None and item.event == "note":
            sys.stderr.write(f"makeway: {json.loads(item.data)['message']}\n")
        elif item is not None and item.event == "end" and complete():
            return
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError
