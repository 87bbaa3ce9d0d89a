"""Health: red means stuck, green means working; the page never hangs on a probe."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from makeway_runtime import health
from makeway_runtime.errors import StuckService
from makeway_runtime.health import Check, HealthServer, Watchdog, ask, reader_check, stuck_check


@dataclass
class FakeReader:
    last_poll_at: float | None


async def green() -> str | None:
    return None


async def red() -> str | None:
    return "broken"


@asynccontextmanager
async def serving(*checks: Check, port_file: Path | None = None) -> AsyncIterator[HealthServer]:
    server = HealthServer(checks, port_file=port_file)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def get(server: HealthServer, path: str, raw: bytes | None = None) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(raw or f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def test_all_green_answers_200_and_names_the_checks() -> None:
    async with serving(Check(name="database", probe=green)) as server:
        status, body = await get(server, "/healthz")
    assert status == 200
    assert json.loads(body) == {"healthy": True, "checks": {"database": "ok"}}


async def test_one_red_check_answers_503_with_its_sentence() -> None:
    async with serving(Check(name="a", probe=green), Check(name="b", probe=red)) as server:
        status, body = await get(server, "/healthz")
    assert status == 503
    assert json.loads(body)["checks"] == {"a": "ok", "b": "broken"}


async def test_metrics_are_prometheus_text() -> None:
    async with serving() as server:
        status, body = await get(server, "/metrics")
    assert status == 200
    assert b"makeway_loop_lag_seconds" in body


@pytest.mark.parametrize(
    ("raw", "status"),
    [(b"POST /healthz HTTP/1.1\r\n\r\n", 400), (b"\r\n\r\n", 400), (b"GET /else HTTP/1.1\r\n\r\n", 404)],
)
async def test_other_requests_are_refused(raw: bytes, status: int) -> None:
    async with serving() as server:
        assert (await get(server, "", raw))[0] == status


async def test_the_port_file_holds_the_port_and_goes_with_the_server(tmp_path: Path) -> None:
    port_file = tmp_path / "run" / "health.port"
    async with serving(port_file=port_file) as server:
        assert int(port_file.read_text()) == server.port
    assert not port_file.exists()


async def test_a_consumer_without_answers_is_red_though_its_connection_stands() -> None:
    check = reader_check("inbox", FakeReader(time.monotonic() - 60), max_age_seconds=15)
    assert (await check.probe() or "").startswith("no answer from the broker for 60 s")
    assert await reader_check("inbox", FakeReader(time.monotonic())).probe() is None


async def test_a_batch_that_never_ends_is_red_and_vital() -> None:
    check = stuck_check("inbox", lambda: time.monotonic() - 90, max_seconds=60)
    assert check.vital
    assert "90 s" in (await check.probe() or "")
    assert await stuck_check("inbox", lambda: None).probe() is None


async def test_a_probe_that_raises_is_red() -> None:
    async def broken() -> str | None:
        raise OSError("gone")

    assert "gone" in ((await ask([Check(name="x", probe=broken)]))["x"] or "")


async def test_a_probe_that_hangs_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makeway_runtime.health.CHECK_TIMEOUT_SECONDS", 0.01)

    async def hanging() -> str | None:
        await asyncio.Event().wait()
        return None

    assert "no answer within" in ((await ask([Check(name="x", probe=hanging)]))["x"] or "")


async def test_the_watchdog_ends_what_stays_red_and_is_vital() -> None:
    watchdog = Watchdog([Check(name="inbox", probe=red, vital=True)], limit_seconds=0.02, step_seconds=0.005)
    with pytest.raises(StuckService, match="inbox: broken"):
        await asyncio.wait_for(watchdog.run(), 5)


async def test_the_watchdog_leaves_alone_what_is_red_but_not_vital() -> None:
    watchdog = Watchdog([Check(name="database", probe=red)], limit_seconds=0.0, step_seconds=0.001)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(watchdog.run(), 0.05)


async def test_only_what_is_red_on_end_counts_against_the_watchdogs_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(1000.0, 10.0)
    monkeypatch.setattr(health, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    answers = iter(["red", "red", None, "red", "red", "red", "red for 30 s", "never asked"])

    async def probe() -> str | None:
        return next(answers)

    with pytest.raises(StuckService, match="red for 30 s"):
        await Watchdog([Check(name="x", probe=probe, vital=True)], limit_seconds=25.0, step_seconds=0.0).run()
