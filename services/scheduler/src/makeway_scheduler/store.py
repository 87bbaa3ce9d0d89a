"""The scheduler's statements on Postgres: load the pool, commit a batch, find what nobody told."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import asyncpg
import structlog
from asyncpg.pool import Pool
from makeway_policy.asked import shape_of
from makeway_policy.model import Drain, Percents, Team
from makeway_policy.past_use import PastUse
from makeway_policy.rules import Policy
from makeway_runtime.errors import CommitUncertain
from makeway_runtime.postgres.queries import load_queries
from makeway_runtime.postgres.transient import is_connection_lost
from makeway_schemas.facts import AdmittedJob, CommandIssued, JobAdmitted, NodeCommandIssued
from makeway_schemas.job_spec import JobSpec
from makeway_schemas.states import JobState, LeaseState, NodeState, RunState, StopCause

from makeway_scheduler.errors import Conflict, Fenced, Refused, Stale
from makeway_scheduler.ledger import GpuRecord, JobRecord, LeaseRecord, Ledger, NodeRecord, RunRecord
from makeway_scheduler.policy_values import synchronise
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
            ledger.nodes.put(row["node_id"], _node(row))
        for row in gpus:
            ledger.gpus.put(row["gpu_id"], _gpu(row))
        for row in jobs:
            ledger.jobs.put(row["job_id"], _job(self._pool_id, row))
        for row in runs:
            if row["job_id"] in ledger.jobs:
                ledger.runs.put(row["run_id"], _run(row))
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
                percents=_percents(row["percents"]),
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

    async def admitted(self, job_ids: Sequence[str]) -> tuple[list[JobAdmitted], set[str]]:
        """Jobs by id as facts, and the ids of those that have ended."""
        rows = [row async for row in _QUERIES.find_jobs(self._pool, job_ids=list(job_ids))]
        ended = {row["job_id"] for row in rows if row["ended"]}
        return [_admitted(row) for row in rows if not row["applied"]], ended

    async def unapplied(self, *, ever: bool) -> list[JobAdmitted | CommandIssued | NodeCommandIssued]:
        """Jobs and commands that no scheduler has applied, of the last minutes or of all time."""
        seconds = _EVER_SECONDS if ever else _RECENT_SECONDS
        jobs = [
            _admitted(row)
            async for row in _QUERIES.find_unapplied_jobs(
                self._pool, pool=self._pool_id, seconds=seconds, most=MOST_UNAPPLIED
            )
        ]
        commands = [
            _command(row)
            async for row in _QUERIES.find_unapplied_commands(
                self._pool, pool=self._pool_id, seconds=seconds, most=MOST_UNAPPLIED
            )
        ]
        return [*jobs, *commands]

    async def applied_commands(self, command_ids: Sequence[int]) -> set[int]:
        """Which of these commands were applied already."""
        rows = _QUERIES.find_applied_commands(self._pool, command_ids=list(command_ids))
        return {row["command_id"] async for row in rows}

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


def _admitted(row: Mapping[str, Any]) -> JobAdmitted:
    return JobAdmitted(
        id=f"admission/{row['job_id']}/admitted",
        correlation_id=row["job_id"],
        traceparent=row["traceparent"],
        job=AdmittedJob(
            job_id=row["job_id"],
            order=row["admission_order"],
            pool=row["pool_id"],
            team=row["team_id"],
            class_name=row["class_name"],
            submitted_by=row["submitted_by"],
            submitted_at=row["submitted_at"],
            spec=JobSpec.model_validate(row["spec"]),
        ),
    )


def _command(row: Mapping[str, Any]) -> CommandIssued | NodeCommandIssued:
    common = {
        "id": f"admission/command/{row['command_id']}",
        "correlation_id": row["job_id"] or row["node_id"],
        **{name: row[name] for name in ("traceparent", "command_id", "command", "issued_by", "issued_at")},
        **row["arguments"],
    }
    if row["node_id"] is not None:
        return NodeCommandIssued.model_validate({**common, "node_id": row["node_id"]})
    return CommandIssued.model_validate({**common, "job_id": row["job_id"]})


def _job(pool: str, row: Mapping[str, Any]) -> JobRecord:
    spec = JobSpec.model_validate_json(json.dumps(row["spec"]))
    same = (
        "reason_code", "reason", "reason_detail", "manual_priority", "run_number", "preemptions",
        "infrastructure_failures", "hold_failures", "no_victims_until", "retry_at", "cancel_requested",
        "queued_since", "first_started_at", "last_started_at", "used_seconds", "last_ack_step", "last_end",
        "last_victim_run", "restart_seconds", "ended_at", "end_cause", "exit_code", "message", "own_failures",
        "amendments", "version",
    )  # fmt: skip
    return JobRecord(
        job_id=row["job_id"],
        pool=pool,
        team=row["team_id"],
        order=row["admission_order"],
        class_name=row["amendments"].get("class", row["class_name"]),
        spec=spec,
        shape=shape_of(spec),
        submitted_by=row["submitted_by"],
        submitted_at=row["submitted_at"],
        traceparent=row["traceparent"],
        state=JobState(row["state"]),
        preempted_at=tuple(row["preempted_at"]),
        **{name: row[name] for name in same},
    )


def _run(row: Mapping[str, Any]) -> RunRecord:
    leases = row["leases"] or []
    same = (
        "value", "planned_at", "cpus", "memory_mib", "trigger", "restart_seconds", "promoted", "after_preemption",
        "withdrawing", "stop_trigger", "stop_grace_seconds", "stop_at", "leaves_by", "empty_at", "begun_at", "pid",
        "started_at", "noticed_at", "resumed_at", "resumed_step", "load_seconds", "ack_step", "ack_bytes",
        "ack_fraction", "acked_at", "ended_at", "end_cause", "exit_code", "signal", "forced", "run_seconds",
        "log_bytes", "message", "traceparent",
    )  # fmt: skip
    return RunRecord(
        run_id=row["run_id"],
        job_id=row["job_id"],
        number=row["run_number"],
        node_id=row["node_id"],
        placement=tuple(_lease(each) for each in row["gpus"]),
        leases=tuple(_lease(each) for each in leases),
        # A job of CPU and memory only has no leases; it is live all the same.
        lease_state=LeaseState(leases[0]["state"]) if leases else (None if row["gpus"] else LeaseState.LIVE),
        state=RunState(row["state"]),
        after=frozenset(row["after_runs"]),
        stop_cause=None if row["stop_cause"] is None else StopCause(row["stop_cause"]),
        stored=True,
        **{name: row[name] for name in same},
    )


def _lease(each: Mapping[str, Any]) -> LeaseRecord:
    return LeaseRecord(gpu_id=each["gpu_id"], vram_mib=each["vram_mib"], slots=each["slots"])


def _percents(given: Mapping[str, Any]) -> Percents | None:
    return Percents(**given) if given else None


def _node(row: Mapping[str, Any]) -> NodeRecord:
    same = (
        "node_id", "session", "boot_id", "cordoned", "accepts_runs", "refusal", "note", "simulated", "cpus",
        "memory_mib", "labels", "agent_version", "state_since", "plan_number", "version",
    )  # fmt: skip
    return NodeRecord(state=NodeState(row["state"]), drain=Drain(row["drain"]), **{name: row[name] for name in same})


def _gpu(row: Mapping[str, Any]) -> GpuRecord:
    same = (
        "gpu_id", "node_id", "type_name", "capacity_mib", "reserved_mib", "capacity_slots", "mig_profile",
        "link_group", "condition", "cordoned", "reason", "version",
    )  # fmt: skip
    return GpuRecord(index=row["gpu_index"], **{name: row[name] for name in same})
