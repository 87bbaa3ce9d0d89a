"""Bells of readers, and a consumer that is there only while somebody listens."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from makeway_admission import feed as feed_module
from makeway_admission.feed import Feed
from makeway_runtime.settings import ServiceSettings

SETTINGS = ServiceSettings(state_dir=Path("/s"), runtime_dir=Path("/r"))


class Consumer:
    """Stands where the hot loop is; counts how often one was made."""

    made: "list[Consumer]"

    def __init__(self, *_: object, **__: object) -> None:
        self.started = asyncio.Event()
        self.started.set()
        self.runs = False
        Consumer.made.append(self)

    async def run(self) -> None:
        self.runs = True
        try:
            await asyncio.Event().wait()
        finally:
            self.runs = False


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> list[Consumer]:
    Consumer.made = []
    monkeypatch.setattr(feed_module, "HotLoop", Consumer)
    monkeypatch.setattr(feed_module, "_LINGER_SECONDS", 0.02)
    return Consumer.made


async def _until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


async def test_it_reads_only_while_somebody_listens(consumers: list[Consumer]) -> None:
    feed = Feed(SETTINGS)
    serving = asyncio.create_task(feed.run())
    await asyncio.sleep(0.01)
    assert consumers == []
    with feed.subscribe("a"):
        await _until(lambda: consumers and consumers[0].runs)
        await asyncio.sleep(0.06)
        assert consumers[0].runs
    await _until(lambda: not consumers[0].runs)
    with feed.subscribe(None):
        await _until(lambda: len(consumers) == 2 and consumers[1].runs)
    serving.cancel()


async def test_listeners_that_come_and_go_leave_nothing_running(consumers: list[Consumer]) -> None:
    feed = Feed(SETTINGS)
    serving = asyncio.create_task(feed.run())
    for _ in range(3):
        with feed.subscribe("a"):
            await asyncio.sleep(0.005)
    await _until(lambda: consumers and not consumers[-1].runs)
    await asyncio.sleep(0.1)
    assert len(consumers) <= 3
    assert not any(each.runs for each in consumers)
    assert (feed._of_job, feed._of_all) == ({}, set())
    serving.cancel()


async def test_a_bell_rings_for_its_job_and_for_whoever_hears_all(consumers: list[Consumer]) -> None:
    feed = Feed(SETTINGS)
    with feed.subscribe("a") as a, feed.subscribe("b") as b, feed.subscribe(None) as everything:
        for each in (a, b, everything):
            each.moved = False
        await feed._ring([_message(b"a"), _message(b"a"), _message(None), _message(b"\xff")])
        assert [each.bell.is_set() for each in (a, b, everything)] == [True, False, True]
        assert [each.moved for each in (a, b, everything)] == [True, False, True]
        await asyncio.wait_for(a.wait(), 1)
        assert not a.bell.is_set()


async def test_closing_wakes_everybody(consumers: list[Consumer]) -> None:
    feed = Feed(SETTINGS)
    with feed.subscribe("a") as a, feed.subscribe(None) as everything:
        feed.close()
        await asyncio.wait_for(asyncio.gather(a.wait(), everything.wait()), 0.05)
        assert (a.closing, everything.closing) == (True, True)


def _message(key: bytes | None) -> Any:
    from datetime import UTC, datetime

    from makeway_runtime.cloudevents import EventHeaders
    from makeway_runtime.kafka.messages import Incoming

    now = datetime(2026, 1, 1, tzinfo=UTC)
    event = EventHeaders(id="1", type="t", source="s", time=now)
    return Incoming(topic="t", partition=0, offset=0, received=now, key=key, value=b"{}", event=event)
