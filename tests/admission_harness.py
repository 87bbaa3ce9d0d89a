"""Admission as a running service in the test's own process, on the real servers, and the scheduler's rows by hand."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import servers
from makeway_admission.app import AdmissionService
from makeway_admission.settings import AdmissionSettings
from makeway_schemas.facts import Fact, FactBatch
from makeway_schemas.ids import run_id
from makeway_schemas.topics import SCHEDULER_INBOX

DEADLINE_SECONDS = 30.0
ADMIN = "mw_admin0_" + "a" * 32
NODE = "mw_node1_" + "b" * 32
NO_KAFKA = servers.KafkaAddress(bootstrap="127.0.0.1:9", username=None, password=None)


@dataclass
class Admission:
    """A running admission: a client with the admin's token, and the superuser's connection to its database."""

    settings: AdmissionSettings
    url: str
    client: httpx.AsyncClient
    database: "asyncpg.Connection[asyncpg.Record]"
    end: Callable[[], Awaitable[None]]

    async def submit(self, *, token: str = ADMIN, key: str | None = None, **fields: Any) -> httpx.Response:
        headers = {**bearer(token), **({"Idempotency-Key": key} if key is not None else {})}
        return await self.client.post("/v1/jobs", json={"command": ["true"], **fields}, headers=headers)

    async def submitted(self, **fields: Any) -> str:
        """The id of a new job."""
        answer = await self.submit(**fields)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["job_id"])

    async def get(self, path: str, *, token: str = ADMIN, **parameters: Any) -> Any:
        answer = await self.client.get(path, params=parameters, headers=bearer(token))
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def token(self, **fields: Any) -> str:
        """The text of a new token."""
        answer = await self.client.post("/v1/tokens", json=fields)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

    async def set_team(self, team: str, **fields: Any) -> None:
        answer = await self.client.put(f"/v1/teams/{team}", json=fields)
        assert answer.status_code == 200, answer.text

    async def count(self, table: str) -> int:
        return int(await self.database.fetchval(f"SELECT count(*) FROM {table}"))

    async def set_state(self, job_id: str, state: str, **columns: Any) -> None:
        """Makes the scheduler's row of a job say so."""
        ended = state in ("SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT", "EXPIRED")
        await self.database.execute(
            "INSERT INTO job_states (job_id, pool_id, team_id, state, queued_since, ended_at, run_number) "
            "SELECT job_id, pool_id, team_id, $2, now(), CASE WHEN $3 THEN now() END, $4 FROM jobs WHERE job_id = $1 "
            "ON CONFLICT (job_id) DO UPDATE SET state = EXCLUDED.state, ended_at = EXCLUDED.ended_at, "
            "run_number = EXCLUDED.run_number",
            job_id,
            state,
            ended,
            columns.get("run_number", 0),
        )

    async def add_event(self, job_id: str, kind: str, state: str) -> int:
        return int(
            await self.database.fetchval(
                "INSERT INTO job_events (pool_id, job_id, at, kind, state) VALUES ($1, $2, now(), $3, $4) "
                "RETURNING event_id",
                self.settings.pool,
                job_id,
                kind,
                state,
            )
        )

    async def add_run(self, job_id: str, number: int, *, node: str = "n1") -> str:
        name = run_id(job_id, number)
        await self.database.execute(
            "INSERT INTO runs (run_id, job_id, run_number, pool_id, node_id, state, value, gpus, planned_at) "
            "VALUES ($1, $2, $3, $4, $5, 'RUNNING', 500, '[]', now())",
            name,
            job_id,
            number,
            self.settings.pool,
            node,
        )
        return name

    async def end_run(self, run: str, *, log_bytes: int) -> None:
        await self.database.execute(
            "UPDATE runs SET state = 'EXITED', ended_at = now(), end_cause = 'done', log_bytes = $2 WHERE run_id = $1",
            run,
            log_bytes,
        )


