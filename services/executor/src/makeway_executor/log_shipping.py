"""Logs on their way to admission: one websocket a node for all its runs, opened once there is something to send.

A message of JSON names run, offset and size, a binary frame follows; admission answers with how many bytes of that run
it holds by now, and from there the log goes on, whatever was thought before. So neither a lost connection nor a restart
on either side loses or doubles a byte. When all is stored and the run has ended, `log_end` closes it and is answered
likewise. An empty log sends nothing: the run's end says 0 bytes. A log that is refused is given up; the others go on.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import structlog
from makeway_runtime import retry
from pydantic import SecretStr
from tenacity import RetryCallState
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from makeway_executor import clock
from makeway_executor.errors import ChannelBroken
from makeway_executor.run import Run

_LOG: Final = structlog.get_logger(__name__)

CHUNK_BYTES: Final = 256 * 1024
LOOK_SECONDS: Final = 1.0
FOLLOW_SECONDS: Final = 0.2
"""While logs grow they are looked at this often, for whoever follows them."""
FOLLOW_FOR_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 10.0
MAX_TRIES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippingOptions:
    """Where logs go; `keep_seconds` bounds how long one waits to be sent after its run was booked."""

    admission_url: str | None
    node_id: str
    token: SecretStr | None
    keep_seconds: float


class LogShipping:
    """Sends what runs write. `on_done` is called with a booked run whose folder is not needed for its log any more."""

    def __init__(self, runs: Mapping[str, Run], options: ShippingOptions, on_done: Callable[[Run], None]) -> None:
        """`runs` is a live view of the node's runs."""
        self._runs = runs
        self._options = options
        self._on_done = on_done
        self._booked_ns: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._grew_ns = 0

    def ended(self, _run: Run) -> None:
        """A run's log is complete: it is sent at once."""
        self._wake.set()

    def booked(self, run: Run) -> None:
        """The run's folder may go once its log is stored."""
        self._booked_ns[run.run_id] = clock.now_ns()
        self._release(run)

    async def run(self) -> None:
        """Sends until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._release_old())
            if self._options.admission_url is not None:
                group.create_task(self._send())

    async def _send(self) -> None:
        async for attempt in retry.backoff(
            initial_seconds=0.2,
            longest_seconds=5.0,
            retry_on=lambda error: isinstance(
                error, (OSError, TimeoutError, ValueError, WebSocketException, ChannelBroken)
            ),
            before_sleep=_say_trouble,
        ):
            with attempt:
                await self._until_there_is_work()
                await self._session()

    async def _until_there_is_work(self) -> None:
        while not any(_backlog(run) for run in self._runs.values()):
            await self._pause()

    async def _session(self) -> None:
        url, headers = self._address()
        tls = ssl.create_default_context() if url.startswith("wss:") else None
        async with connect(url, additional_headers=headers, ssl=tls, max_size=65536, compression=None) as channel:
            while True:
                grew = False
                for run in list(self._runs.values()):
                    if not run.log_done and _backlog(run):
                        grew |= await self._send_all_of(channel, run)
                if grew:
                    self._grew_ns = clock.now_ns()
                await self._pause()

    async def _pause(self) -> None:
        following = clock.age_seconds(self._grew_ns) < FOLLOW_FOR_SECONDS
        try:
            async with asyncio.timeout(FOLLOW_SECONDS if following else LOOK_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            return
        finally:
            self._wake.clear()

    async def _send_all_of(self, channel: ClientConnection, run: Run) -> bool:
        size = run.folder.log_size()
        before = run.log_stored
        tries = 0
        while not run.log_done and not await self._is_all_stored(channel, run, size):
            held = run.log_stored
            await self._send_chunk(channel, run, size)
            tries = 0 if run.log_stored > held else tries + 1
            if tries > MAX_TRIES:
                raise ChannelBroken(f"admission does not take the log of {run.run_id} from byte {held} on")
        return run.log_stored != before

    async def _is_all_stored(self, channel: ClientConnection, run: Run, size: int) -> bool:
        """True when nothing is to be sent now; at the run's end only once admission says that it holds all."""
        if run.log_stored < size:
            return False
        if run.end is not None and run.log_stored >= run.end.log_bytes:
            held = run.log_stored
            await channel.send(json.dumps({"type": "log_end", "run_id": run.run_id, "size": held}))
            await self._read_answer(channel, run)
            if run.log_stored >= held:
                run.log_done = True
                self._release(run)
        return run.log_stored >= size

    async def _send_chunk(self, channel: ClientConnection, run: Run, size: int) -> None:
        count = min(CHUNK_BYTES, size - run.log_stored)
        chunk = await asyncio.to_thread(_read, run, run.log_stored, count)
        header = {"type": "log", "run_id": run.run_id, "offset": run.log_stored, "size": len(chunk)}
        await channel.send(json.dumps(header))
        await channel.send(chunk)
        await self._read_answer(channel, run)

    async def _read_answer(self, channel: ClientConnection, run: Run) -> None:
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = json.loads(await channel.recv())
        if answer.get("run_id") != run.run_id:
            raise ChannelBroken(f"admission answers about {answer.get('run_id')}, asked about {run.run_id}")
        if answer.get("type") == "stored":
            run.log_stored = int(answer["offset"])
        else:
            _LOG.warning("admission does not want a log", run_id=run.run_id, reason=answer.get("reason"))
            run.log_done = True

    def _address(self) -> tuple[str, dict[str, str]]:
        base = (self._options.admission_url or "").rstrip("/").replace("http", "ws", 1)
        token = "" if self._options.token is None else self._options.token.get_secret_value()
        return f"{base}/v1/nodes/{quote(self._options.node_id)}/channel", {"Authorization": f"Bearer {token}"}

    async def _release_old(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for run_id in list(self._booked_ns):
                run = self._runs.get(run_id)
                if run is None:
                    del self._booked_ns[run_id]
                else:
                    self._release(run)

    def _release(self, run: Run) -> None:
        booked_ns = self._booked_ns.get(run.run_id)
        if booked_ns is None:
            return
        empty = run.end is not None and run.end.log_bytes == 0
        too_old = clock.age_seconds(booked_ns) > self._options.keep_seconds
        if run.log_done or empty or too_old or self._options.admission_url is None:
            if too_old and not (run.log_done or empty):
                _LOG.warning("a log could not be sent and is dropped", run_id=run.run_id, stored=run.log_stored)
            del self._booked_ns[run.run_id]
            self._on_done(run)


def _say_trouble(state: RetryCallState) -> None:
    error = None if state.outcome is None else state.outcome.exception()
    _LOG.warning("logs wait for admission", error=repr(error))


def _backlog(run: Run) -> bool:
    if run.log_done:
        return False
    if run.end is not None:
        return run.end.log_bytes > 0
    return run.alive and run.folder.log_size() > run.log_stored


def _read(run: Run, offset: int, count: int) -> bytes:
    with run.folder.log_path().open("rb") as file:
        file.seek(offset)
        return file.read(count)
