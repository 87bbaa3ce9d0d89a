"""Logs: what nodes send is kept once and in order, and readers get every byte to the last one."""

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import admission_harness as harness
import pytest
import servers
from admission_harness import NODE, Admission, bearer, server_sent_events, until
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

FRAME = 256 * 1024


@asynccontextmanager
async def channel(admission: Admission, *, node: str = "n1", token: str = NODE) -> AsyncIterator[ClientConnection]:
    url = admission.url.replace("http:", "ws:") + f"/v1/nodes/{node}/channel"
    async with connect(url, additional_headers=bearer(token), compression=None) as socket:
        yield socket


async def send(socket: ClientConnection, run: str, offset: int, data: bytes) -> dict[str, Any]:
    await socket.send(json.dumps({"type": "log", "run_id": run, "offset": offset, "size": len(data)}))
    await socket.send(data)
    answer: dict[str, Any] = json.loads(await socket.recv())
    return answer


async def read(admission: Admission, job: str, **parameters: Any) -> bytes:
    answer = await admission.client.get(f"/v1/jobs/{job}/logs", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.content


async def job_with_run(admission: Admission, *, node: str = "n1") -> tuple[str, str]:
    job = await admission.submitted()
    await admission.set_state(job, "RUNNING", run_number=1)
    return job, await admission.add_run(job, 1, node=node)


async def end(admission: Admission, job: str, run: str, log_bytes: int) -> None:
    await admission.end_run(run, log_bytes=log_bytes)
    await admission.set_state(job, "SUCCEEDED", run_number=1)


async def test_a_log_is_kept_once_whatever_is_sent_again(lone_admission: Admission) -> None:
    job, run = await job_with_run(lone_admission)
    async with channel(lone_admission) as socket:
        assert await send(socket, run, 0, b"one\ntwo\n") == {"type": "stored", "run_id": run, "offset": 8}
        assert (await send(socket, run, 0, b"one\ntwo\n"))["offset"] == 8
        assert (await send(socket, run, 4, b"two\nthree\n"))["offset"] == 14
        assert (await send(socket, run, 20, b"far beyond"))["offset"] == 14
    async with channel(lone_admission) as socket:
        await socket.send(json.dumps({"type": "log_end", "run_id": run, "size": 18}))
        assert json.loads(await socket.recv()) == {"type": "stored", "run_id": run, "offset": 14}
        assert (await send(socket, run, 14, b"end"))["offset"] == 17
    assert await read(lone_admission, job) == b"one\ntwo\nthree\nend"


async def test_a_reader_that_follows_gets_each_byte_and_ends_by_itself(lone_admission: Admission) -> None:
    job, run = await job_with_run(lone_admission)
    size = 20 * 1024 * 1024
    content = b"".join(b"%d\n" % number for number in range(3_000_000))[:size]
    following = asyncio.create_task(read(lone_admission, job, follow=True))
    async with channel(lone_admission) as socket:
        await send(socket, run, 0, content[:100])
        await until(lambda: _streams(lone_admission), "the reader follows")
        await end(lone_admission, job, run, size)
        for offset in range(100, size, FRAME):
            await send(socket, run, offset, content[offset : offset + FRAME])
    assert await following == content
    assert await read(lone_admission, job, follow=True) == content
    assert await read(lone_admission, job) == content


async def _streams(admission: Admission) -> bool:
    metrics = (await admission.client.get("/metrics")).text
    return "makeway_streams_open 1.0" in metrics


async def test_the_runs_of_a_job_come_one_after_the_other(lone_admission: Admission) -> None:
    job, first = await job_with_run(lone_admission)
    following = asyncio.create_task(read(lone_admission, job, follow=True))
    async with channel(lone_admission) as socket:
        await send(socket, first, 0, b"first run\nBYE\n")
        await lone_admission.end_run(first, log_bytes=14)
        await lone_admission.set_state(job, "QUEUED", run_number=1)
        second = await lone_admission.add_run(job, 2)
        await lone_admission.set_state(job, "RUNNING", run_number=2)
        await send(socket, second, 0, b"second run, no newline")
        await end(lone_admission, job, second, 22)
    assert await following == b"first run\nBYE\nsecond run, no newline"
    assert await read(lone_admission, job, run="2") == b"second run, no newline"
    assert await read(lone_admission, job, run="1", follow=True) == b"first run\nBYE\n"
    assert await read(lone_admission, job, tail=2) == b"BYE\nsecond run, no newline"
    assert await read(lone_admission, job, tail=0) == b""
    assert await read(lone_admission, job, tail=100) == b"first run\nBYE\nsecond run, no newline"


async def test_a_job_that_wrote_nothing_has_an_empty_log(lone_admission: Admission) -> None:
    job, run = await job_with_run(lone_admission)
    await end(lone_admission, job, run, 0)
    assert await read(lone_admission, job, follow=True) == b""
    never_ran = await lone_admission.submitted()
    assert await read(lone_admission, never_ran) == b""
    await lone_admission.set_state(never_ran, "CANCELLED")
    assert await read(lone_admission, never_ran, follow=True) == b""


async def test_what_never_comes_is_said_and_the_stream_ends(
    lone_admission: Admission, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("makeway_admission.logs.LAST_BYTES_SECONDS", 0.2)
    job, run = await job_with_run(lone_admission)
    async with channel(lone_admission) as socket:
        await send(socket, run, 0, b"\xffpart")
    await end(lone_admission, job, run, 100)
    headers = {"Accept": "text/event-stream"}
    async with lone_admission.client.stream("GET", f"/v1/jobs/{job}/logs", headers=headers) as answer:
        events = [each async for each in server_sent_events(answer.aiter_lines())]
    assert [each["event"] for each in events] == ["log", "note", "end"]
    assert base64.b64decode(events[0]["data"]["data"]) == b"\xffpart"
    assert (events[0]["id"], events[0]["data"]["run"], events[0]["data"]["offset"]) == ("1:5", 1, 0)
    assert "95 bytes of run 1" in events[1]["data"]["message"]
    assert await read(lone_admission, job, follow=True) == b"\xffpart"


async def test_a_reader_of_events_goes_on_from_its_cursor(lone_admission: Admission) -> None:
    job, run = await job_with_run(lone_admission)
    async with channel(lone_admission) as socket:
        await send(socket, run, 0, b"0123456789")
    await end(lone_admission, job, run, 10)
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "1:4"}
    async with lone_admission.client.stream("GET", f"/v1/jobs/{job}/logs", headers=headers) as answer:
        events = [each async for each in server_sent_events(answer.aiter_lines())]
    assert base64.b64decode(events[0]["data"]["data"]) == b"456789"


@pytest.mark.parametrize("parameters", [{"run": "0"}, {"run": "x"}, {"run": "-1"}, {"tail": "-1"}, {"tail": "x"}])
async def test_a_reader_that_asks_for_nonsense_is_told_which_field(
    lone_admission: Admission, parameters: dict[str, str]
) -> None:
    job = await lone_admission.submitted()
    answer = await lone_admission.client.get(f"/v1/jobs/{job}/logs", params=parameters)
    assert answer.status_code == 422
    assert [each["field"] for each in answer.json()["fields"]] == list(parameters)
    missing = await lone_admission.client.get(f"/v1/jobs/{job}/logs", params={"run": "7"})
    assert missing.status_code == 404


async def test_a_node_sends_only_for_itself_and_for_its_own_runs(lone_admission: Admission) -> None:
    job, run = await job_with_run(lone_admission, node="n2")
    async with channel(lone_admission) as socket:
        for name in (run, f"{job}.7", "000000000000.1"):
            answer = await send(socket, name, 0, b"x")
            assert (answer["type"], answer["run_id"]) == ("refused", name)
    assert await read(lone_admission, job) == b""
    submitter = await lone_admission.token(role="submitter")
    for node, token, status in (("n2", NODE, 403), ("n1", submitter, 403), ("n1", "mw_x_" + "y" * 30, 401)):
        with pytest.raises(InvalidStatus) as refused:
            async with channel(lone_admission, node=node, token=token):
                pass
        assert refused.value.response.status_code == status


async def test_a_refused_channel_is_no_error_of_the_server(
    lone_admission: Admission, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidStatus):
        async with channel(lone_admission, token="mw_x_" + "y" * 30):
            pass
    # The handshake's task ends before the next request is answered.
    await lone_admission.get("/healthz")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    "frames",
    [
        ["nonsense"],
        [b"binary first"],
        ['{"type": "log", "run_id": "../../etc/passwd", "offset": 0, "size": 1}', b"x"],
        ['{"type": "log", "run_id": "RUN", "offset": -1, "size": 1}', b"x"],
        ['{"type": "log", "run_id": "RUN", "offset": 0, "size": 5}', b"x"],
        ['{"type": "log", "run_id": "RUN", "offset": 0, "size": 1}', "text"],
        ['{"type": "log", "run_id": "RUN", "offset": 0, "size": 300000}'],
        ['{"type": "log", "run_id": "RUN", "offset": 0, "size": 1}', b"x" * (FRAME + 1)],
        ['{"type": "shell", "run_id": "RUN"}'],
        [" " * 5000],
    ],
)
async def test_a_node_that_breaks_the_protocol_is_let_go_and_nothing_is_kept(
    lone_admission: Admission, frames: list[str | bytes]
) -> None:
    job, run = await job_with_run(lone_admission)
    async with channel(lone_admission) as socket:
        for frame in frames:
            await socket.send(frame.replace("RUN", run) if isinstance(frame, str) else frame)
        with pytest.raises(ConnectionClosed):
            await socket.recv()
    assert await read(lone_admission, job) == b""


