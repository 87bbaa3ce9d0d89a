"""From the ledger's records to the values that the policy reads. The policy's state follows from here alone."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, TypeVar

from makeway_policy.asked import pairs
from makeway_policy.copies import changed
from makeway_policy.model import (
    Gpu,
    GpuHealth,
    Group,
    Job,
    Lease,
    Member,
    Mode,
    Node,
    NodeHealth,
    Overdue,
    Reason,
    Refusal,
    Run,
    Trigger,
)
from makeway_policy.model import LeaseState as PolicyLeaseState
from makeway_policy.model import RunState as PolicyRunState
from makeway_policy.model import StopCause as PolicyStopCause
from makeway_schemas.states import JobState, LeaseState, NodeState, RunState, StopCause

from makeway_scheduler.ledger import Ledger
from makeway_scheduler.records import GpuRecord, JobRecord, LeaseRecord, NodeRecord, RunRecord

_LEASE_STATES: Final = {
    LeaseState.LIVE: PolicyLeaseState.LIVE,
    LeaseState.LEAVING: PolicyLeaseState.LEAVING,
    LeaseState.NEXT: PolicyLeaseState.NEXT,
    None: PolicyLeaseState.PENDING,
}
_STOP_CAUSES: Final = {
    StopCause.CANCEL: PolicyStopCause.CANCELLED,
    StopCause.TIME_LIMIT: PolicyStopCause.TIME_LIMIT,
    StopCause.PREEMPT: PolicyStopCause.PREEMPTED,
    StopCause.DRAIN: PolicyStopCause.DRAINED,
}
_NODE_HEALTH: Final = {
    NodeState.READY: NodeHealth.READY,
    NodeState.UNKNOWN: NodeHealth.UNKNOWN,
    NodeState.DEAD: NodeHealth.DEAD,
}
_TAKEN_DOWN: Final = frozenset({"preempted", "drained", "node_lost", "gpu_lost", "ours"})
"""Ends of a run that count as down in a disruption group until the job runs again."""
_REASONS: Final = frozenset(reason.value for reason in Reason)
_RUN_STATES: Final[Mapping[RunState, PolicyRunState]] = {
    state: PolicyRunState(state.lower()) for state in RunState if state is not RunState.RELEASED
}


_Value = TypeVar("_Value")


def job_value(job: JobRecord) -> Job:
    """The policy's view of a job."""
    spec = job.spec
    mode = spec.preemption.mode
    refusal = None
    if job.reason_code in _REASONS:
        refusal = Refusal(reason=Reason(job.reason_code), sentence=job.reason, detail=job.reason_detail)
    return Job(
        job_id=job.job_id,
        order=job.order,
        team=job.team,
        class_name=job.class_name,
        submitted_at=job.submitted_at,
        queued_since=job.queued_since if job.queued_since is not None else job.submitted_at,
        shape=job.shape,
        user=job.submitted_by,
        own_priority=job.amended("own_priority", spec.priority),
        manual_priority=job.manual_priority,
        promoted=job.amended("promoted", False),
        held=job.state is JobState.HELD,
        over=job.ended_at is not None,
        unsatisfiable=job.state is JobState.UNSATISFIABLE,
        preemptible=spec.preemptible,
        mode=None if mode is None else Mode(mode.lower()),
        grace_seconds=spec.preemption.grace,
        exempt_after_seconds=spec.preemption.exempt_after,
        time_limit_seconds=job.time_limit,
        used_seconds=job.used_seconds,
        runs=job.run_number,
        preempted_at=job.preempted_at,
        down=job.last_end in _TAKEN_DOWN,
        last_end_preempted=job.last_end == "preempted",
        restart_seconds=job.restart_seconds,
        no_victims_until=job.no_victims_until or 0.0,
        failed_holds=job.hold_failures,
        begin_at=max((at for at in (job.retry_at, _moment(spec.begin_at)) if at is not None), default=None),
        backs_off=job.retry_at is not None and job.retry_at >= (_moment(spec.begin_at) or 0.0),
        deadline=job.amended("deadline", _moment(spec.deadline)),
        max_wait_seconds=job.amended("max_wait", spec.max_wait),
        on_deadline=None if spec.on_deadline is None else Overdue(spec.on_deadline),
        on_max_wait=None if spec.on_max_wait is None else Overdue(spec.on_max_wait),
        has_started=job.first_started_at is not None,
        group=group_name(job),
        labels=pairs(spec.labels),
        avoidance=job.avoidance,
        refusal=refusal,
    )


