"""What is said of a job that does not wait for a decision: it has a run, or it has ended."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from makeway_policy.model import Mode, Trigger
from makeway_policy.quantities import quantity
from makeway_policy.rules import Policy
from makeway_schemas.durations import format_duration
from makeway_schemas.ids import run_id
from makeway_schemas.states import JobState, StopCause

from makeway_admission.explained import has_passed
from makeway_admission.store import Store
from makeway_admission.undecided import NOT_MET
from makeway_admission.views import Row, gpu_ids, note_of

_STOPS: Final = {
    StopCause.CANCEL: "it was cancelled",
    StopCause.TIME_LIMIT: "its time limit is used up",
    StopCause.DRAIN: "its node is being emptied",
}
_BY_TRIGGER: Final = {
    Trigger.MANUAL: "it was preempted by hand",
    Trigger.DRAIN: "it was preempted, as its node is being emptied",
}


async def standing_of(store: Store, row: Row, policy: Policy, decision: Row | None, now: datetime) -> str:
    """Where a job is by its row of `get_job` and the decision that is in force; empty where there is nothing to say."""
    state = row["state"]
    if not state:
        return NOT_MET
    if row["ended_at"] is not None:
        return await _ended(store, row)
    if state == JobState.UNKNOWN:
        return (
            f"nothing is heard of node {row['node_id']}; the job may go on there, and nobody gets its GPUs until"
            " it is heard again or an admin declares it dead"
        )
    if state == JobState.RUNNING:
        unwell = await store.unwell_gpus_of_run(run_id(row["job_id"], row["run_number"]))
        drain = await store.drain_of_node(row["node_id"])
        told = [*map(_unwell, unwell), *([] if drain is None else [_drained(drain, row, policy, decision, now)])]
        return "; ".join(told)
    if state in (JobState.RESERVED, JobState.STOPPING):
        run = await store.standing_run(row["job_id"])
        if run is not None:
            return _reserved(run, now) if state == JobState.RESERVED else _stopping(run, now)
    return ""


async def _ended(store: Store, row: Row) -> str:
    if row["state"] == JobState.TIMED_OUT:
        limit = await store.time_limit_of(row["job_id"])
        return f"it has ended: its time limit{'' if limit is None else f' of {format_duration(limit)}'} is used up"
    code = row["exit_code"]
    failed = f"exit code {code}" if code else ""
    return ": ".join(["it has ended", *[text for text in (row["message"], failed) if text]])


def _unwell(gpu: Row) -> str:
    return f"it runs on GPU {gpu['gpu_index']} of {gpu['node_id']}, which takes no new runs: {gpu['reason']}"


def _drained(drain: Row, row: Row, policy: Policy, decision: Row | None, now: datetime) -> str:
    """What is said of a job that runs on a node which is being emptied, and where the drain stands."""
    stands = f"{quantity(drain['runs'], 'run')} still there, {drain['leaving']} of them leaving"
    where = f"it runs on {row['node_id']}, {note_of(drain)} ({stands})"
    if not _is_preemptible(row, policy):
        return f"{where}; it may not be preempted, so the node waits for its end"
    if decision is None or decision["choice"] != "drain":
        return f"{where}, and leaves once nothing protects its run"
    protected, until = decision["detail"]["protected"], decision["detail"]["until"]
    if until is None:
        return f"{where}; it stays as long as this protects its run: {protected}"
    if has_passed(until, now):
        return f"{where}; until {until} this protected its run: {protected}; it leaves with the next look"
    return f"{where}; until {until} this protects its run: {protected}"


def _is_preemptible(row: Row, policy: Policy) -> bool:
    """By what was asked for and the class: mode OFF is never preempted."""
    spec = row["spec"]
    job_class = policy.classes.get(row["class_name"]) or policy.classes[policy.default_class]
    mode = (spec.get("preemption") or {}).get("mode") or job_class.mode
    return bool(spec.get("preemptible", True)) and mode.lower() != Mode.OFF


def _reserved(run: Row, now: datetime) -> str:
    gpus = _gpus(run)
    if not run["after_runs"]:
        return f"it has {gpus}, and begins when its node has made sure that they are empty"
    leaving = ", ".join(sorted(run["after_runs"]))
    return f"it waits for {leaving} to leave {gpus}{_until(', at the latest', run['after_leaves_by'], now)}"


def _stopping(run: Row, now: datetime) -> str:
    cause = run["stop_cause"]
    if cause is None:
        return ""
    said = _STOPS.get(cause) or _BY_TRIGGER.get(run["trigger"])
    if cause == StopCause.DRAIN and run["withdrawn"]:
        # A hold that is given up is stopped like the run of a drained node.
        said = run["withdrawn"].replace("_", " ")
    if said is None:
        by = f" by job {run['preemptor_job']}" if run["preemptor_job"] else ""
        said = f"it was preempted{by}"
    return f"{said}; its run is killed if it has not left{_until(' by', run['leaves_by'], now)}"


def _gpus(run: Row) -> str:
    """The GPUs of a run by their indexes, where they are still registered."""
    indexes = run["indexes"] or {}
    gpus = [str(indexes.get(gpu, gpu)) for gpu in gpu_ids(run["gpus"])]
    return f"GPU {', '.join(gpus)} of {run['node_id']}" if gpus else f"room on {run['node_id']}"


def _until(words: str, at: datetime | None, now: datetime) -> str:
    if at is None:
        return ""
    passed = "" if at > now else ", which has passed"
    return f"{words} {at.astimezone(UTC).isoformat(timespec='seconds')}{passed}"
