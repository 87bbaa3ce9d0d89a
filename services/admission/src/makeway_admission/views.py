"""From database rows to the models of the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from makeway_policy.rules import Policy
from makeway_schemas.api import (
    CommandView,
    EventView,
    GpuView,
    JobDetail,
    JobView,
    NodeView,
    PreemptionView,
    RunView,
    TeamView,
    TokenView,
)
from makeway_schemas.states import CARD_FAULT, WAITING, GpuState

from makeway_admission.percents import in_texts


class Row(Protocol):
    """A row of the database, by column name."""

    def __getitem__(self, column: str, /) -> Any: ...


def job_view(row: Row, policy: Policy) -> JobView:
    """A job as lists show it. A job that the scheduler has not met yet is QUEUED."""
    return JobView.model_validate(_job_columns(row, policy))


def job_detail(row: Row, runs: Sequence[Row], policy: Policy) -> JobDetail:
    """A job with its specification and runs."""
    return JobDetail.model_validate(
        {**_job_columns(row, policy), "spec": row["spec"], "runs": [run_view(run) for run in runs]}
    )


def run_view(row: Row) -> RunView:
    """One run, its GPUs by id and, where they are still registered, by index."""
    indexes: Mapping[str, int] = row["indexes"] or {}
    gpus = gpu_ids(row["gpus"])
    return RunView(
        run_id=row["run_id"],
        number=row["run_number"],
        state=row["state"],
        node=row["node_id"],
        gpus=gpus,
        gpu_indexes=tuple(sorted(indexes[gpu] for gpu in gpus if gpu in indexes)),
        trigger=row["trigger"],
        planned_at=row["planned_at"],
        started_at=row["started_at"],
        noticed_at=row["noticed_at"],
        ended_at=row["ended_at"],
        end_cause=row["end_cause"],
        exit_code=row["exit_code"],
        signal=row["signal"],
        forced=row["forced"],
        run_seconds=row["run_seconds"],
        ack_step=row["ack_step"],
        acked_at=row["acked_at"],
        resumed_step=row["resumed_step"],
        log_bytes=row["log_bytes"],
        message=row["message"],
    )


def gpu_ids(leased: list[Any]) -> tuple[str, ...]:
    """The ids in a run's `gpus` column, whose items are `plans.LeasedGpu`."""
    return tuple(item["gpu_id"] if isinstance(item, dict) else str(item) for item in leased)


def event_view(row: Row) -> EventView:
    """One event of a job."""
    return EventView(
        sequence=row["event_id"],
        job_id=row["job_id"],
        at=row["at"],
        kind=row["kind"],
        state=row["state"],
        run=row["run_number"],
        data=row["data"],
    )


def node_view(row: Row) -> NodeView:
    """A node."""
    return NodeView(
        node_id=row["node_id"],
        pool=row["pool_id"],
        state=row["state"],
        accepts_runs=row["accepts_runs"],
        refusal=row["refusal"],
        cordoned=row["cordoned"],
        draining=row["drain"] != "no",
        note=note_of(row),
        simulated=row["simulated"],
        gpus=row["gpus"],
        gpus_leased=row["gpus_leased"],
        cpus=row["cpus"],
        memory_mib=row["memory_mib"],
        labels=row["labels"],
        version=row["agent_version"],
        state_since=row["state_since"],
    )


def note_of(row: Row) -> str:
    """Who closed a node or declared it dead, and why, the newest first."""
    return "; ".join(reversed(row["note"].splitlines()))


def command_view(row: Row) -> CommandView:
    """A command with its outcome."""
    names = ("command_id", "job_id", "node_id", "command", "issued_by", "issued_at", "applied_at", "outcome")
    return CommandView.model_validate({name: row[name] for name in names})


def gpu_view(row: Row) -> GpuView:
    """A GPU with its leases and readings."""
    return GpuView(
        gpu_id=row["gpu_id"],
        node=row["node_id"],
        index=row["gpu_index"],
        type_name=row["type_name"],
        vram_mib=row["capacity_mib"],
        state=gpu_state(row),
        reason=_gpu_reason(row),
        failed=row["condition"] == "quarantined" and row["reason"].startswith(CARD_FAULT),
        simulated=row["simulated"],
        leased_mib=row["leased_mib"],
        jobs=tuple(row["jobs"] or ()),
        next_jobs=tuple(row["next_jobs"] or ()),
        utilisation_percent=row["utilisation_percent"],
        vram_used_mib=row["vram_used_mib"],
        power_watts=row["power_watts"],
        temperature_celsius=row["temperature_celsius"],
        sampled_at=row["sampled_at"],
        reading_age_seconds=None if row["sampled_at"] is None else row["reading_age_seconds"],
    )


