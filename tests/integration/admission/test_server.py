"""What the server bounds before it knows who is there, and how it ends."""

import asyncio
import contextlib
import ssl
from pathlib import Path

import admission_harness as harness
import pytest
import servers
from admission_harness import Admission
from makeway_admission import server


async def _raw(admission: Admission) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = admission.url.removeprefix("http://").partition(":")
    return await asyncio.open_connection(host, int(port))


@pytest.mark.parametrize("pieces", [1, 100])
async def test_a_head_that_does_not_end_is_cut_off(lone_admission: Admission, pieces: int) -> None:
    reader, writer = await _raw(lone_admission)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
    for number in range(pieces):
        writer.write(b"X-%d: %s\r\n" % (number, b"x" * (100_000 // pieces)))
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), 5)
    assert b"400" in answer
    writer.close()
    assert (await lone_admission.client.get("/healthz")).status_code == 200


async def test_a_body_that_comes_in_one_piece_with_its_head_is_read(lone_admission: Admission) -> None:
    reader, writer = await _raw(lone_admission)
    body = b'{"command": ["true"]' + b" " * 200_000 + b"}"
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {harness.ADMIN}\r\nContent-Length: {len(body)}"
    writer.write(head.encode() + b"\r\n\r\n" + body)
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n"), 5)).startswith(b"HTTP/1.1 201")
    writer.close()


async def test_a_client_that_sends_no_head_in_time_is_let_go(
    lone_admission: Admission, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.1)
    for opening in (b"", b"GET / HTTP/1.1\r\nX: "):
        reader, writer = await _raw(lone_admission)
        writer.write(opening)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
    reader, writer = await _raw(lone_admission)
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    writer.write(request)
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
    writer.close()


@pytest.mark.parametrize("rest", [b"Content-Length: 100000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n5;"])
async def test_a_request_that_goes_on_after_its_answer_is_let_go(
    lone_admission: Admission, monkeypatch: pytest.MonkeyPatch, rest: bytes
) -> None:
    monkeypatch.setattr(server, "UNREAD_SECONDS", 0.2)
    reader, writer = await _raw(lone_admission)
    writer.write(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\n" + rest)
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n"), 5)).startswith(b"HTTP/1.1 401")

    async def trickle() -> None:
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.05)

    trickling = asyncio.create_task(trickle())
    with contextlib.suppress(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 5)
    trickling.cancel()
    writer.close()


async def test_a_body_that_comes_after_its_answer_leaves_the_connection_open(lone_admission: Admission) -> None:
    reader, writer = await _raw(lone_admission)
    writer.write(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n")
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n"), 5)).startswith(b"HTTP/1.1 401")
    writer.write(b"{}GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"HTTP/1.1 200" in await asyncio.wait_for(reader.readuntil(b"HTTP/1.1 200"), 5)
    writer.close()


async def test_trailers_are_bounded(lone_admission: Admission) -> None:
    reader, writer = await _raw(lone_admission)
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {harness.ADMIN}\r\n"
    writer.write(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
    writer.write(b"a: b\r\n" * 50_000)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()


async def test_streams_end_and_open_requests_are_answered_when_the_service_ends(
    tmp_path: Path, database: servers.Database
) -> None:
    settings = harness.settings_for(tmp_path, database, harness.NO_KAFKA)
    async with harness.running(settings, database) as admission:
        job = await admission.submitted()
        client = admission.client
        following = asyncio.create_task(client.get(f"/v1/jobs/{job}/events"))
        await harness.until(lambda: _follows(admission), "the reader follows")
        # Held back by a lock until after the service was told to end.
        await admission.database.execute("BEGIN")
        await admission.database.execute("SELECT 1 FROM teams WHERE team_id = 'default' FOR UPDATE")
        submitting = asyncio.create_task(admission.submit())
        await harness.until(lambda: _waits_for_a_lock(admission), "the submit waits")
        ending = asyncio.create_task(admission.end())
        assert (await asyncio.wait_for(following, 5)).status_code == 200
        await admission.database.execute("ROLLBACK")
        assert (await asyncio.wait_for(submitting, 5)).status_code == 201
        await asyncio.wait_for(ending, 5)
        assert not settings.port_file.exists()


async def _follows(admission: Admission) -> bool:
    return "makeway_streams_open 1.0" in (await admission.client.get("/metrics")).text


async def _waits_for_a_lock(admission: Admission) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return bool(await admission.database.fetchval(query))


async def test_with_a_certificate_it_speaks_tls_alone(
    tmp_path: Path, database: servers.Database, tls_file: Path
) -> None:
    import httpx

    tls = {"http_tls_certificate_file": tls_file, "http_tls_key_file": tls_file}
    settings = harness.settings_for(tmp_path, database, harness.NO_KAFKA, **tls)
    async with harness.running(settings, database) as admission:
        trusted = ssl.create_default_context(cafile=str(tls_file))
        async with httpx.AsyncClient(verify=trusted) as client:
            answer = await client.get(admission.url.replace("http:", "https:") + "/healthz")
            assert answer.status_code == 200
            with pytest.raises(httpx.TransportError):
                await client.get(admission.url + "/healthz")
