"""Streams that are open when their token ends: they end with it, and whoever comes back is told why."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from admission_harness import Admission, bearer
from makeway.client import Client
from makeway.errors import Refused

SOON_SECONDS = 1.5
EVENTS = {"Accept": "text/event-stream"}
Ending = Callable[[Admission, dict[str, Any]], Awaitable[object]]


async def _revoked_here(admission: Admission, token: dict[str, Any]) -> None:
    assert (await admission.client.delete(f"/v1/tokens/{token['token_id']}")).status_code == 200


async def _revoked_elsewhere(admission: Admission, token: dict[str, Any]) -> None:
    await admission.database.execute("UPDATE tokens SET revoked_at = now() WHERE token_id = $1", token["token_id"])


async def _expired(admission: Admission, token: dict[str, Any]) -> None:
    await admission.database.execute("UPDATE tokens SET expires_at = now() WHERE token_id = $1", token["token_id"])


async def _viewer(admission: Admission, **fields: Any) -> dict[str, Any]:
    answer = await admission.client.post("/v1/tokens", json={"role": "viewer", **fields})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def _running(admission: Admission) -> str:
    job = await admission.submitted()
    await admission.set_state(job, "RUNNING", run_number=1)
    await admission.add_run(job, 1, node="n1")
    return job


async def _rest(parts: AsyncIterator[bytes]) -> bytes:
    async with asyncio.timeout(SOON_SECONDS):
        return b"".join([each async for each in parts])


@pytest.mark.parametrize("end", [_revoked_here, _revoked_elsewhere, _expired])
@pytest.mark.parametrize("path", ["/v1/events", "/v1/jobs/{job}/events", "/v1/jobs/{job}/logs?follow=true"])
async def test_a_stream_of_events_ends_with_its_token_and_says_so(
    lone_admission: Admission, path: str, end: Ending
) -> None:
    url, token = path.format(job=await _running(lone_admission)), await _viewer(lone_admission)
    headers = bearer(token["token"]) | EVENTS
    async with lone_admission.client.stream("GET", url, headers=headers) as answer:
        assert answer.status_code == 200
        await end(lone_admission, token)
        told = await _rest(answer.aiter_raw())
    assert told.endswith(b": the token is unknown, revoked or expired\n\n")
    assert b"event: end" not in told
    assert (await lone_admission.client.get(url, headers=headers)).status_code == 401


@pytest.mark.parametrize("end", [_revoked_here, _revoked_elsewhere, _expired])
async def test_a_raw_log_is_cut_with_its_token_so_that_nobody_takes_it_for_whole(
    lone_admission: Admission, end: Ending
) -> None:
    url, token = f"/v1/jobs/{await _running(lone_admission)}/logs?follow=true", await _viewer(lone_admission)
    headers = bearer(token["token"])
    async with lone_admission.client.stream("GET", url, headers=headers) as answer:
        assert answer.status_code == 200
        await end(lone_admission, token)
        with pytest.raises(httpx.RemoteProtocolError):
            await _rest(answer.aiter_raw())
    assert (await lone_admission.client.get(url, headers=headers)).status_code == 401


async def test_a_stream_ends_when_its_tokens_time_comes(lone_admission: Admission) -> None:
    token = await _viewer(lone_admission, expires_in_seconds=1)
    async with lone_admission.client.stream("GET", "/v1/events", headers=bearer(token["token"])) as answer:
        assert answer.status_code == 200
        await _rest(answer.aiter_raw())


async def test_the_stream_of_another_token_goes_on(lone_admission: Admission) -> None:
    job, ended, kept = await _running(lone_admission), await _viewer(lone_admission), await _viewer(lone_admission)
    path = f"/v1/jobs/{job}/events"
    async with lone_admission.client.stream("GET", path, headers=bearer(kept["token"])) as answer:
        async with lone_admission.client.stream("GET", path, headers=bearer(ended["token"])) as other:
            await _revoked_here(lone_admission, ended)
            await _rest(other.aiter_raw())
        await lone_admission.add_event(job, "ended", "SUCCEEDED")
        assert b"event: ended" in await _rest(answer.aiter_raw())


async def test_the_client_says_that_its_token_ended_and_does_not_come_back_for_ever(lone_admission: Admission) -> None:
    job, token = await _running(lone_admission), await _viewer(lone_admission)
    with Client(lone_admission.url, token["token"]) as client:
        reading = asyncio.create_task(asyncio.to_thread(list, client.logs(job, follow=True)))
        while "makeway_streams_open 1.0" not in (await lone_admission.client.get("/metrics")).text:
            assert not reading.done()
            await asyncio.sleep(0.02)
        await _revoked_elsewhere(lone_admission, token)
        with pytest.raises(Refused) as refused:
            await asyncio.wait_for(reading, 5)
    assert refused.value.problem.status == 401
