"""Streams that go on where they were: events by their sequence (SSE's Last-Event-ID), logs by their byte offset."""

import time
from collections.abc import Iterator, Mapping
from typing import Final

import httpx
from makeway_schemas.api import EventView

from makeway.client.transport import OUTAGE_ERRORS, Transport

IDLE_SECONDS: Final = 20.0
"""A stream that is silent for this long is opened anew: a dead connection looks just like a quiet job."""
_REOPEN_SECONDS: Final = 0.2


class EventStream:
    """Events after ``after``, without end.

    None is yielded after each silence, sign of life and lost connection, so that the reader looks at the state itself:
    an event that got lost delays nobody for long. ``deadline`` (monotonic seconds) shortens the silence, nothing else.
    """

    def __init__(self, transport: Transport, path: str, *, after: int = 0, deadline: float | None = None) -> None:
        self._transport = transport
        self._path = path
        self._last_sequence = after
        self._deadline = deadline

    def __iter__(self) -> Iterator[EventView | None]:
        while True:
            try:
                yield from self._one_connection()
            except httpx.ReadTimeout:
                self._transport.outage.over()
            except OUTAGE_ERRORS as error:
                self._transport.outage.pause(error)
            else:
                time.sleep(_REOPEN_SECONDS)
            yield None

    def _one_connection(self) -> Iterator[EventView | None]:
        headers = {"accept": "text/event-stream", "last-event-id": str(self._last_sequence)}
        left = IDLE_SECONDS if self._deadline is None else max(0.01, self._deadline - time.monotonic())
        idle_seconds = min(IDLE_SECONDS, left)
        with self._transport.stream(self._path, params={}, idle_seconds=idle_seconds, headers=headers) as response:
            self._transport.outage.over()
            for data in sse_data(response.iter_lines()):
                if data is None:
                    yield None
                    continue
                event = EventView.model_validate_json(data)
                if event.sequence > self._last_sequence:
                    self._last_sequence = event.sequence
                    yield event


def sse_data(lines: Iterator[str]) -> Iterator[str | None]:
    """The data of each server-sent event (HTML standard, 9.2); None for a comment, the server's sign of life."""
    data: list[str] = []
    for line in lines:
        if line.startswith(":"):
            yield None
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            yield "\n".join(data)
            data = []


class LogStream:
    """Pieces of a log to its end, each byte once. A reconnection asks for the rest by ``offset``."""

    def __init__(self, transport: Transport, path: str, params: Mapping[str, str]) -> None:
        self._transport = transport
        self._path = path
        self._params = dict(params)
        self._offset = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            try:
                yield from self._one_connection()
            except httpx.ReadTimeout:
                self._transport.outage.over()
            except OUTAGE_ERRORS as error:
                self._transport.outage.pause(error)
            else:
                return

    def _one_connection(self) -> Iterator[bytes]:
        params = self._params | ({"offset": str(self._offset)} if self._offset else {})
        with self._transport.stream(self._path, params=params, idle_seconds=IDLE_SECONDS, headers={}) as response:
            self._transport.outage.over()
            for piece in response.iter_raw():
                self._offset += len(piece)
                yield piece
