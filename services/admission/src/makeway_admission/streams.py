"""Long answers: a bounded number, each ending when its reader is gone or too slow, its token ends, or we stop."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Final

import structlog
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from makeway_admission.errors import ProblemCode, Refused, refused

_LOG: Final = structlog.get_logger(__name__)

SEND_TIMEOUT_SECONDS: Final = 60.0
"""A reader that takes nothing for this long is let go; it can come back with its cursor."""
KEEP_ALIVE_SECONDS: Final = 15.0
_LAST_WORD_SECONDS: Final = 1.0

UntilRefused = Callable[[str | None], Awaitable[Refused]]
"""Takes an Authorization header and returns once its token is no longer good."""

EVENT_STREAM: Final = "text/event-stream"


class StreamSlots:
    """Counts the open streams."""

    def __init__(self, most: int) -> None:
        """`most` streams may be open at once."""
        self._most = most
        self.open = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """A slot for as long as the stream is open. Raises Refused (429) when there is none."""
        if self.open >= self._most:
            raise refused(ProblemCode.TOO_MANY_STREAMS, f"{self._most} streams are open", headers={"Retry-After": "5"})
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1


class StreamResponse(Response):
    """Sends what an iterator gives as it comes. Nothing is read ahead of what the client has taken.

    It ends with the token that it was asked for with. Events say so in a comment, which every reader of events skips;
    other bytes are cut without their last chunk, so that nobody takes them for whole. Whoever comes back gets 401.
    """

    def __init__(
        self,
        parts: AsyncGenerator[bytes, None],
        slots: StreamSlots,
        until_refused: UntilRefused,
        *,
        media_type: str,
    ) -> None:
        """Takes a slot when it starts to send."""
        super().__init__(media_type=media_type, headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._parts = parts
        self._slots = slots
        self._until_refused = until_refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call. Ends quietly when the client goes."""
        gone = asyncio.ensure_future(_disconnected(receive))
        sending = asyncio.ensure_future(self._send_all(send))
        ended = asyncio.ensure_future(self._until_refused(Headers(scope=scope).get("authorization")))
        tasks = (gone, sending, ended)
        refusal = None
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
            elif not gone.done():
                refusal = ended.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if refusal is not None:
            await self._say_why(send, str(refusal))

    async def _send_all(self, send: Send) -> None:
        with self._slots.one():
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            try:
                async with aclosing(self._parts) as parts:
                    async for part in parts:
                        await _send_within_limit(send, {"type": "http.response.body", "body": part, "more_body": True})
                await _send_within_limit(send, {"type": "http.response.body", "body": b"", "more_body": False})
            except TimeoutError:
                # The connection is closed without the last chunk, so that the client knows that more was to come.
                return

    async def _say_why(self, send: Send, reason: str) -> None:
        _LOG.info("a stream ends with its token", reason=reason)
        if self.media_type != EVENT_STREAM:
            return
        try:
            async with asyncio.timeout(_LAST_WORD_SECONDS):
                await send({"type": "http.response.body", "body": f": {reason}\n\n".encode(), "more_body": False})
        except TimeoutError:
            # The reader takes nothing; it is told when it comes back.
            return


async def _send_within_limit(send: Send, message: Message) -> None:
    async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
        await send(message)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class KeepAlive:
    """Says now and then that the stream is alive, so that no proxy cuts it and a reader that is gone is noticed."""

    TEXT: Final = b": still here\n\n"

    def __init__(self) -> None:
        """Counts from now."""
        self._last_at = time.monotonic()

    def is_due(self, *, sent: bool) -> bool:
        """Whether nothing was sent for a while; `sent` says that something was just now."""
        now = time.monotonic()
        due = not sent and now - self._last_at >= KEEP_ALIVE_SECONDS
        if sent or due:
            self._last_at = now
        return due


def server_sent(event: str, data: object, *, event_id: str | None = None) -> bytes:
    """One server-sent event; `data` is a JSON text already, or a value to be made one."""
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    head = f"id: {event_id}\n" if event_id is not None else ""
    return f"{head}event: {event}\ndata: {text}\n\n".encode()
