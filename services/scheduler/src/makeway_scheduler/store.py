"""The scheduler's statements on Postgres: load the pool, commit a batch, find what nobody told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import asyncpg
import structlog
from asyncpg.pool import Pool
from makeway_policy.model import Team
from makeway_policy.past_use import PastUse
from makeway_policy.rules import Policy
from makeway_runtime.errors import CommitUncertain
from makeway_runtime.postgres.queries import load_queries
from makeway_runtime.postgres.transient import is_connection_lost
from makeway_schemas.facts import CommandIssued, JobAdmitted, NodeCommandIssued

from makeway_scheduler.errors import Conflict, Fenced, Refused, Stale
from makeway_scheduler.ledger import Ledger, PolicyInForce
from makeway_scheduler.policy_values import synchronise
from makeway_scheduler.rows import admitted_of, command_of, gpu_of, job_of, node_of, percents_of, run_of
from makeway_scheduler.writes import Writes

_LOG: Final = structlog.get_logger(__name__)
_QUERIES: Final = load_queries("makeway_scheduler")
_RECENT_SECONDS: Final = 600.0
_EVER_SECONDS: Final = 10 * 365 * 86_400.0
_MOST_ROWS: Final = 5_000
HOURS_READ_SECONDS: Final = 60.0
MOST_UNAPPLIED: Final = 5_000
"""Jobs, and as many commands, that ``unapplied`` returns at once: the oldest."""

_OUR_STATES: Final = {"MW001": Fenced, "MW002": Conflict, "MW003": Stale, "55P03": Conflict, "40P01": Conflict}


@dataclass(frozen=True, kw_only=True, slots=True)
class Committed:
    """What the database answered: its clock, the ids of the events, the versions of the rows."""

    now: float
    event_ids: tuple[int, ...]
    gpus: Mapping[str, int]
    nodes: Mapping[str, int]


class Store:
    """One pool's rows."""

    def __init__(self, pool: Pool[asyncpg.Record], pool_id: str) -> None:
        """``pool`` are the connections, ``pool_id`` names the scheduling pool."""
        self._pool = pool
        self._pool_id = pool_id
        self._hours: Mapping[str, float] = {}
        self._hours_read_at: float | None = None

    async def take_pool(self, owner: str, heard: int) -> int:
        """Raise the pool's epoch above ``heard``; waits for the former owner's transaction. Returns the epoch."""
        record: Any = await _QUERIES.take_pool(self._pool, pool=self._pool_id, owner=owner, heard=heard)
        return int(record)

    async def give_sign(self) -> None:
        """Store that the pool's owner lives at this moment."""
        await _QUERIES.give_sign(self._pool, pool=self._pool_id)

    async def clock(self) -> float:
        """The database's clock, seconds since the epoch."""
        record = await _QUERIES.load_clock(self._pool)
        return float(record["now"])

    async def load(self, ledger: Ledger) -> None:
        """Fill an empty ledger with everything that has not ended."""
        nodes = [row async for row in _QUERIES.load_nodes(self._pool, pool=self._pool_id)]
        gpus = [row async for row in _QUERIES.load_gpus(self._pool, pool=self._pool_id)]
        jobs = [row async for row in _QUERIES.load_jobs(self._pool, pool=self._pool_id)]
        runs = [row async for row in _QUERIES.load_runs(self._pool, pool=self._pool_id)]
        floor = await _QUERIES.load_order_floor(self._pool, pool=self._pool_id)
        ledger.begin()
        for row in nodes:
            ledger.nodes.put(row["node_id"], node_of(row))
        for row in gpus:
            ledger.gpus.put(row["gpu_id"], gpu_of(row))
        for row in jobs:
            ledger.jobs.put(row["job_id"], job_of(self._pool_id, row))
        for row in runs:
            if row["job_id"] in ledger.jobs:
                ledger.runs.put(row["run_id"], run_of(row))
            else:
                # A restored database may hold a run without its job; one of them must not stop the pool.
                _LOG.error("a run without its job is passed over", run=row["run_id"])
        teams, ledger.teams_version = await self.load_teams()
        for team in teams:
            ledger.state.put_team(team)
        ledger.order_floor = int(floor["floor"])
        ledger.loaded_at = await self.clock()
        synchronise(ledger, ledger.loaded_at)
        for team_id, past in (await self.load_past_use(ledger.policy, ledger.state.team)).items():
            ledger.state.put_past_use(team_id, past)
        ledger.commit()

    async def load_teams(self) -> tuple[list[Team], int]:
        """The teams' rights and their version; in a pool where no team was set up, everything is allowed."""
        rows = [row async for row in _QUERIES.load_teams(self._pool)]
        any_configured = any(row["configured"] for row in rows)
        hours = await self._hours_of_month() if any(row["gpu_hours_per_month"] is not None for row in rows) else {}
        teams = [
            Team(
                team_id=row["team_id"],
                guarantee=float(row["guarantee"]),
                limit=None if row["gpu_limit"] is None else float(row["gpu_limit"]),
                weight=row["weight"],
                class_limits=row["class_limits"],
                user_limit=None if row["user_limit"] is None else float(row["user_limit"]),
                gpu_hours_per_month=row["gpu_hours_per_month"],
                gpu_hours_used=0.0 if row["gpu_hours_per_month"] is None else hours.get(row["team_id"], 0.0),
                allowances=row["allowances"] if any_configured else None,
                max_queued=row["max_queued"],
                percents=percents_of(row["percents"]),
            )
            for row in rows
        ]
        return teams, sum(row["version"] for row in rows)

    async def _hours_of_month(self) -> Mapping[str, float]:
        """GPU-hours of each team in this month, in hundredths; read once a minute, for it reads the month's runs."""
        now = time.monotonic()
        if self._hours_read_at is None or now - self._hours_read_at >= HOURS_READ_SECONDS:
            rows = [row async for row in _QUERIES.load_month_use(self._pool, pool=self._pool_id)]
            self._hours = {row["team_id"]: round(row["hours"], 2) for row in rows}
            self._hours_read_at = now
        return self._hours

    async def load_past_use(self, policy: Policy, rights: Callable[[str], Team]) -> dict[str, PastUse]:
        """What each team has used so far, from the runs that are kept; nothing where the policy does not count it.

        ``rights`` gives a team's by its id. What was within its guarantee is taken off the average, which is exact
        where its use was even.
        """
        half_life = policy.usage_half_life_seconds
        if half_life is None:
            return {}
        rows = [row async for row in _QUERIES.load_past_use(self._pool, pool=self._pool_id, half_life=half_life)]
        return {
            row["team_id"]: PastUse(
                average=max(0.0, row["average"] - rights(row["team_id"]).guarantee),
                since_then=0.0,
                as_of=row["now"],
            )
            for row in rows
        }

    async def load_policy_in_force(self) -> PolicyInForce:
        """The policy that the pool was decided by last; number 0 where it never was."""
        row = await _QUERIES.load_policy_in_force(self._pool, pool=self._pool_id)
        if row is None:
            return PolicyInForce(policy_id=0)
        return PolicyInForce(policy_id=row["policy_id"], settings_digest=row["settings_digest"])

    async def load_policies(self, known: int) -> list[tuple[int, Mapping[str, Any]]]:
        """The numbers and documents of policies that were applied after number ``known``, newest first."""
        rows = _QUERIES.load_policies(self._pool, pool=self._pool_id, known=known)
        return [(row["policy_id"], row["body"]) async for row in rows]

    async def commit(self, epoch: int, writes: Writes, *, skip_locked: bool) -> Committed:
        """Commit a batch in one call.

        Raises Fenced, Conflict, Stale, Refused (a constraint), CommitUncertain, or what asyncpg raises otherwise.
        """
        locks = writes.locks
        try:
            row = await _QUERIES.commit_batch(
                self._pool,
                pool=self._pool_id,
                epoch=epoch,
                skip_locked=skip_locked,
                job_ids=locks.job_ids,
                job_versions=locks.job_versions,
                node_ids=locks.node_ids,
                node_versions=locks.node_versions,
                gpu_ids=locks.gpu_ids,
                gpu_versions=locks.gpu_versions,
                writes=writes.body,
            )
        except asyncpg.PostgresError as error:
            raise _ours(error) from error
        except Exception as error:
            if is_connection_lost(error):
                raise CommitUncertain("the answer to a batch's commit was lost") from error
            raise
        result = row["result"]
        return Committed(
            now=float(result["now"]),
            event_ids=tuple(result["events"] or ()),
            gpus=result["gpus"],
            nodes=result["nodes"],
        )

    async def unapplied_of(self, job_ids: Sequence[str]) -> list[JobAdmitted]:
        """Those of these jobs that no scheduler has applied, as facts."""
        return [admitted_of(row) async for row in _QUERIES.find_unapplied_of(self._pool, job_ids=list(job_ids))]

    async def unapplied(self, *, ever: bool) -> list[JobAdmitted | CommandIssued | NodeCommandIssued]:
        """Jobs and commands that no scheduler has applied, of the last minutes or of all time."""
        seconds = _EVER_SECONDS if ever else _RECENT_SECONDS
        jobs = [
            admitted_of(row)
            async for row in _QUERIES.find_unapplied_jobs(
                self._pool, pool=self._pool_id, seconds=seconds, most=MOST_UNAPPLIED
            )
        ]
        commands = [
            command_of(row)
            async for row in _QUERIES.find_unapplied_commands(
                self._pool, pool=self._pool_id, seconds=seconds, most=MOST_UNAPPLIED
            )
        ]
        return [*jobs, *commands]

    async def settled_commands(self, command_ids: Sequence[int]) -> tuple[frozenset[int], frozenset[int]]:
        """Which of these commands were applied already, and which a newer one about the same has overtaken."""
        rows = [row async for row in _QUERIES.find_settled_commands(self._pool, command_ids=list(command_ids))]
        applied = frozenset(row["command_id"] for row in rows if row["applied"])
        return applied, frozenset(row["command_id"] for row in rows if row["overtaken"])

    async def count_failing(self, fact_id: str, error: str) -> int:
        """Another failed attempt of a fact. Returns how many there were."""
        return int(await _QUERIES.count_failing_fact(self._pool, fact_id=fact_id, error=error[:2000]))

    async def unpublished_events(self) -> list[asyncpg.Record]:
        """Events older than a second that the broker has not acknowledged."""
        return [row async for row in _QUERIES.find_unpublished_events(self._pool, pool=self._pool_id, most=_MOST_ROWS)]

    async def mark_published(self, event_ids: Iterable[int]) -> None:
        """The broker has acknowledged these events."""
        await _QUERIES.mark_published(self._pool, event_ids=list(event_ids))

    async def delete_old(self, *, events_days: int, decisions_days: int) -> None:
        """Small deletes of old history."""
        await _QUERIES.delete_old_events(self._pool, days=events_days, most=1000)
        await _QUERIES.delete_old_decisions(self._pool, days=decisions_days, most=1000)


def _ours(error: asyncpg.PostgresError) -> Exception:
    state = error.sqlstate or ""
    if state in _OUR_STATES:
        return _OUR_STATES[state](str(error))
    if is_connection_lost(error):
        return CommitUncertain("the answer to a batch's commit was lost")
    if state.startswith(("22", "23", "42", "MW")):
        return Refused(str(error))
    return error
