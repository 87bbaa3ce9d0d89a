"""The connection to a shim, on the event loop that the services run on."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvloop
from makeway_executor.shim import ShimLink, stop_line

END = b'{"event": "end", "data": {"n": 1}}\n'
DEADLINE_SECONDS = 5.0


class Heard:
    """A link to a shim that the test plays, and what was heard over it."""

    def __init__(self) -> None:
        ours, self.shim = socket.socketpair()
        ours.setblocking(False)
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.hang_ups = 0
        self.link = ShimLink(ours, on_event=lambda *event: self.events.append(event), on_hang_up=self._hung_up)

    def _hung_up(self) -> None:
        self.hang_ups += 1


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


def run(work: Callable[[], Any]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())


def test_an_end_is_heard_from_a_shim_that_left_without_reading_what_it_was_asked() -> None:
    async def work() -> None:
        heard = Heard()
        assert heard.link.send(stop_line("cancel", 1.0, 15))
        heard.shim.sendall(END)
        heard.shim.close()
        await until(lambda: heard.hang_ups)
        assert heard.events == [("end", {"n": 1})]
        assert heard.hang_ups == 1

    run(work)


def test_a_link_on_a_descriptor_that_another_link_had_is_heard() -> None:
    async def work() -> None:
        for _ in range(3):
            heard = Heard()
            heard.link.send(stop_line("cancel", 1.0, 15))
            heard.shim.close()
            await until(lambda heard=heard: heard.hang_ups)
        last = Heard()
        last.shim.sendall(END)
        await until(lambda: last.events)
        assert last.hang_ups == 0
        last.link.close()
        last.link.close()
        last.shim.close()

    run(work)
