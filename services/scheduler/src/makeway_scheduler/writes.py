"""From what a batch touched to the arguments of ``commit_batch``: what is locked, what is written.

Lease changes are the difference between a run before and after the batch, so no code path can forget one.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from makeway_policy.model import Avoidance

from makeway_scheduler.ledger import Ledger
from makeway_scheduler.records import GpuRecord, LeaseRecord, NodeRecord, RunRecord

_JOB_COLUMNS: Final = (
    "state", "reason_code", "reason", "manual_priority", "run_number", "preemptions", "infrastructure_failures",
    "hold_failures", "no_victims_until", "retry_at", "cancel_requested", "queued_since", "first_started_at",
    "last_started_at", "used_seconds", "last_ack_step", "last_end", "last_victim_run", "restart_seconds", "ended_at",
    "end_cause", "exit_code", "message", "own_failures",
)  # fmt: skip
_RUN_COLUMNS: Final = (
    "run_id", "state", "value", "withdrawing", "stop_cause", "stop_grace_seconds", "pid", "started_at", "stop_at",
    "leaves_by", "empty_at", "begun_at", "noticed_at", "resumed_at", "resumed_step", "load_seconds", "ack_step",
    "ack_bytes", "ack_fraction", "acked_at", "ended_at", "end_cause", "exit_code", "signal", "forced", "run_seconds",
    "log_bytes", "message",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Locks:
    """Rows to lock, each with the version that was seen; every list in id order."""

    job_ids: list[str] = field(default_factory=list)
    job_versions: list[int] = field(default_factory=list)
    node_ids: list[str] = field(default_factory=list)
    node_versions: list[int] = field(default_factory=list)
    gpu_ids: list[str] = field(default_factory=list)
    gpu_versions: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Writes:
    """One call of ``commit_batch``."""

    locks: Locks
    body: dict[str, list[Any]]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self.body


def collect(ledger: Ledger, published: Iterable[int]) -> Writes:
    """Everything that the batch touched. ``published``: events that the broker has acknowledged meanwhile."""
    body: dict[str, list[Any]] = {
        "nodes": _nodes(ledger),
        "gpus": [_gpu(gpu) for gpu_id in ledger.gpus.touched() if (gpu := ledger.gpus.get(gpu_id)) is not None],
        **_jobs(ledger),
        **_runs(ledger),
        "new_preemptions": ledger.batch.new_preemptions,
        "preemptions": list(ledger.batch.preemptions.values()),
        "bound": ledger.batch.bound,
        "decisions": ledger.batch.decisions,
        "plans": [
            {"node_id": node.node_id, "number": node.plan_number, "session": node.plan_session}
            for node_id in sorted(ledger.batch.plans_for)
            if (node := ledger.nodes.get(node_id)) is not None
        ],
        "applied_commands": [
            {"command_id": command_id, "outcome": outcome}
            for command_id, outcome in ledger.batch.applied_commands.items()
        ],
        "events": _events(ledger),
        "policy_in_force": [] if ledger.batch.policy_in_force is None else [asdict(ledger.batch.policy_in_force)],
    }
    body = {name: rows for name, rows in body.items() if rows}
    events = list(published)
    if events:
        body["published_events"] = events
    return Writes(locks=_locks(ledger, body), body=body)


def _jobs(ledger: Ledger) -> dict[str, list[Any]]:
    new_jobs, jobs = [], []
    for job_id, before in ledger.jobs.touched().items():
        job = ledger.jobs.get(job_id)
        if job is None or job == before:
            continue
        row: dict[str, Any] = {name: getattr(job, name) for name in _JOB_COLUMNS}
        row["job_id"] = job_id
        row["reason_detail"] = dict(job.reason_detail)
        row["amendments"] = dict(job.amendments)
        row["avoidance"] = asdict(job.avoidance) if job.avoidance != Avoidance() else {}
        if job.version == 0:
            new_jobs.append({**row, "pool_id": job.pool, "team_id": job.team})
        else:
            jobs.append(row)
    return {"new_jobs": new_jobs, "jobs": jobs}


def _runs(ledger: Ledger) -> dict[str, list[Any]]:
    new_runs: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    releases: list[dict[str, Any]] = []
    moves: list[dict[str, Any]] = []
    grants: list[dict[str, Any]] = []
    for run_id, before in ledger.runs.touched().items():
        run = ledger.runs.get(run_id)
        if run is None or run == before:
            continue
        if run.released and (before is None or not before.stored):
            # Kept without leases and moved inside one batch: nobody has heard of it, and its job has another run now.
            continue
        if before is None or not before.stored:
            new_runs.append(_new_run(ledger, run))
        else:
            runs.append(_run(run))
        old = {lease.gpu_id for lease in before.leases} if before is not None else set()
        releases += [{"run_id": run_id, "gpu_id": gpu_id} for gpu_id in sorted(old - {x.gpu_id for x in run.leases})]
        grants += [_grant(run, lease) for lease in run.leases if lease.gpu_id not in old]
        if before is not None and run.lease_state is not before.lease_state and old and run.leases:
            moves.append({"run_id": run_id, "state": run.lease_state})
    return {"releases": releases, "lease_moves": moves, "runs": runs, "new_runs": new_runs, "grants": grants}


def _new_run(ledger: Ledger, run: RunRecord) -> dict[str, Any]:
    """A run as it leaves the batch that planned it: unheard of by its node, but maybe told to stop already."""
    return {
        "run_id": run.run_id,
        "job_id": run.job_id,
        "run_number": run.number,
        "pool_id": ledger.pool,
        "node_id": run.node_id,
        "state": "PLANNED",
        "value": run.value,
        "gpus": [{"gpu_id": x.gpu_id, "vram_mib": x.vram_mib, "slots": x.slots} for x in run.placement],
        "cpus": run.cpus,
        "memory_mib": run.memory_mib,
        "after_runs": sorted(run.after),
        "trigger": run.trigger,
        "restart_seconds": run.restart_seconds,
        "promoted": run.promoted,
        "after_preemption": run.after_preemption,
        "withdrawing": run.withdrawing,
        "stop_cause": run.stop_cause,
        "stop_grace_seconds": run.stop_grace_seconds,
        "stop_at": run.stop_at,
        "leaves_by": run.leaves_by,
        "planned_at": run.planned_at,
        "empty_at": run.empty_at,
        "begun_at": run.begun_at,
        "traceparent": run.traceparent,
    }


def _run(run: RunRecord) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(run, name) for name in _RUN_COLUMNS}
    row["after_runs"] = sorted(run.after)
    return row


def _grant(run: RunRecord, lease: LeaseRecord) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "gpu_id": lease.gpu_id,
        "state": run.lease_state,
        "vram_mib": lease.vram_mib,
        "slots": lease.slots,
    }


def _nodes(ledger: Ledger) -> list[Any]:
    rows = []
    for node_id, before in ledger.nodes.touched().items():
        node = ledger.nodes.get(node_id)
        if node is not None and (before is None or _node(node, ledger.pool) != _node(before, ledger.pool)):
            rows.append(_node(node, ledger.pool))
    return rows


def _node(node: NodeRecord, pool: str) -> dict[str, Any]:
    return {
        "node_id": node.node_id,
        "pool_id": pool,
        "state": node.state,
        "cordoned": node.cordoned,
        "accepts_runs": node.accepts_runs,
        "refusal": node.refusal,
        "drain": node.drain.value,
        "note": node.note,
        "session": node.session,
        "boot_id": node.boot_id,
        "simulated": node.simulated,
        "cpus": node.cpus,
        "memory_mib": node.memory_mib,
        "labels": dict(node.labels),
        "agent_version": node.agent_version,
        "state_since": node.state_since,
    }


def _gpu(gpu: GpuRecord) -> dict[str, Any]:
    return {
        "gpu_id": gpu.gpu_id,
        "node_id": gpu.node_id,
        "gpu_index": gpu.index,
        "type_name": gpu.type_name,
        "capacity_mib": gpu.capacity_mib,
        "reserved_mib": gpu.reserved_mib,
        "capacity_slots": gpu.capacity_slots,
        "mig_profile": gpu.mig_profile,
        "link_group": gpu.link_group,
        "condition": gpu.condition,
        "cordoned": gpu.cordoned,
        "reason": gpu.reason,
    }


def _events(ledger: Ledger) -> list[Any]:
    return [
        {
            "position": position,
            "job_id": event.job_id,
            "run_number": event.run_number,
            "at": event.at,
            "kind": event.kind,
            "state": event.state,
            "data": dict(event.data),
            "causation_id": event.causation_id,
            "traceparent": event.traceparent,
        }
        for position, event in enumerate(ledger.batch.events)
    ]


def _locks(ledger: Ledger, body: dict[str, list[Any]]) -> Locks:
    jobs = sorted((row["job_id"], ledger.jobs[row["job_id"]].version) for row in body.get("jobs", []))
    nodes = sorted(
        (node_id, node.version)
        for node_id in {row["node_id"] for name in ("nodes", "plans") for row in body.get(name, [])}
        if (node := ledger.nodes.get(node_id)) is not None and node.version > 0
    )
    gpu_ids = {row["gpu_id"] for name in ("gpus", "releases", "grants") for row in body.get(name, [])}
    for row in body.get("lease_moves", []):
        gpu_ids |= {lease.gpu_id for lease in ledger.runs[row["run_id"]].leases}
    gpus = sorted(
        (gpu_id, gpu.version) for gpu_id in gpu_ids if (gpu := ledger.gpus.get(gpu_id)) is not None and gpu.version > 0
    )
    return Locks(
        job_ids=[job_id for job_id, _ in jobs],
        job_versions=[version for _, version in jobs],
        node_ids=[node_id for node_id, _ in nodes],
        node_versions=[version for _, version in nodes],
        gpu_ids=[gpu_id for gpu_id, _ in gpus],
        gpu_versions=[version for _, version in gpus],
    )


def renumber(ledger: Ledger) -> None:
    """Give every node whose plan changed its next number, for the session that its executor has now."""
    for node_id in ledger.batch.plans_for:
        node = ledger.nodes.get(node_id)
        if node is not None:
            ledger.nodes.put(node_id, _numbered(node))


def _numbered(node: NodeRecord) -> NodeRecord:
    return replace(node, plan_number=node.plan_number + 1, plan_session=node.session)
