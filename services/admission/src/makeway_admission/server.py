"""The HTTP server: uvicorn with bounds on what a client may send before it is known, and without idle work."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from email.utils import formatdate
from typing import Any, Final

import structlog
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from makeway_admission.channel import FRAME_BYTES
from makeway_admission.settings import MAX_BODY_BYTES, AdmissionSettings

_LOG: Final = structlog.get_logger(__name__)

HEAD_MAX_BYTES: Final = 64 * 1024
HEAD_SECONDS: Final = 10.0
"""How long a client may take to send a request's head, and how long it may say nothing at the start."""
UNREAD_SECONDS: Final = 2.0
"""How long the rest of a request may take once it was answered, as one without a token is before its body is read."""
_REQUEST_MAX_BYTES: Final = 32 * MAX_BODY_BYTES
"""All of a request: what is read of a body that is too large, and how it is cut into pieces."""
_BACKLOG: Final = 512
_MOST_CONNECTIONS: Final = 1024
_KEEP_ALIVE_SECONDS: Final = 30
_DATE_SECONDS: Final = 1.0

SECURITY_HEADERS: Final = (
    ("x-content-type-options", "nosniff"),
    ("cache-control", "no-store"),
    ("referrer-policy", "no-referrer"),
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
)
"""On every answer."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection whose request heads are bounded in size and time; uvicorn bounds neither."""

    _head_bytes = 0
    _in_head = True
    _between_requests = True
    _first_bytes = 0
    _request_bytes = 0
    _trailer_bytes = 0
    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Waits for the first head."""
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits for nothing any more."""
        self._end_head()
        self._forget_unread()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Counts a head's bytes. What one read brings is bounded already, and may have a body behind the head."""
        self._head_bytes += len(data)
        self._request_bytes += len(data)
        self._first_bytes = len(data) if self._between_requests else 0
        super().data_received(data)
        if self._in_head and self._head_bytes > HEAD_MAX_BYTES:
            self.send_400_response(f"The request's head has more than {HEAD_MAX_BYTES} bytes.")
        elif self._request_bytes > _REQUEST_MAX_BYTES or self._trailer_bytes > HEAD_MAX_BYTES:
            self.transport.close()

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._between_requests = False
        self._begin_head()
        self._head_bytes, self._first_bytes = self._first_bytes, 0

    def on_message_complete(self) -> None:
        """A request is here as a whole."""
        self._between_requests = True
        self._request_bytes = self._trailer_bytes = 0
        self._forget_unread()
        super().on_message_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; what comes behind a body means nothing here, and is not kept."""
        if self._in_head:
            super().on_header(name, value)
        else:
            self._trailer_bytes += len(name) + len(value)

    def on_response_complete(self) -> None:
        """An answer was sent; if its request goes on and on, the connection ends."""
        super().on_response_complete()
        answered = self.cycle is not None and self.cycle.response_complete
        if answered and not self._in_head and not self._between_requests and self._unread is None:
            self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.close)

    def _forget_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def on_headers_complete(self) -> None:
        """A head has ended."""
        self._end_head()
        super().on_headers_complete()

    def _begin_head(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _end_head(self) -> None:
        self._in_head = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class ChannelProtocol(WebSocketsSansIOProtocol):
    """A websocket whose handshake may be refused with an answer, which uvicorn logs as an error of the application."""

    async def send(self, message: Any) -> None:
        """Sends; with a refusal the handshake is over, and nothing is left to complain of."""
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True


class Server(uvicorn.Server):
    """uvicorn without signal handlers, which are the service's, and without its tick ten times a second."""

    def __init__(self, app: FastAPI, settings: AdmissionSettings) -> None:
        """Listens in `serve`."""
        super().__init__(_config(app, settings))
        self._settings = settings
        self._ended = asyncio.Event()

    def end(self) -> None:
        """Stops accepting and lets open requests finish."""
        self.should_exit = True
        self._ended.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leaves signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens, then says where."""
        await super().startup(sockets)
        for listening in sockets or ():
            _write_port(self._settings, listening)

    async def main_loop(self) -> None:
        """Sets the headers that every answer carries, once a second for the date."""
        while not self._ended.is_set():
            date = [(b"date", formatdate(usegmt=True).encode())]
            self.server_state.default_headers = [*date, *self.config.encoded_headers]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DATE_SECONDS):
                    await self._ended.wait()


def listen(settings: AdmissionSettings) -> socket.socket:
    """The bound socket. Raises OSError when the address or port is not to be had."""
    family = socket.AF_INET6 if ":" in settings.http_host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.http_host, settings.http_port))
    except OSError:
        listening.close()
        raise
    listening.setblocking(False)
    return listening


def _config(app: FastAPI, settings: AdmissionSettings) -> uvicorn.Config:
    values: dict[str, Any] = {
        "http": BoundedProtocol,
        "ws": ChannelProtocol,
        "ws_max_size": FRAME_BYTES,
        "ws_per_message_deflate": False,
        "lifespan": "off",
        "access_log": False,
        "log_config": None,
        "server_header": False,
        "date_header": False,
        "headers": list(SECURITY_HEADERS),
        "backlog": _BACKLOG,
        "limit_concurrency": _MOST_CONNECTIONS,
        "timeout_keep_alive": _KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": int(max(1.0, settings.stop_timeout_seconds / 2)),
        "ssl_certfile": settings.http_tls_certificate_file,
        "ssl_keyfile": settings.http_tls_key_file,
    }
    return uvicorn.Config(app, **values)


def _write_port(settings: AdmissionSettings, listening: socket.socket) -> None:
    port: int = listening.getsockname()[1]
    path = settings.port_file
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(f"{port}\n")
    fresh.replace(path)
    _LOG.info("listening", host=settings.http_host, port=port)
