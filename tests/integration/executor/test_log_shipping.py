"""Logs reach admission whole and once, whatever breaks on the way. The other end here is a plain websocket server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from makeway_executor.log_shipping import LogShipping, ShippingOptions
from node_runs import NodeRun, planned, python, run_id, shell, until
from pydantic import SecretStr
from websockets.asyncio.server import Server, ServerConnection, serve

MIB = 1024 * 1024


class Admission:
    """Keeps what it is sent, as admission does."""

    def __init__(self) -> None:
        self.logs: dict[str, bytearray] = {}
        self.ended: dict[str, int] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.drop_after: int | None = None
        self.refuse = False
        self.server: Server | None = None

    async def start(self, port: int = 0) -> int:
        self.server = await serve(self._serve, "127.0.0.1", port, max_size=MIB)
        found: int = next(iter(self.server.sockets)).getsockname()[1]
        return found

    async def stop(self) -> None:
        if self.server is not None:
            self.server.close()
            await self.server.wait_closed()

    async def _serve(self, channel: ServerConnection) -> None:
        assert channel.request is not None
        self.requests.append((channel.request.path, channel.request.headers.get("Authorization")))
        async for text in channel:
            message = json.loads(text)
            if message["type"] == "log_end":
                held = len(self.logs.get(message["run_id"], b""))
                await channel.send(json.dumps({"type": "stored", "run_id": message["run_id"], "offset": held}))
                if held == message["size"]:
                    self.ended[message["run_id"]] = held
                continue
            chunk = await channel.recv()
            assert isinstance(chunk, bytes)
            assert len(chunk) == message["size"] <= 256 * 1024
            await channel.send(json.dumps(self._keep(message, chunk)))
            if self.drop_after is not None and len(self.logs[message["run_id"]]) > self.drop_after:
                self.drop_after = None
                await channel.close()
                return

    def _keep(self, message: dict[str, Any], chunk: bytes) -> dict[str, Any]:
        if self.refuse:
            return {"type": "refused", "run_id": message["run_id"], "reason": "unknown run"}
        log = self.logs.setdefault(message["run_id"], bytearray())
        if message["offset"] == len(log):
            log += chunk
        return {"type": "stored", "run_id": message["run_id"], "offset": len(log)}


class Shipped:
    """A node with log shipping to an admission."""

    def __init__(self, node: NodeRun, admission: Admission, port: int, *, keep_seconds: float = 3600.0) -> None:
        self.node, self.admission = node, admission
        options = ShippingOptions(
            admission_url=f"http://127.0.0.1:{port}",
            node_id="node-a",
            token=SecretStr("the-token"),
            keep_seconds=keep_seconds,
        )
        self.shipping = LogShipping(node.node.runs, options, node.node.remove)
        node.node.on_ended, node.node.on_booked = self.shipping.ended, self.shipping.booked
        self.task = asyncio.create_task(self.shipping.run())

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def gone(self, number: int) -> None:
        await until(lambda: not (self.node.state / "runs" / run_id(number)).exists())


@pytest.fixture
async def admission() -> AsyncIterator[Admission]:
    made = Admission()
    yield made
    await made.stop()


@pytest.fixture
async def shipped(tmp_path: Path, sockets: Path, admission: Admission) -> AsyncIterator[Shipped]:
    node = NodeRun(tmp_path, sockets)
    made = Shipped(node, admission, await admission.start())
    yield made
    await made.close()
    await node.end_all()


async def test_a_log_arrives_whole_is_closed_and_its_folder_goes(shipped: Shipped) -> None:
    shipped.node.plan(planned(1, python("import sys; sys.stdout.write('x' * 700000 + 'BYE')")))
    await shipped.node.facts.wait(1, "run_exited")
    shipped.node.plan()
    await shipped.gone(1)
    assert bytes(shipped.admission.logs[run_id(1)]) == b"x" * 700_000 + b"BYE"
    assert shipped.admission.ended == {run_id(1): 700_003}
    assert shipped.admission.requests == [("/v1/nodes/node-a/channel", "Bearer the-token")]


async def test_a_log_can_be_followed_while_the_job_runs(shipped: Shipped) -> None:
    shipped.node.plan(planned(1, shell("echo first; sleep 300")))
    await until(lambda: shipped.admission.logs.get(run_id(1)) == b"first\n")
    assert shipped.admission.ended == {}


async def test_several_logs_share_one_connection(shipped: Shipped) -> None:
    shipped.node.plan(*(planned(number, shell(f"echo {number}"), gpu=number - 1) for number in range(1, 5)))
    await until(lambda: len(shipped.admission.ended) == 4)
    assert [bytes(shipped.admission.logs[run_id(number)]) for number in (1, 4)] == [b"1\n", b"4\n"]
    assert len(shipped.admission.requests) == 1


async def test_an_empty_log_sends_nothing_and_opens_no_connection(shipped: Shipped) -> None:
    shipped.node.plan(planned(1, shell("true")))
    await shipped.node.facts.wait(1, "run_exited")
    shipped.node.plan()
    await shipped.gone(1)
    assert shipped.admission.requests == []


async def test_a_lost_connection_neither_loses_nor_doubles_a_byte(shipped: Shipped) -> None:
    shipped.admission.drop_after = 300_000
    text = b"".join(b"%07d\n" % number for number in range(100_000))
    shipped.node.plan(planned(1, python("import sys\nfor n in range(100000): sys.stdout.write('%07d\\n' % n)")))
    await until(lambda: shipped.admission.ended)
    assert bytes(shipped.admission.logs[run_id(1)]) == text
    assert len(shipped.admission.requests) == 2


async def test_what_admission_has_already_is_not_sent_again(shipped: Shipped) -> None:
    shipped.admission.logs[run_id(1)] = bytearray(b"hel")
    shipped.node.plan(planned(1, shell("echo hello")))
    await until(lambda: shipped.admission.ended)
    assert bytes(shipped.admission.logs[run_id(1)]) == b"hello\n"


async def test_a_log_of_which_admission_lost_a_part_is_completed(shipped: Shipped) -> None:
    gate = shipped.node.state / "gate"
    shipped.node.plan(planned(1, shell(f"echo hello; until [ -e {gate} ]; do sleep 0.02; done; echo there")))
    await until(lambda: shipped.admission.logs.get(run_id(1)) == b"hello\n")
    del shipped.admission.logs[run_id(1)][3:]
    gate.touch()
    await until(lambda: shipped.admission.ended)
    assert bytes(shipped.admission.logs[run_id(1)]) == b"hello\nthere\n"


async def test_a_log_is_closed_only_once_admission_says_that_it_holds_all(shipped: Shipped) -> None:
    """It may have lost some of it between the last part and the question whether that was all."""
    real = shipped.admission._keep
    lost = False

    def lose_once(message: dict[str, Any], chunk: bytes) -> dict[str, Any]:
        nonlocal lost
        answer = real(message, chunk)
        if not lost:
            lost = True
            del shipped.admission.logs[run_id(1)][3:]
        return answer

    shipped.admission._keep = lose_once  # type: ignore[method-assign]
    shipped.node.plan(planned(1, shell("echo hello")))
    await until(lambda: shipped.admission.ended)
    assert bytes(shipped.admission.logs[run_id(1)]) == b"hello\n"


async def test_an_answer_about_another_run_ends_the_connection(shipped: Shipped) -> None:
    real = shipped.admission._keep
    confused = False

    def confuse_once(message: dict[str, Any], chunk: bytes) -> dict[str, Any]:
        nonlocal confused
        if confused:
            return real(message, chunk)
        confused = True
        shipped.admission.logs[message["run_id"]] = bytearray()
        return {"type": "stored", "run_id": run_id(9), "offset": 6}

    shipped.admission._keep = confuse_once  # type: ignore[method-assign]
    shipped.node.plan(planned(1, shell("echo hello")))
    await until(lambda: shipped.admission.ended)
    assert len(shipped.admission.requests) == 2  # on a connection of its own: nobody knows what the former means
    assert bytes(shipped.admission.logs[run_id(1)]) == b"hello\n"


async def test_a_log_waits_for_an_admission_that_is_away(tmp_path: Path, sockets: Path, admission: Admission) -> None:
    port = await admission.start()
    await admission.stop()
    node = NodeRun(tmp_path, sockets)
    shipped = Shipped(node, admission, port)
    node.plan(planned(1, shell("echo hello")))
    await node.facts.wait(1, "run_exited")
    node.plan()
    assert (node.state / "runs" / run_id(1)).exists()
    await admission.start(port)
    await shipped.gone(1)
    assert bytes(admission.logs[run_id(1)]) == b"hello\n"
    await shipped.close()
    await node.end_all()


async def test_a_log_that_cannot_be_sent_does_not_stay_for_ever(
    tmp_path: Path, sockets: Path, admission: Admission
) -> None:
    node = NodeRun(tmp_path, sockets)
    shipped = Shipped(node, admission, 1, keep_seconds=0.2)
    node.plan(planned(1, shell("echo hello")))
    await node.facts.wait(1, "run_exited")
    node.plan()
    await shipped.gone(1)
    await shipped.close()
    await node.end_all()


async def test_a_refused_log_is_given_up_and_stops_no_other(shipped: Shipped) -> None:
    shipped.admission.refuse = True
    shipped.node.plan(planned(1, shell("echo hello")))
    await shipped.node.facts.wait(1, "run_exited")
    shipped.node.plan()
    await shipped.gone(1)
    shipped.admission.refuse = False
    shipped.node.plan(planned(2, shell("echo again")))
    await until(lambda: run_id(2) in shipped.admission.ended)