async def test_a_newer_channel_of_a_node_takes_over(lone_admission: Admission) -> None:
    _, run = await job_with_run(lone_admission)
    async with channel(lone_admission) as older, channel(lone_admission) as newer:
        with pytest.raises(ConnectionClosed):
            await older.recv()
        assert (await send(newer, run, 0, b"x"))["offset"] == 1


async def test_a_node_whose_token_is_revoked_is_let_go(lone_admission: Admission) -> None:
    _, run = await job_with_run(lone_admission)
    async with channel(lone_admission) as socket:
        await send(socket, run, 0, b"x")
        assert (await lone_admission.client.delete("/v1/tokens/node1")).status_code == 200
        with pytest.raises(ConnectionClosed):
            await send(socket, run, 1, b"y")


async def test_a_node_is_asked_to_come_back_while_the_database_cannot_be_asked(lone_admission: Admission) -> None:
    _, run = await job_with_run(lone_admission)
    async with lone_admission.database.transaction():
        await lone_admission.database.execute("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE")
        async with channel(lone_admission) as socket:
            with pytest.raises(ConnectionClosed) as closed:
                await send(socket, run, 0, b"x")
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1013, "the database is out of reach or busy")
    async with channel(lone_admission) as socket:
        assert (await send(socket, run, 0, b"x"))["offset"] == 1


async def test_a_log_that_is_full_is_refused_and_others_go_on(tmp_path: Path, database: servers.Database) -> None:
    settings = harness.settings_for(tmp_path, database, harness.NO_KAFKA, log_run_max_bytes=4)
    async with harness.running(settings, database) as admission:
        _, run = await job_with_run(admission)
        _, other = await job_with_run(admission)
        async with channel(admission) as socket:
            assert (await send(socket, run, 0, b"12345"))["type"] == "refused"
            assert (await send(socket, other, 0, b"1234"))["offset"] == 4
