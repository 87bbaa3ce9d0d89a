"""Facts about runs, told by their nodes. Any order, any number of times: each apply is guarded by the run's state."""

from dataclasses import replace

from makeway_schemas.facts import (
    Ack,
    CheckpointAcked,
    NoticeDelivered,
    Resume,
    RunResumed,
    RunStarted,
)
from makeway_schemas.states import JobState, LeaseState, RunState, StopCause

from makeway_scheduler import job_moves
from makeway_scheduler.emptying import note_preemption_step, release
from makeway_scheduler.ledger import Ledger
from makeway_scheduler.records import NO_VICTIMS, JobRecord, RunRecord


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
        alone = run.lease_state is LeaseState.NEXT and not run.after and run.stop_cause is None
        run = replace(run, withdrawing=False, moves_to=(), lease_state=LeaseState.LIVE if alone else run.lease_state)
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
    note_preemption_step(ledger, run.run_id, noticed_at=at)
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
        note_preemption_step(ledger, run.run_id, acked_at=at, acked_step=ack.step, acked_bytes=ack.bytes)
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
        note_preemption_step(
            ledger, job.last_victim_run, resumed_at=at, resumed_step=resume.step, load_seconds=resume.load_seconds
        )
    if run.started_at is not None:
        job = replace(job, restart_seconds=max(0.0, at - run.started_at))
        ledger.jobs.put(job.job_id, job)
    ledger.tell(job, "resumed", now, step=resume.step, load_seconds=resume.load_seconds)
