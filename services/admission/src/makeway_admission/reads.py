"""What admission reads, as typed functions over `sql/queries.sql`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import asyncpg
from asyncpg.pool import Pool
from makeway_runtime.postgres.pool import lock_key
from makeway_runtime.postgres.queries import load_queries
from makeway_schemas.id_patterns import JOB_ID_LENGTH
from makeway_schemas.states import TERMINAL, JobState

from makeway_admission.access import Principal, Role, TokenRow

QUERIES: Final = load_queries("makeway_admission")
ACQUIRE_SECONDS: Final = 5.0

Record = asyncpg.Record

# A job that the scheduler has not met yet is QUEUED and has no row.
_ROWS_WITHOUT_END: Final = frozenset(JobState) - TERMINAL - {JobState.QUEUED}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs a page shows; None means any. `ended_after`: older ends are left out. `before` is the cursor."""

    team: str | None = None
    states: tuple[str, ...] | None = None
    class_name: str | None = None
    name: str | None = None
    labels: dict[str, str] | None = None
    node: str | None = None
    since: datetime | None = None
    ended_after: datetime | None = None
    before: int | None = None
    limit: int = 100


class Reads:
    """What is asked, each on a connection of the pool."""

    def __init__(self, connections: Pool[Record], pool: str) -> None:
        """`pool` is the pool of nodes that this admission serves."""
        self._connections = connections
        self._pool = pool

    async def keyed_job(self, team: str, key: str) -> Record | None:
        """The job that a key belongs to, with the hash of its request."""
        return await self._one("keyed_job", team=team, key=key)

    async def find_command(self, command_id: int) -> Record | None:
        """A command with its outcome, where it has one."""
        return await self._one("find_command", command_id=command_id)

    async def find_token(self, token_id: str) -> TokenRow | None:
        """A token's row, revoked or not."""
        row = await self._one("find_token", token_id=token_id)
        if row is None:
            return None
        principal = Principal(
            token_id=row["token_id"],
            name=row["label"] or row["token_id"],
            role=Role(row["role"]),
            team=row["team_id"],
            node=row["node_id"],
            classes=None if row["classes"] is None else frozenset(row["classes"]),
            expires_at=row["expires_at"],
        )
        return TokenRow(
            principal=principal,
            secret_hash=row["secret_hash"],
            expires_at=row["expires_at"],
            revoked_at=row["revoked_at"],
        )

    async def list_tokens(self, of: Principal) -> list[Record]:
        """Tokens that may no more than this one's team and classes."""
        classes = None if of.classes is None else sorted(of.classes)
        return await self._many("list_tokens", team=of.team, classes=classes)

    async def list_jobs(self, wanted: JobFilter) -> list[Record]:
        """A page of jobs, newest first."""
        filters: dict[str, Any] = {
            "pool": self._pool,
            "team": wanted.team,
            "before": wanted.before,
            "states": None if wanted.states is None else list(wanted.states),
            "since": wanted.since,
            "class_name": wanted.class_name,
            "name": wanted.name,
            "labels": wanted.labels,
            "node": wanted.node,
            "row_limit": wanted.limit,
        }
        if wanted.states is not None and _ROWS_WITHOUT_END.issuperset(wanted.states):
            return await self._many("list_live_jobs", **filters)
        return await self._many("list_jobs", ended_after=wanted.ended_after, **filters)

    async def get_job(self, job_id: str) -> Record | None:
        """One job with its specification."""
        return await self._one("get_job", job_id=job_id)

    async def job_head(self, job_id: str) -> Record | None:
        """Whose a job is and where it is."""
        return await self._one("job_head", job_id=job_id)

    async def runs_of_job(self, job_id: str) -> list[Record]:
        """All runs of a job."""
        return await self._many("runs_of_job", job_id=job_id)

    async def logs_of_runs(self, job_id: str) -> list[Record]:
        """How much each run of a job has written."""
        return await self._many("logs_of_runs", job_id=job_id)

    async def node_of_run(self, run_id: str) -> str | None:
        """The node that a run was planned on."""
        async with self._connections.acquire(timeout=ACQUIRE_SECONDS) as connection:
            node: str | None = await QUERIES.node_of_run(connection, run_id=run_id)
            return node

    async def jobs_by_name(self, name: str, team: str | None) -> list[str]:
        """The newest job of exactly that name."""
        return _ids(await self._many("jobs_by_name", name=name, team=team))

    async def jobs_by_prefix(self, prefix: str, team: str | None) -> list[str]:
        """Up to two jobs whose ids begin with `prefix`."""
        return _ids(
            await self._many("jobs_by_prefix", prefix=prefix, last_possible=prefix.ljust(JOB_ID_LENGTH, "z"), team=team)
        )

    async def last_job_of(self, submitted_by: str, team: str | None) -> list[str]:
        """The newest job of a submitter."""
        return _ids(await self._many("last_job_of", submitted_by=submitted_by, team=team))

    async def newest_decision(self, job_id: str) -> Record | None:
        """The decision in force."""
        return await self._one("newest_decision", job_id=job_id)

    async def staying_runs(self, runs: Sequence[str]) -> list[Record]:
        """Those of the runs that have not ended, each with whether it is told to leave."""
        return await self._many("staying_runs", runs=list(runs))

    async def drain_of_node(self, node: str) -> Record | None:
        """Who drains a node and why, with how many runs are still there and how many of them leave; None: nobody."""
        return await self._one("drain_of_node", node=node, pool=self._pool)

    async def standing_run(self, job_id: str) -> Record | None:
        """The newest run of a job: what it waits for, or why and until when it stops."""
        return await self._one("standing_run", job_id=job_id)

    async def unwell_gpus_of_run(self, run: str) -> list[Record]:
        """The GPUs of a run that take no new runs, each with why."""
        return await self._many("unwell_gpus_of_run", run=run)

    async def time_limit_of(self, job_id: str) -> float | None:
        """The time limit in seconds that a job has now; None where it has none."""
        row = await self._one("time_limit_of", job_id=job_id)
        return None if row is None else row["time_limit"]

    async def begin_of_job(self, job_id: str) -> datetime | None:
        """Before when a job may not begin; None where it may at any time."""
        async with self._connections.acquire(timeout=ACQUIRE_SECONDS) as connection:
            begin_at: datetime | None = await QUERIES.begin_of_job(connection, job_id=job_id)
            return begin_at

    async def waiting_groups(self) -> list[Record]:
        """Waiting jobs by class and priorities, with how many and since when."""
        return await self._many("waiting_groups", pool=self._pool)

    async def jobs_ahead(self, **conditions: Any) -> list[Record]:
        """Jobs ahead of one in the queue, the nearest of each group; `conditions` are those of the statement."""
        return await self._many("jobs_ahead", pool=self._pool, **conditions)

    async def events_of_job(self, job_id: str, after: int, limit: int) -> list[Record]:
        """A job's history after a cursor."""
        return await self._many("events_of_job", job_id=job_id, after=after, row_limit=limit)

    async def events_of_team(self, team: str | None, after: int, limit: int) -> list[Record]:
        """The history of a team's jobs after a cursor."""
        return await self._many("events_of_team", pool=self._pool, team=team, after=after, row_limit=limit)

    async def newest_event(self) -> int:
        """The newest cursor."""
        async with self._connections.acquire(timeout=ACQUIRE_SECONDS) as connection:
            return int(await QUERIES.newest_event(connection))

    async def list_nodes(self) -> list[Record]:
        """Nodes of the pool."""
        return await self._many("list_nodes", pool=self._pool)

    async def list_hardware(self) -> list[Record]:
        """GPUs of the pool without what is on them."""
        return await self._many("list_hardware", pool=self._pool)

    async def list_gpus(self) -> list[Record]:
        """GPUs of the pool."""
        return await self._many("list_gpus", pool=self._pool)

    async def job_counts(self) -> dict[str, int]:
        """Jobs by state."""
        return {row["state"]: row["jobs"] for row in await self._many("job_counts", pool=self._pool)}

    async def oldest_fact_seconds(self) -> float | None:
        """How long the oldest committed fact has waited to be published and forgotten; None when none waits."""
        async with self._connections.acquire(timeout=ACQUIRE_SECONDS) as connection:
            age: float | None = await QUERIES.oldest_fact_seconds(connection, pool=self._pool)
            return age

    async def pool_owner(self) -> Record | None:
        """Who decides for the pool, and how long (``silent_seconds``, None: unknown) it has given no sign of life."""
        return await self._one("pool_owner", pool=self._pool, lock_key=lock_key(f"pool/{self._pool}"))

    async def list_teams(self, team: str | None) -> list[Record]:
        """Teams with what they use."""
        return await self._many("list_teams", team=team)

    async def pool_gpus(self) -> int:
        """How many GPUs per cent of the pool are of."""
        async with self._connections.acquire(timeout=ACQUIRE_SECONDS) as connection:
            return int(await QUERIES.pool_gpus(connection, pool=self._pool))

    async def newest_policies(self, known: int) -> list[Mapping[str, Any]]:
        """Policies that were applied after number `known`, newest first."""
        return [dict(row) for row in await self._many("newest_policies", pool=self._pool, known=known)]

    async def live_jobs_by_class(self) -> dict[str, int]:
        """Jobs that have not ended, by class."""
        return {row["class_name"]: row["jobs"] for row in await self._many("live_jobs_by_class", pool=self._pool)}

    async def jobs_at_class_value(self, classes: Sequence[str], limit: int) -> list[Record]:
        """The first jobs of these classes that have not ended and have no other priority; `total` counts them all."""
        return await self._many("jobs_at_class_value", pool=self._pool, classes=list(classes), row_limit=limit)

    async def list_preemptions(
        self, *, team: str | None, job_id: str | None, before: int | None, limit: int
    ) -> list[Record]:
        """The newest preemptions."""
        return await self._many(
            "list_preemptions", pool=self._pool, team=team, job_id=job_id, before=before, row_limit=limit
        )

    async def _one(self, query: str, **parameters: Any) -> Record | None:
        async with self._connections.acquire(timeout=ACQUIRE_SECONDS) as connection:
            row: Record | None = await getattr(QUERIES, query)(connection, **parameters)
            return row

    async def _many(self, query: str, **parameters: Any) -> list[Record]:
        async with self._connections.acquire(timeout=ACQUIRE_SECONDS) as connection:
            return [row async for row in getattr(QUERIES, query)(connection, **parameters)]


def _ids(rows: Sequence[Record]) -> list[str]:
    return [row["job_id"] for row in rows]
