"""Is it well? Small questions over loopback, asked without a client library: the supervisor stays lean."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from makeway.local.child import Trouble
from makeway.local.servers import Server

__all__ = ["server_probe", "service_probe"]

_TIMEOUT_SECONDS = 3.0
_LONGEST_ANSWER_BYTES = 4096


def server_probe(server: Server) -> Callable[[], Awaitable[Trouble | None]]:
    """Asks an embedded server, in a thread since its probe may block."""

    async def probe() -> Trouble | None:
        return None if await asyncio.to_thread(server.is_ready) else _silent("does not answer yet")

    return probe


def service_probe(health_file: Path) -> Callable[[], Awaitable[Trouble | None]]:
    """Asks `GET /healthz` on the port that the service wrote into its health file."""

    async def probe() -> Trouble | None:
        try:
            port = int(health_file.read_text())
        except (OSError, ValueError):
            return _silent("has not said its health port yet")
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                status, body = await _get_health(port)
        except TimeoutError:
            return _silent(f"/healthz gave no answer for {_TIMEOUT_SECONDS:g} s")
        except (OSError, ValueError, EOFError) as error:
            return _silent(f"/healthz cannot be asked: {error}")
        return None if status == 200 else Trouble(sentence=f"/healthz says {status}: {body}", silent=False)

    return probe


def _silent(sentence: str) -> Trouble:
    return Trouble(sentence=sentence, silent=True)


async def _get_health(port: int) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        await writer.drain()
        head, _, body = (await reader.read(_LONGEST_ANSWER_BYTES)).decode(errors="replace").partition("\r\n\r\n")
        return int(head.split(maxsplit=2)[1]), " ".join(body.split())
    except IndexError as error:
        raise ValueError("no HTTP answer") from error
    finally:
        writer.close()
