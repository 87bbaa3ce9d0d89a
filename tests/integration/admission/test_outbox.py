"""From the commit to the scheduler's inbox."""

import asyncio
from pathlib import Path

import admission_harness as harness
import servers
from admission_harness import Admission, InboxReader, until
from makeway.local.servers import ServerProcess

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_a_job_reaches_the_inbox_complete(admission: Admission, kafka_server: servers.KafkaAddress) -> None:
    spec = {"command": ["true"], "name": "训练", "gpus": 2, "time_limit": "1h", "class": "P3", "team": "team-a"}
    answer = await admission.client.post("/v1/jobs", json=spec, headers={"traceparent": TRACE})
    job = answer.json()["job_id"]
    async with InboxReader(kafka_server, admission.settings.pool) as inbox:
        await until(lambda: inbox.has(1), "the fact has come")
    (fact,) = inbox.facts
    assert fact.kind == "job_admitted"
    assert (fact.job.job_id, fact.job.pool, fact.job.team) == (job, admission.settings.pool, "team-a")
    assert (fact.job.class_name, fact.job.submitted_by, fact.traceparent) == ("low", "admin", TRACE)
    assert (fact.job.spec.gpus, fact.job.spec.time_limit, fact.job.spec.name) == (2, 3600.0, "训练")
    assert fact.job.submitted_at.tzinfo is not None


async def test_under_load_a_message_carries_many_facts_in_the_order_of_admission(
    admission: Admission, kafka_server: servers.KafkaAddress
) -> None:
    jobs = await asyncio.gather(*(admission.submitted() for _ in range(100)))
    async with InboxReader(kafka_server, admission.settings.pool) as inbox:
        await until(lambda: inbox.has(100), "all facts have come")
    assert sorted(harness.job_ids(inbox.facts)) == sorted(jobs)
    orders = [fact.job.order for fact in inbox.facts if fact.kind == "job_admitted"]
    assert orders == sorted(orders)
    assert len(inbox.batches) < 60

    async def forgotten() -> bool:
        return await admission.count("admission_outbox") == 0

    await until(forgotten, "published rows are deleted")


async def test_submits_succeed_without_a_broker_and_arrive_once_it_is_there(
    tmp_path: Path, database: servers.Database, own_kafka: ServerProcess
) -> None:
    address = servers.address_of(own_kafka)
    own_kafka.stop()
    settings = harness.settings_for(tmp_path / "admission", database, address)
    async with harness.running(settings, database) as admission:
        jobs = [await admission.submitted() for _ in range(5)]
        cancelled = await admission.client.delete(f"/v1/jobs/{jobs[0]}")
        assert cancelled.status_code == 202
        assert await admission.count("admission_outbox") == 6
        await asyncio.to_thread(own_kafka.start)
        async with InboxReader(address, settings.pool) as inbox:
            await until(lambda: inbox.has(6), "what was committed meanwhile has come")
        assert [fact.kind for fact in inbox.facts][:6] == ["job_admitted"] * 5 + ["command_issued"]
        assert harness.job_ids(inbox.facts)[:5] == jobs


async def test_what_a_dead_process_left_is_published_by_the_next(
    tmp_path: Path, database: servers.Database, kafka_server: servers.KafkaAddress
) -> None:
    nowhere = harness.settings_for(tmp_path / "first", database, harness.NO_KAFKA)
    async with harness.running(nowhere, database) as admission:
        job = await admission.submitted()
    again = harness.settings_for(tmp_path / "second", database, kafka_server, pool=nowhere.pool)
    async with harness.running(again, database), InboxReader(kafka_server, again.pool) as inbox:
        await until(lambda: inbox.has(1), "the sweeper has published it")
    assert harness.job_ids(inbox.facts)[:1] == [job]


async def test_health_says_that_facts_wait_for_the_broker(lone_admission: Admission) -> None:
    await lone_admission.submitted()
    await lone_admission.database.execute("UPDATE admission_outbox SET created_at = now() - interval '1 minute'")
    answer = await lone_admission.client.get("/healthz")
    assert (answer.status_code, answer.json()["healthy"]) == (503, False)
    assert "broker" in answer.json()["checks"]["outbox"]
