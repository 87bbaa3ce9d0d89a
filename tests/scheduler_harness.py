"""A pool's owner on the real database, driven turn by turn: facts in, what is committed and planned out.

The nodes are played by the test: it sends their facts and reads the plans that would go to them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import servers
from makeway_policy.rules import Policy
from makeway_runtime.kafka.messages import Outgoing
from makeway_runtime.postgres.pool import open_pool
from makeway_scheduler.cycle import Cycle
from makeway_scheduler.inbox import Inbox
from makeway_scheduler.ledger import Ledger
from makeway_scheduler.outlet import Outlet
from makeway_scheduler.policies import begin_with_policy, look_for_policy
from makeway_scheduler.settings import SchedulerSettings
from makeway_scheduler.store import Store
from makeway_schemas.facts import (
    Ack,
    CheckpointAcked,
    CommandIssued,
    Fact,
    GpuReport,
    NodeCommandIssued,
    NodeReport,
    NoticeDelivered,
    PlanNumber,
    RunEnd,
    RunExited,
    RunReport,
    RunStarted,
)
from makeway_schemas.ids import new_job_id
from makeway_schemas.plans import NodePlan, PlannedRun
from makeway_schemas.states import StopCause

CARD_MIB = 81920


class Posts:
    """Takes what would be published; `Outlet` is driven by the test."""

    def __init__(self) -> None:
        self.messages: list[Outgoing] = []

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        self.messages += messages


@dataclass
class Node:
    """A node as the test plays it."""

    name: str
    gpus: int = 1
    session: str = "0001"
    boot_id: str = "boot-1"
    sequence: int = 0
    plan: PlanNumber = field(default_factory=lambda: PlanNumber(epoch=0, number=0))

    def gpu_ids(self) -> list[str]:
        return [f"GPU-{self.name}-{index}" for index in range(self.gpus)]

    def report(self, *, runs: Sequence[RunReport] = (), **changes: Any) -> NodeReport:
        self.sequence += 1
        values: dict[str, Any] = {
            "id": f"{self.name}/{self.session}/report/{self.sequence}",
            "node_id": self.name,
            "session": self.session,
            "pool": "default",
            "boot_id": self.boot_id,
            "sequence": self.sequence,
            "plan": self.plan,
            "cpus": 8,
            "memory_mib": 1024,
            "gpus": tuple(
                GpuReport(gpu_id=gpu, index=index, type_name="A100", vram_mib=CARD_MIB)
                for index, gpu in enumerate(self.gpu_ids())
            ),
            "runs": tuple(runs),
        }
        return NodeReport(**{**values, **changes})

    def started(self, run_id: str, *, age: float = 0.0) -> RunStarted:
        return RunStarted(
            id=f"{run_id}/started", node_id=self.name, session=self.session, run_id=run_id, pid=4711, age_seconds=age
        )

    def noticed(self, run_id: str, cause: StopCause = StopCause.PREEMPT) -> NoticeDelivered:
        return NoticeDelivered(
            id=f"{run_id}/noticed", node_id=self.name, session=self.session, run_id=run_id, cause=cause,
            grace_seconds=1.0, age_seconds=0.0,
        )  # fmt: skip

    def acked(self, run_id: str, step: int) -> CheckpointAcked:
        return CheckpointAcked(
            id=f"{run_id}/ack/{step}", node_id=self.name, session=self.session, run_id=run_id, ack=Ack(step=step)
        )

    def exited(self, run_id: str, end: RunEnd, *, empty: Sequence[str] | None = None) -> RunExited:
        return RunExited(
            id=f"{run_id}/exited", node_id=self.name, session=self.session, run_id=run_id, end=end, age_seconds=0.0,
            empty_gpus=tuple(self.gpu_ids() if empty is None else empty),
        )  # fmt: skip


def ended(exit_code: int = 0, **changes: Any) -> RunEnd:
    return RunEnd(**{"outcome": "exited", "exit_code": exit_code, "run_seconds": 1.0, **changes})


def preempted(**changes: Any) -> RunEnd:
    return ended(**{"exit_code": 143, "cause": StopCause.PREEMPT, "notice_delivered": True, **changes})


class PoolUnderTest:
    """One owner with its own epoch; several of them on one database are owners that fence each other."""

    def __init__(self, settings: SchedulerSettings, pool: asyncpg.Pool, superuser: asyncpg.Connection, policy: Policy):
        self.settings = settings
        self.connections = pool
        self.sql = superuser
        self.policy = policy
        self.posts = Posts()
        self.dead: list[tuple[Fact, str]] = []
        self.store = Store(pool, "default")

    async def take_over(self, heard: int = 0) -> None:
        """A new epoch, and memory loaded from the database."""
        ledger = Ledger("default", self.policy)
        ledger.epoch = await self.store.take_pool("test", heard)
        await begin_with_policy(ledger, self.store, self.policy)
        await self.store.load(ledger)
        self.ledger = ledger
        self.inbox = Inbox("default")
        self.outlet = Outlet(self.posts, pool="default")  # type: ignore[arg-type]
        self.cycle = Cycle(ledger, self.store, self.inbox, self.outlet, self._set_aside)
        self.cycle.steps.set_clock(await self.store.clock())
        self.inbox.put(await self.store.unapplied(ever=True))

    async def _set_aside(self, fact: Fact, reason: str) -> None:
        self.dead.append((fact, reason))

    async def turn(self, *facts: Fact) -> None:
        """Apply facts, decide, commit, and send what is to be sent."""
        self.inbox.put(facts)
        await self.cycle.turn()
        await self.outlet._send()

    async def submit(self, *, team: str = "default", class_name: str = "normal", **spec: Any) -> str:
        """Write a job as admission does; the fact is taken by the next `turn(*await pool.news())`."""
        job_id = new_job_id()
        body = {"command": ["/bin/true"], "gpus": 1, "team": team, "class": class_name, **spec}
        await self.sql.execute("INSERT INTO teams (team_id) VALUES ($1) ON CONFLICT DO NOTHING", team)
        await self.sql.execute(
            "INSERT INTO jobs (job_id, pool_id, team_id, name, class_name, spec, submitted_by) "
            "VALUES ($1, 'default', $2, $3, $4, $5::jsonb, 'tester')",
            job_id, team, body.get("name", job_id), class_name, json.dumps(body),
        )  # fmt: skip
        return job_id

    async def node_command(self, node: str, command: str, **arguments: Any) -> NodeCommandIssued:
        """Write a command to a node as admission does."""
        command_id = await self.sql.fetchval(
            "INSERT INTO commands (pool_id, node_id, command, arguments, issued_by) "
            "VALUES ('default', $1, $2, $3::jsonb, 'tester') RETURNING command_id",
            node, command, json.dumps(arguments),
        )  # fmt: skip
        return NodeCommandIssued(
            id=f"admission/command/{command_id}", command_id=command_id, command=command, node_id=node,
            issued_by="tester", issued_at=datetime.now(UTC), **arguments,
        )  # fmt: skip

    async def outcome(self, command: CommandIssued | NodeCommandIssued) -> str:
        sql = "SELECT outcome FROM applied_commands WHERE command_id = $1"
        return str(await self.sql.fetchval(sql, command.command_id))

    async def command(
        self, job_id: str, command: str, priority: int | None = None, *, force: bool = False, run: int | None = None
    ) -> CommandIssued:
        """Write a command as admission does."""
        command_id = await self.sql.fetchval(
            "INSERT INTO commands (pool_id, job_id, command, arguments, issued_by) "
            "VALUES ('default', $1, $2, $3::jsonb, 'tester') RETURNING command_id",
            job_id, command, json.dumps({"priority": priority, "force": force, "run": run}),
        )  # fmt: skip
        return CommandIssued(
            id=f"admission/command/{command_id}", command_id=command_id, command=command, job_id=job_id,
            priority=priority, force=force, run=run, issued_by="tester", issued_at=datetime.now(UTC),
        )  # fmt: skip

    async def apply_policy(self, **document: Any) -> int:
        """Keep a policy, and look for it as the owner's sweep does. Returns its number."""
        number = await self.keep_policy(**document)
        await look_for_policy(self.ledger, self.store)
        return number

    async def keep_policy(self, **document: Any) -> int:
        """Keep a policy as admission does; nobody is told. Returns its number."""
        number = await self.sql.fetchval(
            "INSERT INTO policies (pool_id, body, applied_by) VALUES ('default', $1::jsonb, 'tester') "
            "RETURNING policy_id",
            json.dumps(document),
        )
        return int(number)

    async def news(self) -> list[Fact]:
        """What admission has written and no scheduler has applied."""
        return await self.store.unapplied(ever=True)

    async def state(self, job_id: str) -> str:
        return await self.sql.fetchval("SELECT state FROM job_states WHERE job_id = $1", job_id)

    async def leases(self) -> list[tuple[str, str, str]]:
        rows = await self.sql.fetch("SELECT run_id, gpu_id, state FROM leases ORDER BY run_id, gpu_id")
        return [(row["run_id"], row["gpu_id"], row["state"]) for row in rows]

    def plans(self, node: str) -> list[NodePlan]:
        """Every plan sent to a node so far."""
        return [
            NodePlan.model_validate_json(message.value or b"")
            for message in self.posts.messages
            if message.topic == "node.plans" and message.key == node.encode()
        ]

    def planned(self, node: str) -> dict[str, PlannedRun]:
        """The runs of a node's newest plan."""
        return {run.run_id: run for run in self.plans(node)[-1].runs}


async def open_pool_under_test(database: servers.Database, folder: Path, policy: Policy) -> PoolUnderTest:
    """The owner's memory is empty until `take_over`."""
    dsn = servers.with_login(database.dsn, "makeway_scheduler", "makeway_scheduler")
    settings = SchedulerSettings(state_dir=folder, runtime_dir=folder, postgres_dsn=dsn)  # type: ignore[arg-type]
    pool = await open_pool(settings, service="scheduler-test")
    superuser = await asyncpg.connect(database.dsn)
    return PoolUnderTest(settings, pool, superuser, policy)


async def start_job(pool: PoolUnderTest, node: Node, **spec: object) -> str:
    """Submit a job and let it run."""
    job = await pool.submit(**spec)
    await pool.turn(*await pool.news())
    await pool.turn(node.started(f"{job}.1"))
    return job


async def preempt(pool: PoolUnderTest, node: Node) -> tuple[str, str]:
    """A running job and an urgent one that takes its place; the victim has not left yet."""
    await pool.turn(node.report())
    victim = await start_job(pool, node)
    urgent = await pool.submit(class_name="urgent")
    await pool.turn(*await pool.news())
    return victim, urgent
