"""Jobs that are admitted: one transaction for many, and the outbox of the facts that tell of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from makeway_runtime.postgres.outbox import OutboxRow, OutboxStore
from makeway_runtime.postgres.pool import Connection
from makeway_runtime.postgres.queries import load_queries

from makeway_admission.facts import compose, fact_row

_QUERIES: Final = load_queries("makeway_admission")
_ADMIT_JOBS: Final[str] = _QUERIES.admit_jobs.sql


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A job that passed every check but those of its team. `spec` is its JSON text."""

    job_id: str
    team: str
    name: str
    class_name: str
    spec: str
    whole_gpus: int
    class_needs_allowance: bool
    not_preemptible: bool
    hard_group: bool
    submitted_by: str
    traceparent: str | None = None
    key: str | None = None
    request_hash: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenJob:
    """What the transaction made of one request; with a fact to publish where it was new."""

    outcome: str
    job_id: str
    name: str
    bound: int | None
    outbox_id: int | None
    fact: str


async def admit_jobs(
    connection: Connection, pool: str, published: Sequence[int], requests: Sequence[JobRequest]
) -> list[WrittenJob]:
    """One transaction for all requests, each answered in its place. Raises what asyncpg raises."""
    # Through the statement itself: aiosql's wrapper costs more than the rest of a submit's way to the database.
    rows = await connection.fetch(
        _ADMIT_JOBS,
        pool,
        published,
        [each.job_id for each in requests],
        [each.team for each in requests],
        [each.name for each in requests],
        [each.class_name for each in requests],
        [each.spec for each in requests],
        [each.whole_gpus for each in requests],
        [each.class_needs_allowance for each in requests],
        [each.not_preemptible for each in requests],
        [each.hard_group for each in requests],
        [each.submitted_by for each in requests],
        [each.traceparent for each in requests],
        [each.key for each in requests],
        [each.request_hash for each in requests],
    )
    return [
        WrittenJob(
            outcome=row["outcome"],
            job_id=row["job_id"],
            name=row["job_name"],
            bound=row["bound"],
            outbox_id=row["outbox_id"],
            fact=row["fact"] or "",
        )
        for row in rows
    ]


def outbox_store(pool: str) -> OutboxStore:
    """The outbox of a pool's facts."""

    async def fetch_older_than(connection: Connection, age_seconds: float, limit: int) -> list[OutboxRow]:
        rows = _QUERIES.outbox_older_than(connection, pool=pool, age_seconds=age_seconds, row_limit=limit)
        return [fact_row(row["outbox_id"], pool, row["fact"]) async for row in rows]

    async def delete(connection: Connection, ids: Sequence[int]) -> None:
        await _QUERIES.delete_outbox(connection, ids=list(ids))

    return OutboxStore(shard=f"admission/{pool}", fetch_older_than=fetch_older_than, delete=delete, compose=compose)