def gpu_state(row: Row) -> GpuState:
    """Where a GPU is, as people see it. What keeps it from new work comes before what is on it."""
    if row["condition"] == "lost" or row["node_state"] == "DEAD":
        return GpuState.LOST
    if row["condition"] in ("quarantined", "occupied"):
        return GpuState.QUARANTINED
    if row["leaving_slots"]:
        return GpuState.DRAINING
    if row["live_slots"] or row["next_slots"]:
        return GpuState.LEASED
    return GpuState.CORDONED if row["cordoned"] else GpuState.FREE


def _gpu_reason(row: Row) -> str:
    """What keeps a GPU from new runs: what is wrong with it, else what its node is."""
    if row["node_state"] == "DEAD":
        return f"its node: {note_of(row) or 'declared dead'}"
    if row["condition"] == "ok" and row["cordoned"]:
        return f"its node is closed: {note_of(row) or 'cordoned'}"
    return str(row["reason"])


def team_view(row: Row, pool_gpus: int, notes: tuple[str, ...] = ()) -> TeamView:
    """A team, its limits and what it uses, in a pool of so many GPUs."""
    percents = in_texts(row["percents"])
    return TeamView(
        team=row["team_id"],
        limit=percents.get("limit", row["gpu_limit"]),
        guarantee=percents.get("guarantee", row["guarantee"]),
        user_limit=percents.get("user_limit", row["user_limit"]),
        gpu_hours_per_month=row["gpu_hours_per_month"],
        weight=row["weight"],
        max_queued=row["max_queued"],
        class_limits={**row["class_limits"], **percents.get("class_limits", {})},
        allowances={**row["allowances"], **percents.get("allowances", {})},
        gpus_used=row["gpus_used"],
        jobs_waiting=row["jobs_waiting"],
        jobs_running=row["jobs_running"],
        pool_gpus=pool_gpus,
        notes=notes,
    )


def token_columns(row: Row) -> dict[str, Any]:
    """What may be shown of a token."""
    return {
        "token_id": row["token_id"],
        "role": row["role"],
        "team": row["team_id"],
        "node": row["node_id"],
        "classes": row["classes"],
        "label": row["label"],
        "created_at": row["created_at"],
        "expires_at": row["expires_at"],
        "revoked_at": row["revoked_at"],
    }


def token_view(row: Row) -> TokenView:
    """A token without its secret."""
    return TokenView.model_validate(token_columns(row))


def preemption_view(row: Row) -> PreemptionView:
    """The record of one preemption."""
    columns = {name: row[name] for name in PreemptionView.model_fields if name != "expected_cost_gpu_seconds"}
    return PreemptionView.model_validate({**columns, "expected_cost_gpu_seconds": row["expected_cost"]})


def _job_columns(row: Row, policy: Policy) -> dict[str, Any]:
    # Its newest run is a former one then.
    waits = not row["state"] or row["state"] in WAITING
    idle = waits or row["ended_at"] is not None
    return {
        "job_id": row["job_id"],
        "name": row["name"],
        "pool": row["pool_id"],
        "team": row["team_id"],
        "class": row["class_name"],
        "priority": base_priority(row, policy),
        "state": row["state"] or "QUEUED",
        "reason_code": row["reason_code"] or "",
        "reason": row["reason"] or "",
        "gpus": row["gpus"],
        "gpus_max": row["gpus_max"],
        "gpus_held": None if idle else row["gpus_held"],
        "node": None if waits else row["node_id"],
        "submitted_by": row["submitted_by"],
        "submitted_at": row["submitted_at"],
        "queued_since": row["queued_since"] if row["state"] else row["submitted_at"],
        "started_at": row["first_started_at"],
        "running_since": None if row["run_ended_at"] or row["ended_at"] else row["last_started_at"],
        "ended_at": row["ended_at"],
        "end_cause": row["end_cause"],
        "exit_code": row["exit_code"],
        "run_number": row["run_number"] or 0,
        "preemptions": row["preemptions"] or 0,
        "used_seconds": row["used_seconds"] or 0.0,
        "cancel_requested": row["cancel_requested"] or False,
        "last_ack_step": row["last_ack_step"],
        # What is stored tells of the last end, until another run is there; a cancel is of the job itself.
        "message": (row["message"] or "") if idle or row["cancel_requested"] else "",
        "labels": row["labels"] or {},
    }


def base_priority(row: Row, policy: Policy) -> int:
    """An admin's value, else the job's own, else its class's."""
    for value in (row["manual_priority"], row["own_priority"]):
        if value is not None:
            return int(value)
    job_class = policy.classes.get(row["class_name"]) or policy.classes[policy.default_class]
    return job_class.value