def _moment(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def run_value(run: RunRecord) -> Run:
    """The policy's view of a run."""
    leases = run.placement if run.pending else run.leases
    member = Member(
        node_id=run.node_id,
        leases=tuple(Lease(gpu_id=each.gpu_id, vram_mib=each.vram_mib, slots=each.slots) for each in leases),
        cpus=run.cpus,
        memory_mib=run.memory_mib,
    )
    return Run(
        run_id=run.run_id,
        job_id=run.job_id,
        number=run.number,
        members=(member,),
        lease_state=PolicyLeaseState.LEAVING if run.ended else _LEASE_STATES[run.lease_state],
        v=run.value,
        decided_at=run.planned_at,
        state=_RUN_STATES[run.state],
        after=run.after,
        empty_since=run.empty_at,
        begun_at=run.begun_at,
        started_at=run.started_at,
        noticed_at=run.noticed_at,
        stop_cause=None if run.stop_cause is None else _STOP_CAUSES[run.stop_cause],
        grace_seconds=run.stop_grace_seconds or 0.0,
        leaves_by=run.leaves_by,
        last_ack_at=run.acked_at,
        progress=run.ack_fraction,
        restart_seconds=run.restart_seconds,
        promoted=run.promoted,
        reclaimed=run.trigger == Trigger.RECLAIM,
        after_preemption=run.after_preemption,
        # A hold that is told to stop stays NEXT until its end is booked, and leaves all the same.
        withdrawing=run.withdrawing or (run.stop_cause is not None and run.lease_state is LeaseState.NEXT),
        moves_to=run.moves_to,
    )


def node_value(node: NodeRecord, pool: str) -> Node:
    """The policy's view of a node; one that takes no runs says why in its own words."""
    return Node(
        node_id=node.node_id,
        pool=pool,
        health=_NODE_HEALTH[node.state],
        cordoned=node.cordoned,
        drain=node.drain,
        refusal="" if node.accepts_runs else node.refusal or "it does not say why",
        labels=node.labels,
        cpus=float(node.cpus),
        memory_mib=node.memory_mib,
    )


def gpu_value(gpu: GpuRecord) -> Gpu:
    """The policy's view of a GPU; one that a foreign process uses is not free."""
    if gpu.condition == "lost":
        health = GpuHealth.LOST
    elif gpu.condition in ("quarantined", "occupied"):
        health = GpuHealth.QUARANTINED
    else:
        health = GpuHealth.CORDONED if gpu.cordoned else GpuHealth.AVAILABLE
    return Gpu(
        gpu_id=gpu.gpu_id,
        node_id=gpu.node_id,
        index=gpu.index,
        type_name=gpu.type_name,
        vram_mib=gpu.capacity_mib,
        slots=gpu.capacity_slots,
        health=health,
        mig_profile=gpu.mig_profile,
        link_group=gpu.link_group,
    )


def lease_records(run: Run) -> tuple[LeaseRecord, ...]:
    """A decided run's leases as records."""
    return tuple(LeaseRecord(gpu_id=lease.gpu_id, vram_mib=lease.vram_mib, slots=lease.slots) for lease in run.leases)


def synchronise(ledger: Ledger, now: float) -> None:
    """Bring the policy's state up to the records touched in this batch. Doing it twice changes nothing."""
    state = ledger.state
    for node_id in ledger.nodes.touched():
        node = ledger.nodes.get(node_id)
        if node is not None:
            _put_if_new(state.nodes.get(node_id), node_value(node, ledger.pool), state.put_node)
    for gpu_id in ledger.gpus.touched():
        gpu = ledger.gpus.get(gpu_id)
        if gpu is None:
            state.remove_gpu(gpu_id)
        else:
            _put_if_new(state.gpus.get(gpu_id), gpu_value(gpu), state.put_gpu)
    for run_id in ledger.runs.touched():
        run = ledger.runs.get(run_id)
        if (run is None or run.released) and run_id in state.runs:
            state.remove_run(run_id, now)
    for job_id in ledger.jobs.touched():
        job = ledger.jobs.get(job_id)
        if job is not None and not _is_over(ledger, job):
            _note_group(ledger, job)
            known = state.jobs.get(job_id)
            _put_if_new(known, _as_derived(job_value(job), known), state.put_job)
    for run_id in ledger.runs.touched():
        run = ledger.runs.get(run_id)
        if run is not None and not run.released:
            _put_if_new(state.runs.get(run_id), run_value(run), state.put_run)
    for job_id in {*ledger.jobs.touched(), *(run_id.partition(".")[0] for run_id in ledger.runs.touched())}:
        job = ledger.jobs.get(job_id)
        if job_id in state.jobs and (job is None or _is_over(ledger, job)):
            state.remove_job(job_id)


def _as_derived(job: Job, known: Job | None) -> Job:
    """The job with what the policy makes of its avoidance, as long as that is the same."""
    if known is None or known.avoidance != job.avoidance:
        return job
    return changed(job, avoid_nodes=known.avoid_nodes, avoid_gpus=known.avoid_gpus)


def group_name(job: JobRecord) -> str | None:
    """The job's disruption group; groups are each team's own."""
    return None if job.spec.group is None else f"{job.team}/{job.spec.group.name}"


def _note_group(ledger: Ledger, job: JobRecord) -> None:
    """What the newest job of a group says of it counts."""
    wanted, name = job.spec.group, group_name(job)
    if wanted is None or name is None or job.order < ledger.group_orders.get(name, 0):
        return
    ledger.group_orders[name] = job.order
    group = Group(name=name, min_available=wanted.min_available, max_down=wanted.max_down, hard=wanted.hard)
    _put_if_new(ledger.state.groups.get(name), group, ledger.state.put_group)


def _is_over(ledger: Ledger, job: JobRecord) -> bool:
    """A job that has ended stays while its last run still has leases."""
    run = ledger.run_of(job)
    return job.ended_at is not None and (run is None or run.released)


def _put_if_new(known: _Value | None, value: _Value, put: Callable[[_Value], None]) -> None:
    if known != value:
        put(value)
