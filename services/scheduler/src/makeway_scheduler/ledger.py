"""What the owner of a pool remembers: jobs, runs, nodes, GPUs as they are in the database, and what a batch adds.

The records (``records.py``) are the rows of the tables with the same names. ``Ledger`` holds them together with the
policy's own indexed state, which follows from them (``policy_values.py``).
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

from makeway_policy.model import Drain, Team
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState

from makeway_scheduler.journal import Table
from makeway_scheduler.records import Event, GpuRecord, JobRecord, NodeRecord, RunRecord

ENDED_JOBS_KEPT: Final = 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyInForce:
    """Which policy the pool is decided by, as it is stored.

    `policy_id` 0 means that of the settings; `settings_digest` is its SHA-256 then, None where it is not known.
    """

    policy_id: int
    settings_digest: str | None = None


@dataclass(kw_only=True, slots=True)
class Batch:
    """What one batch adds beside the tables: emptied at every commit and rollback."""

    events: list[Event] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    new_preemptions: list[dict[str, Any]] = field(default_factory=list)
    preemptions: dict[str, dict[str, Any]] = field(default_factory=dict)
    bound: list[dict[str, Any]] = field(default_factory=list)
    explanations: dict[str, dict[str, Any]] = field(default_factory=dict)
    drains_told: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    strays: dict[str, frozenset[str]] = field(default_factory=dict)
    applied_commands: dict[int, str] = field(default_factory=dict)
    plans_for: set[str] = field(default_factory=set)
    ended_jobs: dict[str, int] = field(default_factory=dict)
    policy_in_force: PolicyInForce | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NewPolicy:
    """A policy that was applied, with its number in the table ``policies``."""

    policy_id: int
    policy: Policy


class Ledger:
    """The owner's memory of one pool. Use ``begin``, change, then ``commit`` or ``rollback``."""

    def __init__(self, pool: str, policy: Policy) -> None:
        """Empty; ``store.load`` fills it."""
        self.pool = pool
        self.epoch = 0
        self.epoch_heard = 0
        """The highest epoch that a node has heard of; higher than ours after a database was restored."""
        self.policy = policy
        self.policy_id = 0
        """The newest policy that was looked at; 0: none was ever applied."""
        self.new_policy: NewPolicy | None = None
        """A policy that is to be taken before the next batch."""
        self.policy_in_force = PolicyInForce(policy_id=0)
        """What is stored of the policy that was taken last, maybe by a former owner."""
        self._policy_before = policy
        self.state = PoolState()
        self.jobs: Table[JobRecord] = Table()
        self.runs: Table[RunRecord] = Table()
        self.nodes: Table[NodeRecord] = Table()
        self.gpus: Table[GpuRecord] = Table()
        self.batch = Batch()
        self.heard_at: dict[str, float] = {}
        self.replays = False
        """Whether the facts at hand are read again, as after a take-over: they may be older than what is known."""
        self.strays: dict[str, frozenset[str]] = {}
        """Per node: runs that it says are alive and whose end is booked already; they are told to stop."""
        self.overtaken: frozenset[int] = frozenset()
        """Commands of this batch that come later than a newer one about the same, which was carried out."""
        self.drains_told: dict[str, tuple[str, str | None]] = {}
        """Per run on a drained node: what protects it and until when, as it was stored last."""
        self._draining: frozenset[str] = frozenset()
        self.ended: OrderedDict[str, int] = OrderedDict()
        self.group_orders: dict[str, int] = {}
        """Per disruption group the order of the newest job that has said what it means."""
        self.teams_version = 0
        self.new_teams: tuple[Team, ...] = ()
        """Rights that admission has changed; the next batch takes them."""
        self.order_floor = 0
        """Jobs of this order or lower that memory does not know may have ended: the database must be asked."""
        self.loaded_at = 0.0
        """So must it of jobs that were submitted before: one that was restored from a copy may not know them at all."""

    def begin(self) -> None:
        """Open a batch."""
        self._policy_before = self.policy
        self.state.begin()

    def commit(self) -> None:
        """Keep the batch: the database has confirmed it. What is over leaves memory."""
        self.state.commit()
        self._draining = self.draining()
        self.drains_told.update(self.batch.drains_told)
        self.strays.update(self.batch.strays)
        over = [run for run_id in self.runs.touched() if (run := self.runs.get(run_id)) and run.released]
        jobs = [*self.jobs.touched(), *(run.job_id for run in over)]
        for run in over:
            self.runs.remove(run.run_id)
            self.drains_told.pop(run.run_id, None)
        for job_id in jobs:
            job = self.jobs.get(job_id)
            if job is not None and job.ended_at is not None and self.run_of(job) is None:
                self.jobs.remove(job_id)
        for table in (self.jobs, self.runs, self.nodes, self.gpus):
            table.commit()
        if self.batch.policy_in_force is not None:
            self.policy_in_force = self.batch.policy_in_force
        for job_id, order in self.batch.ended_jobs.items():
            self.ended[job_id] = order
        while len(self.ended) > ENDED_JOBS_KEPT:
            _, order = self.ended.popitem(last=False)
            self.order_floor = max(self.order_floor, order)
        self.batch = Batch()

    def rollback(self) -> None:
        """Forget the batch."""
        self.policy = self._policy_before
        self.state.rollback()
        for table in (self.jobs, self.runs, self.nodes, self.gpus):
            table.rollback()
        self.batch = Batch()

    def draining(self) -> frozenset[str]:
        """The nodes that are drained now."""
        found = ((node_id, self.nodes.get(node_id)) for node_id in (*self._draining, *self.nodes.touched()))
        return frozenset(node_id for node_id, node in found if node is not None and node.drain is not Drain.NO)

    def run_of(self, job: JobRecord) -> RunRecord | None:
        """The job's newest run, if it is not released."""
        return self.runs.get(f"{job.job_id}.{job.run_number}")

    def tell(self, job: JobRecord, kind: str, now: float, **data: Any) -> None:
        """Note an event of the job, with its present state and run."""
        self.batch.events.append(
            Event(
                job_id=job.job_id,
                kind=kind,
                state=job.state,
                at=now,
                run_number=job.run_number or None,
                data={name: value for name, value in data.items() if value is not None},
                traceparent=job.traceparent,
            )
        )
