"""Facts about runs, told by their nodes. Any order, any number of times: each apply is guarded by the run's state."""

from dataclasses import replace
from typing import Any, Final

from makeway_schemas.facts import (
    Ack,
    CheckpointAcked,
    GpuEmpty,
    NoticeDelivered,
    Resume,
    RunEnd,
    RunExited,
    RunResumed,
    RunStarted,
)
from makeway_schemas.states import EndCause, JobState, LeaseState, RunState, StopCause

from makeway_scheduler import job_moves
from makeway_scheduler.ledger import NO_VICTIMS, JobRecord, Ledger, RunRecord

_STOPPED: Final = {
    StopCause.CANCEL: EndCause.CANCELLED,
    StopCause.TIME_LIMIT: EndCause.TIME_LIMIT,
    StopCause.PREEMPT: EndCause.PREEMPTED,
    StopCause.DRAIN: EndCause.OURS,
}


def apply_run_started(ledger: Ledger, fact: RunStarted, now: float) -> None:
    """The job's process runs. A late one only fills in times."""
    run = ledger.runs.get(fact.run_id)
    if run is None or run.node_id != fact.node_id:
        return
    note_started(ledger, run, now - fact.age_seconds, now, pid=fact.pid)


def note_started(ledger: Ledger, run: RunRecord, started_at: float, now: float, *, pid: int | None) -> None:
    """Book a start. That of a NEXT run proves its predecessors empty and releases them."""
    if run.started_at is not None:
        return
    started_at = max(min(started_at, now), run.planned_at)
    state = run.state if run.ended else RunState.NOTICED if run.noticed_at is not None else RunState.RUNNING
    if run.withdrawing and not run.ended:
        # It had started before the word came to withdraw it: it goes on where it is.
        run = replace(run, withdrawing=False, moves_to=())
        ledger.batch.plans_for.add(run.node_id)
    run = replace(run, started_at=started_at, begun_at=run.begun_at or started_at, pid=pid, state=state)
    ledger.runs.put(run.run_id, run)
    job = ledger.jobs.get(run.job_id)
    if job is not None:
        job = replace(
            job,
            amendments={name: value for name, value in job.amendments.items() if name != "promoted"},
            first_started_at=started_at if job.first_started_at is None else job.first_started_at,
            last_started_at=started_at,
            hold_failures=0,
            no_victims_until=None,
            reason_code="",
            reason="",
            reason_detail={},
        )
        ledger.jobs.put(job.job_id, job)
    if run.ended:
        return
    for predecessor in sorted(run.after):
        release(ledger, predecessor, None, now)
    if job is not None:
        _tell_started(ledger, job, run, now)


def _tell_started(ledger: Ledger, job: JobRecord, run: RunRecord, now: float) -> None:
    if run.trigger != NO_VICTIMS:
        # Ages come in messages of their own, each good to a few milliseconds: no step comes before the one it follows.
        empty_at = ledger.runs[run.run_id].empty_at or 0.0
        ledger.batch.bound.append({"preemptor_run": run.run_id, "bound_at": max(run.started_at or now, empty_at)})
    before = job.state
    job_moves.follow(ledger, job.job_id, now)
    job = ledger.jobs[job.job_id]
    if job.state is not JobState.RUNNING or before is JobState.RUNNING:
        ledger.tell(job, "started", now, node=run.node_id)


def apply_notice_delivered(ledger: Ledger, fact: NoticeDelivered, now: float) -> None:
    """The stop signal reached the run."""
    run = ledger.runs.get(fact.run_id)
    if run is None or run.node_id != fact.node_id:
        return
    note_noticed(ledger, run, now - fact.age_seconds, now, cause=fact.cause)


def note_noticed(
    ledger: Ledger, run: RunRecord, noticed_at: float, now: float, *, cause: StopCause | None = None
) -> None:
    """Book the delivery of a notice. A node may have stopped by itself: for a time limit."""
    if run.noticed_at is not None or run.ended:
        return
    at = max(min(noticed_at, now), run.started_at or run.planned_at)
    job = ledger.jobs.get(run.job_id)
    grace = 0.0 if job is None else job_moves.grace_of(ledger, job)
    ledger.runs.put(
        run.run_id,
        replace(
            run,
            noticed_at=at,
            state=RunState.NOTICED,
            # Whoever is planned to follow it gets NEXT leases, which fit beside those that leave alone.
            lease_state=LeaseState.LEAVING if run.lease_state is LeaseState.LIVE else run.lease_state,
            leaves_by=at + grace if run.leaves_by is None else run.leaves_by,
        ),
    )
    _note_preemption(ledger, run.run_id, noticed_at=at)
    if job is not None:
        ledger.tell(job, "noticed", now, cause=cause, grace_seconds=run.stop_grace_seconds)


