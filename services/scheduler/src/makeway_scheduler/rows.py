"""From the rows of the database to what the scheduler remembers and is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from makeway_policy.asked import shape_of
from makeway_policy.model import Avoidance, Drain, Percents
from makeway_schemas.facts import AdmittedJob, CommandIssued, JobAdmitted, NodeCommandIssued
from makeway_schemas.job_spec import JobSpec
from makeway_schemas.states import JobState, LeaseState, NodeState, RunState, StopCause

from makeway_scheduler.records import GpuRecord, JobRecord, LeaseRecord, NodeRecord, RunRecord

_LEAVING_STATES: Final = frozenset({RunState.NOTICED, RunState.EXITED, RunState.RELEASED})


def admitted_of(row: Mapping[str, Any]) -> JobAdmitted:
    """The fact that admits a job, from its row in `jobs`."""
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


def command_of(row: Mapping[str, Any]) -> CommandIssued | NodeCommandIssued:
    """The fact that a command is, from its row."""
    common = {
        "id": f"admission/command/{row['command_id']}",
        "correlation_id": row["job_id"] or row["node_id"],
        **{name: row[name] for name in ("traceparent", "command_id", "command", "issued_by", "issued_at")},
        **row["arguments"],
    }
    if row["node_id"] is not None:
        return NodeCommandIssued.model_validate({**common, "node_id": row["node_id"]})
    return CommandIssued.model_validate({**common, "job_id": row["job_id"]})


def job_of(pool: str, row: Mapping[str, Any]) -> JobRecord:
    """A job that has not ended, from its rows."""
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
        avoidance=_avoidance(row["avoidance"]),
        **{name: row[name] for name in same},
    )


def _avoidance(given: Mapping[str, Any]) -> Avoidance:
    if not given:
        return Avoidance()
    return Avoidance(nodes=tuple(given["nodes"]), gpus=tuple(given["gpus"]), until=float(given["until"]))


def run_of(row: Mapping[str, Any]) -> RunRecord:
    """A run with its leases, from their rows."""
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
        lease_state=LeaseState(leases[0]["state"]) if leases else _state_without_leases(row),
        state=RunState(row["state"]),
        after=frozenset(row["after_runs"]),
        stop_cause=None if row["stop_cause"] is None else StopCause(row["stop_cause"]),
        stored=True,
        **{name: row[name] for name in same},
    )


def _state_without_leases(row: Mapping[str, Any]) -> LeaseState | None:
    """What a run without leases is: of CPU and memory alone, gone from its GPUs before its end was told, or kept.

    One of CPU and memory that was kept is planned behind those that it waits for: its node waits for them likewise.
    """
    planned, told = row["state"] == RunState.PLANNED, row["stop_cause"] is not None
    if row["gpus"]:
        return None if planned and not told and not row["withdrawing"] else LeaseState.LEAVING
    if planned and (row["after_runs"] or row["withdrawing"]):
        return LeaseState.NEXT
    return LeaseState.LEAVING if told or row["state"] in _LEAVING_STATES else LeaseState.LIVE


def _lease(each: Mapping[str, Any]) -> LeaseRecord:
    return LeaseRecord(gpu_id=each["gpu_id"], vram_mib=each["vram_mib"], slots=each["slots"])


def percents_of(given: Mapping[str, Any]) -> Percents | None:
    """A team's figures in per cent of the pool; None where it has none."""
    return Percents(**given) if given else None


def node_of(row: Mapping[str, Any]) -> NodeRecord:
    """A node, from its row."""
    same = (
        "node_id", "session", "boot_id", "cordoned", "accepts_runs", "refusal", "note", "simulated", "cpus",
        "memory_mib", "labels", "agent_version", "state_since", "plan_number", "version",
    )  # fmt: skip
    return NodeRecord(state=NodeState(row["state"]), drain=Drain(row["drain"]), **{name: row[name] for name in same})


def gpu_of(row: Mapping[str, Any]) -> GpuRecord:
    """A GPU, from its row."""
    same = (
        "gpu_id", "node_id", "type_name", "capacity_mib", "reserved_mib", "capacity_slots", "mig_profile",
        "link_group", "condition", "cordoned", "reason", "version",
    )  # fmt: skip
    return GpuRecord(index=row["gpu_index"], **{name: row[name] for name in same})
