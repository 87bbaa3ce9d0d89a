"""Facts about ends of runs. Each end is booked once, with one cause, and says what becomes of the job."""

from dataclasses import replace
from typing import Final

from makeway_schemas.facts import RunEnd, RunExited
from makeway_schemas.states import EndCause, LeaseState, NodeState, RunState, StopCause

from makeway_scheduler import job_moves
from makeway_scheduler.apply_runs import note_ack, note_started
from makeway_scheduler.emptying import note_preemption_step, release, settle_released
from makeway_scheduler.ledger import Ledger
from makeway_scheduler.records import JobRecord, RunRecord

_STOPPED: Final = {
    StopCause.CANCEL: EndCause.CANCELLED,
    StopCause.TIME_LIMIT: EndCause.TIME_LIMIT,
    StopCause.PREEMPT: EndCause.PREEMPTED,
    StopCause.DRAIN: EndCause.OURS,
}


def apply_run_exited(ledger: Ledger, fact: RunExited, now: float) -> None:
    """A run is over. Its end is booked once; leases on GPUs that are proven empty are released."""
    run = ledger.runs.get(fact.run_id)
    if run is None or run.node_id != fact.node_id:
        return
    note_exited(ledger, run, fact.end, now, ended_at=now - fact.age_seconds)
    for gpu_id in fact.empty_gpus:
        release(ledger, fact.run_id, gpu_id, now)
    settle_released(ledger, fact.run_id, now)


def note_exited(ledger: Ledger, run: RunRecord, end: RunEnd, now: float, *, ended_at: float) -> None:
    """Book the end of a run and what it means for its job."""
    if run.ended:
        return
    run = _catch_up(ledger, run, end, now, ended_at=ended_at)
    if end.outcome != "never_started":
        # It ran, so what it followed had left; of this its RunStarted, if it still comes, only fills in times.
        for predecessor in sorted(run.after):
            release(ledger, predecessor, None, now)
        run = ledger.runs[run.run_id]
    # Ages come in messages of their own, each good to a few milliseconds; their order is what happened.
    ended_at = min(ended_at, now if run.released_at is None else run.released_at)
    ended_at = max(ended_at, run.started_at or run.planned_at, run.noticed_at or 0.0)
    cause = _cause_of(ledger, end, run)
    run = replace(
        run,
        state=RunState.EXITED,
        # What is not proven empty yet still blocks its GPU, and somebody may be planned to follow.
        leases=() if end.outcome == "never_started" else run.leases,
        lease_state=LeaseState.LEAVING,
        ended_at=ended_at,
        end_cause=cause.value,
        exit_code=end.exit_code,
        signal=end.signal,
        forced=end.forced,
        run_seconds=min(end.run_seconds, max(0.0, now - run.planned_at)),
        log_bytes=end.log_bytes,
        message=end.message,
    )
    ledger.runs.put(run.run_id, run)
    ledger.batch.plans_for.add(run.node_id)
    _note_preemption_end(ledger, run, end, cause)
    job = ledger.jobs.get(run.job_id)
    if job is not None and job.run_number == run.number and job.ended_at is None:
        _settle_job(ledger, job, run, end, now)


def _catch_up(ledger: Ledger, run: RunRecord, end: RunEnd, now: float, *, ended_at: float) -> RunRecord:
    """Book what an end tells of its run's life: all that an executor has to say that was away meanwhile."""
    if end.outcome in ("exited", "lost") and end.run_seconds > 0.0:
        note_started(ledger, run, ended_at - end.run_seconds, now, pid=None)
    if end.ack is not None:
        age_seconds = max(end.ack.age_seconds, now - ended_at)  # it was saved by then
        note_ack(ledger, ledger.runs[run.run_id], end.ack.model_copy(update={"age_seconds": age_seconds}), now)
    return ledger.runs[run.run_id]