def apply_checkpoint_acked(ledger: Ledger, fact: CheckpointAcked, now: float) -> None:
    """The job saved its state up to a step."""
    run = ledger.runs.get(fact.run_id)
    if run is not None and run.node_id == fact.node_id:
        note_ack(ledger, run, fact.ack, now)


def note_ack(ledger: Ledger, run: RunRecord, ack: Ack, now: float) -> None:
    """Book an ack, unless a later one is known."""
    if run.ack_step is not None and ack.step <= run.ack_step:
        return
    at = max(now - ack.age_seconds, run.planned_at)
    ledger.runs.put(
        run.run_id,
        replace(run, ack_step=ack.step, ack_bytes=ack.bytes, ack_fraction=ack.fraction, acked_at=at),
    )
    if run.stop_cause is StopCause.PREEMPT:
        _note_preemption(ledger, run.run_id, acked_at=at, acked_step=ack.step, acked_bytes=ack.bytes)
    job = ledger.jobs.get(run.job_id)
    if job is not None and job.run_number == run.number:
        job = replace(job, last_ack_step=ack.step)
        ledger.jobs.put(job.job_id, job)
        ledger.tell(job, "acked", now, step=ack.step, bytes=ack.bytes, fraction=ack.fraction)


def apply_run_resumed(ledger: Ledger, fact: RunResumed, now: float) -> None:
    """The job loaded a checkpoint: closes the record of the preemption before it."""
    run = ledger.runs.get(fact.run_id)
    if run is not None and run.node_id == fact.node_id:
        resume = Resume(step=fact.step, load_seconds=fact.load_seconds, age_seconds=fact.age_seconds)
        note_resumed(ledger, run, resume, now)


def note_resumed(ledger: Ledger, run: RunRecord, resume: Resume, now: float) -> None:
    """Book the first checkpoint that the run loaded, and what it tells of the preemption before it."""
    if run.resumed_at is not None:
        return
    at = max(now - resume.age_seconds, run.planned_at)
    run = replace(run, resumed_at=at, resumed_step=resume.step, load_seconds=resume.load_seconds)
    ledger.runs.put(run.run_id, run)
    job = ledger.jobs.get(run.job_id)
    if job is None:
        return
    if job.last_victim_run is not None:
        _note_preemption(
            ledger, job.last_victim_run, resumed_at=at, resumed_step=resume.step, load_seconds=resume.load_seconds
        )
    if run.started_at is not None:
        job = replace(job, restart_seconds=max(0.0, at - run.started_at))
        ledger.jobs.put(job.job_id, job)
    ledger.tell(job, "resumed", now, step=resume.step, load_seconds=resume.load_seconds)


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
    if end.ack is not None:
        note_ack(ledger, run, end.ack, now)
        run = ledger.runs[run.run_id]
    if end.outcome != "never_started":
        # It ran, so what it followed had left; of this its RunStarted, if it still comes, only fills in times.
        for predecessor in sorted(run.after):
            release(ledger, predecessor, None, now)
        run = ledger.runs[run.run_id]
    # Ages come in messages of their own, each good to a few milliseconds; their order is what happened.
    ended_at = min(ended_at, now if run.released_at is None else run.released_at)
    ended_at = max(ended_at, run.started_at or run.planned_at, run.noticed_at or 0.0)
    cause = _cause_of(end, run)
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


def _cause_of(end: RunEnd, run: RunRecord) -> EndCause:
    """One end, one cause. After delivery any exit is what the stop says, unless the job declared itself done."""
    if end.outcome == "never_started":
        return EndCause.NEVER_STARTED
    if end.outcome == "lost":
        return EndCause.OURS
    if end.outcome == "start_failed":
        return EndCause.FAILED
    cause = end.cause or run.stop_cause
    if end.notice_delivered and not end.done and cause is not None:
        return _STOPPED[cause]
    if end.done or (end.exit_code == 0 and not end.signal):
        return EndCause.DONE
    return EndCause.FAILED