async def add_node(admission: Admission, node: str, gpus: int) -> None:
    """Makes the scheduler's rows say that the pool has a node with GPUs GPU-0, GPU-1, ..."""
    pool = admission.settings.pool
    await admission.database.execute("INSERT INTO pools (pool_id, epoch, owner) VALUES ($1, 7, 'me')", pool)
    await admission.database.execute(
        "INSERT INTO nodes (node_id, pool_id, state, session, boot_id, simulated, cpus, memory_mib) "
        "VALUES ($1, $2, 'READY', 's', 'b', true, 8, 1024)",
        node,
        pool,
    )
    for index in range(gpus):
        await admission.database.execute(
            "INSERT INTO gpus (gpu_id, node_id, gpu_index, type_name, capacity_mib) VALUES ($1, $2, $3, 'A100', 80000)",
            f"GPU-{index}",
            node,
            index,
        )


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def settings_for(
    folder: Path, database: servers.Database, kafka: servers.KafkaAddress, **values: Any
) -> AdmissionSettings:
    return AdmissionSettings.model_validate(
        {
            "pool": f"p{secrets.token_hex(4)}",
            "state_dir": folder / "state",
            "runtime_dir": folder / "run",
            "postgres_dsn": database.role_dsn("makeway_admission"),
            "kafka_bootstrap": kafka.bootstrap,
            "kafka_username": kafka.username,
            "kafka_password": kafka.password,
            "kafka_publish_timeout_seconds": 2.0,
            "kafka_stop_timeout_seconds": 0.5,
            "bootstrap_token": ADMIN,
            "node_tokens": {"n1": NODE},
            **values,
        }
    )


@asynccontextmanager
async def running(settings: AdmissionSettings, database: servers.Database) -> AsyncIterator[Admission]:
    service = AdmissionService(settings)
    await service.start()
    work = asyncio.create_task(service.run())

    async def end() -> None:
        if work.cancel():
            with suppress(asyncio.CancelledError):
                await work
            await service.stop()

    connection = await asyncpg.connect(database.dsn)
    try:
        await until(lambda: _exists(settings.port_file), "admission listens")
        url = f"http://127.0.0.1:{settings.port_file.read_text().strip()}"
        async with httpx.AsyncClient(base_url=url, headers=bearer(ADMIN), timeout=DEADLINE_SECONDS) as client:
            yield Admission(settings=settings, url=url, client=client, database=connection, end=end)
    finally:
        await connection.close()
        await end()


async def until(condition: Callable[[], Awaitable[bool]], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Waits for a condition; fails with what was waited for."""
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(0.02)


async def _exists(path: Path) -> bool:
    return path.exists()


class InboxReader:
    """Reads the facts of one pool from the beginning of its partition."""

    def __init__(self, kafka: servers.KafkaAddress, pool: str) -> None:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        options: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap, "auto_offset_reset": "earliest"}
        if kafka.password is not None:
            options |= {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": kafka.username,
                "sasl_plain_password": kafka.password,
            }
        self._consumer = AIOKafkaConsumer(**options)
        self._place = TopicPartition(SCHEDULER_INBOX.name, SCHEDULER_INBOX.partition_of(pool))
        self._pool = pool
        self.batches: list[FactBatch] = []

    @property
    def facts(self) -> list[Fact]:
        return [fact for batch in self.batches for fact in batch.facts]

    async def __aenter__(self) -> "InboxReader":
        await self._consumer.start()
        self._consumer.assign([self._place])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def read(self) -> None:
        """Adds what has come."""
        found = await self._consumer.getmany(timeout_ms=100)
        for records in found.values():
            self.batches += [
                FactBatch.model_validate_json(record.value) for record in records if record.key == self._pool.encode()
            ]

    async def has(self, count: int) -> bool:
        await self.read()
        return len({fact.id for fact in self.facts}) >= count


async def server_sent_events(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, Any]]:
    """Each event of a stream: id, event, data."""
    event: dict[str, Any] = {}
    async for line in lines:
        if not line:
            if "data" in event:
                yield event
            event = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = json.loads(value) if name == "data" else value


def job_ids(facts: Sequence[Fact]) -> list[str]:
    return [fact.job.job_id for fact in facts if fact.kind == "job_admitted"]
