"""Histories as server-sent events: from any cursor, then live, to the terminal event."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import admission_harness as harness
import servers
from admission_harness import Admission, bearer, server_sent_events
from makeway_runtime.cloudevents import EventHeaders, to_headers
from makeway_runtime.kafka.messages import Outgoing
from makeway_runtime.kafka.publisher import Publisher
from makeway_schemas.topics import JOB_EVENTS


async def _events(
    admission: Admission, path: str, *, last: int | None = None, **parameters: Any
) -> list[dict[str, Any]]:
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    async with admission.client.stream("GET", path, params=parameters, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        return [each async for each in server_sent_events(answer.aiter_lines())]


async def test_a_history_is_told_in_order_and_ends_after_its_terminal_event(lone_admission: Admission) -> None:
    job = await lone_admission.submitted()
    numbers = [
        await lone_admission.add_event(job, kind, state)
        for kind, state in (("queued", "QUEUED"), ("started", "RUNNING"))
    ]

    async def end() -> None:
        await asyncio.sleep(0.2)
        numbers.append(await lone_admission.add_event(job, "ended", "SUCCEEDED"))

    ending = asyncio.create_task(end())
    events = await _events(lone_admission, f"/v1/jobs/{job}/events")
    await ending
    assert [int(each["id"]) for each in events] == numbers
    assert [each["event"] for each in events] == ["queued", "started", "ended"]
    told = events[-1]["data"]
    assert (told["sequence"], told["job_id"], told["kind"], told["state"]) == (numbers[-1], job, "ended", "SUCCEEDED")


async def test_a_reader_comes_back_with_its_cursor_and_misses_and_doubles_nothing(lone_admission: Admission) -> None:
    job = await lone_admission.submitted()
    numbers = [await lone_admission.add_event(job, "step", "RUNNING") for _ in range(450)]
    first = await _events(lone_admission, f"/v1/jobs/{job}/events", follow=False)
    assert [int(each["id"]) for each in first] == numbers
    rest = await _events(lone_admission, f"/v1/jobs/{job}/events", last=numbers[399], follow=False)
    assert [int(each["id"]) for each in rest] == numbers[400:]
    same = await _events(lone_admission, f"/v1/jobs/{job}/events", follow=False, cursor=numbers[399])
    assert same == rest


async def test_a_reader_that_comes_back_after_the_end_is_told_to_stop(lone_admission: Admission) -> None:
    job = await lone_admission.submitted()
    last = await lone_admission.add_event(job, "ended", "FAILED")
    await lone_admission.set_state(job, "FAILED")
    answer = await lone_admission.client.get(f"/v1/jobs/{job}/events", headers={"Last-Event-ID": str(last)})
    assert answer.status_code == 204
    assert [each["event"] for each in await _events(lone_admission, f"/v1/jobs/{job}/events")] == ["ended"]


async def test_a_cursor_of_another_kind_is_refused(lone_admission: Admission) -> None:
    job = await lone_admission.submitted()
    answer = await lone_admission.client.get(f"/v1/jobs/{job}/events", headers={"Last-Event-ID": "x" * 30})
    assert (answer.status_code, answer.json()["fields"][0]["field"]) == (422, "cursor")


async def test_the_stream_of_a_team_has_its_jobs_alone(lone_admission: Admission) -> None:
    mine, theirs = await lone_admission.submitted(team="team-a"), await lone_admission.submitted(team="team-b")
    for job in (mine, theirs, mine):
        await lone_admission.add_event(job, "step", "RUNNING")
    token = await lone_admission.token(role="viewer", team="team-a")
    headers = bearer(token) | {"Last-Event-ID": "0"}
    async with lone_admission.client.stream("GET", "/v1/events", params={"follow": False}, headers=headers) as answer:
        events = [each async for each in server_sent_events(answer.aiter_lines())]
    assert [each["data"]["job_id"] for each in events] == [mine, mine]
    everything = await _events(lone_admission, "/v1/events", last=0, follow=False)
    assert [each["data"]["job_id"] for each in everything] == [mine, theirs, mine]


async def test_a_message_of_job_events_wakes_the_reader_at_once(
    admission: Admission, kafka_server: servers.KafkaAddress
) -> None:
    job = await admission.submitted()
    publisher = Publisher(admission.settings, client="test", topics=[JOB_EVENTS])
    await publisher.start()
    loop = asyncio.get_running_loop()
    delays = []
    try:
        async with admission.client.stream("GET", f"/v1/jobs/{job}/events") as answer:
            stream = server_sent_events(answer.aiter_lines())
            await admission.add_event(job, "first", "RUNNING")
            assert (await anext(stream))["event"] == "first"
            await asyncio.sleep(1.0)  # until the consumer reads: before that the reader looks by itself, more often
            for number in range(5):
                await asyncio.sleep(0.1 * number)
                await admission.add_event(job, "step", "RUNNING")
                began = loop.time()
                event = EventHeaders(id=f"{job}/{number}", type="t", source="s", time=datetime.now(UTC))
                await publisher.publish(
                    [Outgoing(topic=JOB_EVENTS.name, key=job.encode(), value=b"{}", headers=to_headers(event))]
                )
                assert (await anext(stream))["event"] == "step"
                delays.append(loop.time() - began)
    finally:
        await publisher.stop()
    assert sorted(delays)[2] < 0.3, delays


async def test_only_so_many_streams_are_open_at_once(tmp_path: Path, database: servers.Database) -> None:
    settings = harness.settings_for(tmp_path, database, harness.NO_KAFKA, max_streams=1)
    async with harness.running(settings, database) as admission:
        job = await admission.submitted()
        path = f"/v1/jobs/{job}/events"
        async with admission.client.stream("GET", path) as first:
            assert first.status_code == 200
            second = await admission.client.get(path)
            assert (second.status_code, second.json()["code"]) == (429, "too_many_streams")

        async def free_again() -> bool:
            return (await admission.client.get(path, params={"follow": False})).status_code == 200

        await harness.until(free_again, "the slot of a reader that went is free again")