def _settle_job(ledger: Ledger, job: JobRecord, run: RunRecord, end: RunEnd, now: float) -> None:
    run_seconds = run.run_seconds or 0.0
    # A shell shows a signal as 128 + n; so do we, and a failure never reads as 0.
    exit_code = 128 + end.signal if end.signal else end.exit_code
    message = end.message or (job.message if job.cancel_requested else "")
    cause = EndCause(run.end_cause or "")
    if cause is EndCause.FAILED and not message:
        message = f"killed by signal {end.signal}" if end.signal else f"exited with {exit_code}"
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
    elif cause is EndCause.NEVER_STARTED:
        job_moves.requeue(ledger, job, now, cause=cause)
    else:
        orderly = end.outcome == "exited" and end.notice_delivered
        job_moves.requeue_as_ours(ledger, job, now, cause=cause, run_seconds=run_seconds, orderly=orderly)


def apply_gpu_empty(ledger: Ledger, fact: GpuEmpty, now: float) -> None:
    """A GPU of an ended run is proven empty: that lease alone is released."""
    run = ledger.runs.get(fact.run_id)
    if run is None or run.node_id != fact.node_id or not run.ended:
        return
    release(ledger, fact.run_id, fact.gpu_id, now)
    settle_released(ledger, fact.run_id, now)


def release(ledger: Ledger, run_id: str, gpu_id: str | None, now: float) -> None:
    """Release one lease of a run, or with None all of them; followers whose last predecessor is gone become LIVE."""
    run = ledger.runs.get(run_id)
    if run is None or not run.leases:
        return
    left = () if gpu_id is None else tuple(each for each in run.leases if each.gpu_id != gpu_id)
    if left == run.leases:
        return
    run = replace(run, leases=left, released_at=None if left else now)
    ledger.runs.put(run_id, run)
    if not left:
        _note_preemption(ledger, run_id, empty_at=now)
        promote_followers(ledger, run_id, now)


def settle_released(ledger: Ledger, run_id: str, now: float) -> None:
    """A run that has ended and has no lease left leaves memory and its node's plan; a terminal job goes with it."""
    run = ledger.runs.get(run_id)
    if run is None or not run.ended or run.leases:
        return
    promote_followers(ledger, run_id, now)
    ledger.runs.put(run_id, replace(run, state=RunState.RELEASED))
    ledger.batch.plans_for.add(run.node_id)


def promote_followers(ledger: Ledger, run_id: str, now: float) -> None:
    """NEXT becomes LIVE when its last predecessor is released; on a GPU that may not be used it waits to be decided."""
    for policy_run in ledger.state.followers_of(run_id):
        follower = ledger.runs.get(policy_run.run_id)
        if follower is None or run_id not in follower.after:
            continue
        after = follower.after - {run_id}
        lease_state = follower.lease_state
        # One that was told to stop stays NEXT until its end is booked: it may be alive already.
        free = not after and not follower.ended and follower.stop_cause is None
        if free and lease_state is LeaseState.NEXT and _usable(ledger, follower):
            lease_state = LeaseState.LIVE
        ledger.runs.put(
            follower.run_id,
            replace(
                follower,
                after=after,
                lease_state=lease_state,
                empty_at=now if not after else follower.empty_at,
                begun_at=(follower.begun_at or now) if not after else follower.begun_at,
            ),
        )
        job_moves.follow(ledger, follower.job_id, now)


def _usable(ledger: Ledger, run: RunRecord) -> bool:
    """Whether all GPUs of a placement are well: a quarantined one was released, but it is not empty."""
    gpus = [ledger.gpus.get(each.gpu_id) for each in run.placement]
    return all(gpu is not None and gpu.condition == "ok" for gpu in gpus)


def _note_preemption(ledger: Ledger, victim_run: str, **columns: Any) -> None:
    record = ledger.batch.preemptions.setdefault(victim_run, {"victim_run": victim_run})
    record.update({name: value for name, value in columns.items() if value is not None})


def _note_preemption_end(ledger: Ledger, run: RunRecord, end: RunEnd, cause: EndCause) -> None:
    if run.stop_cause is not StopCause.PREEMPT:
        return
    lost = 0.0
    if run.started_at is not None and run.ended_at is not None:
        lost = max(0.0, run.ended_at - max(run.started_at, run.acked_at or 0.0)) * max(1, len(run.placement))
    _note_preemption(
        ledger,
        run.run_id,
        exited_at=run.ended_at,
        # It never was on its GPUs; whoever else was there is proven gone by a record of its own.
        empty_at=run.ended_at if end.outcome == "never_started" else None,
        forced=end.forced,
        lost_gpu_seconds=lost if cause is EndCause.PREEMPTED else 0.0,
        void=cause is not EndCause.PREEMPTED,
    )
