"""What a shim says of its run, also when it says it again to whoever follows it anew."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from makeway_executor.facts import Teller
from makeway_executor.reconcile import Phase
from makeway_executor.run import Run
from makeway_executor.run_events import RunEvents
from makeway_executor.run_folder import RunFolder
from makeway_schemas.facts import Fact, RunEnd
from plans import planned, run_id

STARTED = {"pid": os.getpid(), "start_ticks": 1, "boottime_ns": 5}
NOTICED = {"cause": "preempt", "grace_seconds": 5.0, "boottime_ns": 6}
END = {
    "start_error": None, "exit_code": 3, "signal": None, "stop_cause": None, "notice_delivered": False, "done": False,
    "forced": False, "ack": None, "started": {"boottime_ns": 5}, "exited": {"boottime_ns": 7}, "log_bytes": 0,
    "log_lost_bytes": 0, "emptied": {"boottime_ns": 8},
}  # fmt: skip


class Following:
    """A run that is followed, the shim's end of the connection, and all that came of what it said."""

    def __init__(self, folder: Path) -> None:
        self.facts: list[Fact] = []
        self.cards: list[str] = []
        self.ends: list[RunEnd] = []
        self.gone: list[Run] = []
        self.events = RunEvents(Teller(node_id="n", session="s", boot_id="b"), self, self)
        self.events.on_end = self.end
        self.events.on_shim_gone = self.gone.append
        self.run = Run(folder=RunFolder(folder, run_id(1)), planned=planned(1), phase=Phase.STARTING)
        self.shim, ours = socket.socketpair()
        ours.setblocking(False)
        self.events.attach(self.run, ours)

    def put(self, fact: Fact, *, at_ns: int) -> None:
        self.facts.append(fact)

    def occupy(self, run: Run, pid: int) -> None:
        self.cards.append("occupied")

    def leave(self, run: Run) -> None:
        self.cards.append("left")

    def end(self, run: Run, end: RunEnd, *, ended_ns: int | None = None) -> None:
        run.end, run.phase = end, Phase.ENDED
        self.ends.append(end)

    async def say(self, **events: dict[str, Any]) -> None:
        """Says events, and a last one that shows that all were heard."""
        heard = asyncio.Event()
        self.events._handlers["heard"] = lambda run, data: heard.set()
        for name, data in (*events.items(), ("heard", {})):
            self.shim.sendall(json.dumps({"sequence": 1, "event": name, "data": data}).encode() + b"\n")
        await asyncio.wait_for(heard.wait(), 20)

    async def hang_up(self) -> None:
        self.shim.close()
        async with asyncio.timeout(20):
            while self.run.link is not None:
                await asyncio.sleep(0)


@pytest.fixture
async def following(tmp_path: Path) -> AsyncIterator[Following]:
    made = Following(tmp_path)
    yield made
    if made.run.link is not None:
        made.run.link.close()
    made.shim.close()


async def test_a_run_that_was_noticed_is_so_whatever_is_said_again(following: Following) -> None:
    await following.say(started=STARTED, notice_delivered=NOTICED)
    assert following.run.phase is Phase.NOTICED
    await following.say(started=STARTED)
    assert (following.run.phase, following.run.noticed_ns) == (Phase.NOTICED, 6)


async def test_an_end_that_is_said_again_is_one_end(following: Following) -> None:
    await following.say(started=STARTED, end=END)
    await following.say(end=END)
    assert [end.exit_code for end in following.ends] == [3]
    assert following.cards == ["occupied", "left"]


@pytest.mark.parametrize("ended", [True, False])
async def test_a_shim_that_hangs_up_is_asked_after_unless_its_run_has_ended(following: Following, ended: bool) -> None:
    await following.say(started=STARTED, **({"end": END} if ended else {}))
    await following.hang_up()
    assert following.gone == ([] if ended else [following.run])


async def test_an_event_that_this_executor_does_not_know_is_passed_over(following: Following) -> None:
    await following.say(of_a_newer_shim={}, started=STARTED)
    assert [fact.kind for fact in following.facts] == ["run_started"]