def _cause_of(ledger: Ledger, end: RunEnd, run: RunRecord) -> EndCause:
    """One end, one cause. After delivery any exit is what the stop says, unless the job declared itself done."""
    if end.outcome == "never_started":
        return EndCause.NEVER_STARTED
    if end.outcome == "lost":
        node = ledger.nodes.get(run.node_id)
        if node is not None and node.state is NodeState.DEAD:
            return EndCause.NODE_LOST
        return EndCause.GPU_LOST if job_moves.lost_cards(ledger, run) else EndCause.OURS
    if end.outcome == "start_failed":
        return EndCause.FAILED
    cause = end.cause or run.stop_cause
    if end.notice_delivered and not end.done and cause is not None:
        return _STOPPED[cause]
    if end.done or (end.exit_code == 0 and not end.signal):
        return EndCause.DONE
    # Whoever works on a card that fails is told of an error, and ends with one.
    return EndCause.GPU_LOST if job_moves.lost_cards(ledger, run) else EndCause.FAILED


def _settle_job(ledger: Ledger, job: JobRecord, run: RunRecord, end: RunEnd, now: float) -> None:
    run_seconds = run.run_seconds or 0.0
    # A shell shows a signal as 128 + n; so do we, and a failure never reads as 0.
    exit_code = 128 + end.signal if end.signal else end.exit_code
    message = end.message or (job.message if job.cancel_requested else "")
    cause = EndCause(run.end_cause or "")
    if cause is EndCause.FAILED and not message:
        message = f"killed by signal {end.signal}" if end.signal else f"exited with {exit_code}"
    if cause is EndCause.GPU_LOST:
        message = f"{', '.join(gpu.gpu_id for gpu in job_moves.lost_cards(ledger, run))} of {run.node_id} failed"
    slow_start = _start_took_too_long(run)
    if slow_start and not message:
        message = f"its start on {run.node_id} took longer than the start time-out"
    job = replace(job, used_seconds=job.used_seconds + run_seconds, exit_code=exit_code, message=message)
    if cause is EndCause.DONE:
        job_moves.end(ledger, job, cause, now, exit_code=0 if end.done else exit_code)
    elif cause is EndCause.FAILED:
        failed_to_start = end.outcome == "start_failed"
        job_moves.after_failure(ledger, job, now, exit_code=end.exit_code or 127 if failed_to_start else exit_code)
    elif cause in (EndCause.TIME_LIMIT, EndCause.CANCELLED):
        job_moves.end(ledger, job, cause, now, exit_code=exit_code)
    elif job.cancel_requested:
        job_moves.end(ledger, job, EndCause.CANCELLED, now, exit_code=exit_code)
    elif cause is EndCause.PREEMPTED:
        job_moves.after_preemption(ledger, job, run, now)
    elif cause is EndCause.NEVER_STARTED and not slow_start:
        job_moves.requeue(ledger, job, now, cause=cause)
    else:
        orderly = end.outcome == "exited" and end.notice_delivered and not slow_start
        job_moves.requeue_as_ours(ledger, job, run, now, orderly=orderly)


def _start_took_too_long(run: RunRecord) -> bool:
    """Whether it was told to stop for that: a drain by an operator makes it a victim, and a node's own stop is none."""
    return run.stop_cause is StopCause.DRAIN and not run.stop_trigger


def _note_preemption_end(ledger: Ledger, run: RunRecord, end: RunEnd, cause: EndCause) -> None:
    if not run.stop_trigger and run.stop_cause is not StopCause.PREEMPT:
        return  # a cancel or a time limit may have come on top: the record ends all the same
    lost = 0.0
    if run.started_at is not None and run.ended_at is not None:
        lost = max(0.0, run.ended_at - max(run.started_at, run.acked_at or 0.0)) * max(1, len(run.placement))
    note_preemption_step(
        ledger,
        run.run_id,
        exited_at=run.ended_at,
        # It never was on its GPUs, or had none; whoever else was there is proven gone by a record of its own.
        empty_at=run.ended_at if end.outcome == "never_started" or not run.placement else None,
        forced=end.forced,
        lost_gpu_seconds=lost if cause is EndCause.PREEMPTED else 0.0,
        void=cause is not EndCause.PREEMPTED,
    )
