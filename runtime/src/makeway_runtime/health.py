"""Health and metrics over loopback HTTP: /healthz, /metrics. A page for machines, not a web framework.

A check answers None when well, or a sentence. Vital checks that stay red make `Watchdog` end the process: a stuck
consumer looks alive from outside, and only a new process heals it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final, Protocol

import structlog

from makeway_runtime import metrics
from makeway_runtime.errors import StuckService

_LOG: Final = structlog.get_logger(__name__)

REQUEST_TIMEOUT_SECONDS: Final = 5.0
CHECK_TIMEOUT_SECONDS: Final = 2.0
LOOP_LAG_STEP_SECONDS: Final = 1.0
MAX_LOOP_LAG_SECONDS: Final = 2.0

Probe = Callable[[], Awaitable[str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One named question. `vital`: when it stays red, only a new process can help."""

    name: str
    probe: Probe
    vital: bool = False


class Reader(Protocol):
    """What the check of a consumer needs: HotLoop and StreamReader have it."""

    @property
    def last_poll_at(self) -> float | None: ...


def reader_check(name: str, reader: Reader, *, max_age_seconds: float = 15.0, vital: bool = False) -> Check:
    """Red when the broker has not answered the reader's fetches for `max_age_seconds`, whatever its connections say.

    A HotLoop makes itself a new consumer; for others a second check, vital and with more patience, has the process
    started again.
    """
    made_at = time.monotonic()

    async def probe() -> str | None:
        since = reader.last_poll_at if reader.last_poll_at is not None else made_at
        age_seconds = time.monotonic() - since
        return None if age_seconds <= max_age_seconds else f"no answer from the broker for {age_seconds:.0f} s"

    return Check(name=name, probe=probe, vital=vital)


def stuck_check(name: str, busy_since: Callable[[], float | None], *, max_seconds: float = 60.0) -> Check:
    """Vital: red when one batch has been with its handler for longer than `max_seconds`."""

    async def probe() -> str | None:
        since = busy_since()
        age_seconds = 0.0 if since is None else time.monotonic() - since
        return None if age_seconds <= max_seconds else f"one batch has been handled for {age_seconds:.0f} s"

    return Check(name=name, probe=probe, vital=True)


class LoopLag:
    """How late the event loop wakes up: a blocking call anywhere shows here first."""

    def __init__(self) -> None:
        """Measures nothing before `run`."""
        self.latest_seconds = 0.0

    async def run(self) -> None:
        """Measures once a second until cancelled."""
        while True:
            due_at = time.monotonic() + LOOP_LAG_STEP_SECONDS
            await asyncio.sleep(LOOP_LAG_STEP_SECONDS)
            self.latest_seconds = max(0.0, time.monotonic() - due_at)
            metrics.LOOP_LAG_SECONDS.set(self.latest_seconds)

    def check(self) -> Check:
        """Red when the latest wake-up was late by more than two seconds."""

        async def probe() -> str | None:
            late = self.latest_seconds
            return None if late <= MAX_LOOP_LAG_SECONDS else f"the event loop woke up {late:.1f} s late"

        return Check(name="event_loop", probe=probe)


async def ask(checks: Sequence[Check]) -> dict[str, str | None]:
    """Asks all checks at once, each within a time limit. Returns name to None, or to what is wrong."""

    async def one(check: Check) -> str | None:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
                return await check.probe()
        except TimeoutError:
            return f"no answer within {CHECK_TIMEOUT_SECONDS:.0f} s"
        except Exception as error:  # noqa: BLE001 - whatever a probe meets is the answer
            return repr(error)

    answers = await asyncio.gather(*(one(check) for check in checks))
    return {check.name: answer for check, answer in zip(checks, answers, strict=True)}


class Watchdog:
    """Ends the process when a vital check has been red for `limit_seconds` on end."""

    def __init__(self, checks: Sequence[Check], *, limit_seconds: float, step_seconds: float = 5.0) -> None:
        """Looks every `step_seconds`."""
        self._checks = [check for check in checks if check.vital]
        self._limit_seconds = limit_seconds
        self._step_seconds = step_seconds
        self._red_since: dict[str, float] = {}

    async def run(self) -> None:
        """Looks until cancelled. Raises StuckService."""
        while True:
            await asyncio.sleep(self._step_seconds)
            now = time.monotonic()
            for name, wrong in (await ask(self._checks)).items():
                if wrong is None:
                    self._red_since.pop(name, None)
                elif now - self._red_since.setdefault(name, now) >= self._limit_seconds:
                    raise StuckService(f"{name}: {wrong}")


class HealthServer:
    """Answers /healthz (200 or 503, with each check) and /metrics on 127.0.0.1."""

    def __init__(self, checks: Sequence[Check], *, port: int = 0, port_file: Path | None = None) -> None:
        """`port` 0 takes a free one; `port_file` gets its number once it listens."""
        self._checks = tuple(checks)
        self._wanted_port = port
        self._port_file = port_file
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port it listens on. Only after `start`."""
        if self._server is None:
            raise RuntimeError("the health server is not started")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listens. Raises OSError when the port is taken."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._wanted_port, limit=8192)
        if self._port_file is not None:
            self._port_file.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._port_file.with_name(f"{self._port_file.name}.new")
            temporary.write_text(f"{self.port}\n")
            temporary.replace(self._port_file)

    async def stop(self) -> None:
        """Stops listening and removes the port file."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        if self._port_file is not None:
            self._port_file.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                request = await reader.readline()
                while (await reader.readline()).strip():
                    pass
                writer.write(await self._answer(request.split()))
                await writer.drain()
        except (OSError, TimeoutError, ValueError) as error:
            _LOG.debug("a health request was cut short", error=repr(error))
        finally:
            writer.close()

    async def _answer(self, request: list[bytes]) -> bytes:
        if len(request) < 2 or request[0] != b"GET":
            return _response(HTTPStatus.BAD_REQUEST, "text/plain", b"GET /healthz or /metrics\n")
        path = request[1].split(b"?")[0]
        if path == b"/metrics":
            return _response(HTTPStatus.OK, metrics.CONTENT_TYPE, await metrics.page())
        if path != b"/healthz":
            return _response(HTTPStatus.NOT_FOUND, "text/plain", b"GET /healthz or /metrics\n")
        answers = await ask(self._checks)
        healthy = all(wrong is None for wrong in answers.values())
        body = json.dumps({"healthy": healthy, "checks": {name: wrong or "ok" for name, wrong in answers.items()}})
        status = HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE
        return _response(status, "application/json", body.encode() + b"\n")


def _response(status: HTTPStatus, content_type: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
