"""What happens to a job: its moves between states, shared by facts and choices.

A job's state follows from its run: RESERVED while it has a hold, STARTING while its leases are live and nothing runs
yet, RUNNING, STOPPING once a stop is committed, UNKNOWN while its node is silent. A terminal state never changes.
"""

from dataclasses import replace
from typing import Final

from makeway_policy.model import Mode, Trigger
from makeway_policy.priority import class_of
from makeway_policy.retries import Cause, Ended, Outcome, Retries, after_end, to_avoid
from makeway_schemas.job_spec import PreemptionMode
from makeway_schemas.states import CARD_FAULT, JOB_MOVES, TERMINAL, EndCause, JobState, LeaseState, NodeState

from makeway_scheduler.errors import SchedulerError
from makeway_scheduler.ledger import Ledger
from makeway_scheduler.policy_values import job_value
from makeway_scheduler.records import GpuRecord, JobRecord, RunRecord

_LOST_FOR_GOOD: Final = "its run was lost, and it asks not to be requeued"
_PREEMPTED_FOR_GOOD: Final = "preempted, and it asks not to be requeued"
DAY_SECONDS: Final = 86_400.0
DRAINED: Final = "drained"
"""The last end of a job that made way for the draining of its node: no cool-down follows."""

_OF_CAUSE: Final = {
    EndCause.DONE: JobState.SUCCEEDED,
    EndCause.FAILED: JobState.FAILED,
    EndCause.CANCELLED: JobState.CANCELLED,
    EndCause.TIME_LIMIT: JobState.TIMED_OUT,
}

_LOSSES: Final = {EndCause.NODE_LOST: Cause.NODE_LOST, EndCause.GPU_LOST: Cause.CARD_LOST}


def state_of(ledger: Ledger, run: RunRecord) -> JobState:
    """The state of a job whose newest run has not ended."""
    node = ledger.nodes.get(run.node_id)
    if node is not None and node.state is not NodeState.READY:
        return JobState.UNKNOWN
    if run.stop_cause is not None:
        return JobState.STOPPING
    if run.started_at is not None:
        return JobState.RUNNING
    return JobState.STARTING if run.lease_state is LeaseState.LIVE else JobState.RESERVED


def move(ledger: Ledger, job: JobRecord, state: JobState) -> JobRecord:
    """The job in another state, put into the ledger. Raises SchedulerError for a move that is not allowed."""
    if job.state is state:
        ledger.jobs.put(job.job_id, job)
        return job
    if state not in JOB_MOVES[job.state]:
        raise SchedulerError(f"job {job.job_id} may not go from {job.state} to {state}")
    moved = replace(job, state=state)
    ledger.jobs.put(job.job_id, moved)
    return moved


def follow(ledger: Ledger, job_id: str, now: float) -> None:
    """Bring a job's state up to its run, and tell it if it changed."""
    job = ledger.jobs.get(job_id)
    run = None if job is None else ledger.run_of(job)
    if job is None or run is None or run.ended or job.ended_at is not None:
        return
    state = state_of(ledger, run)
    if state is not job.state:
        moved = move(ledger, job, state)
        ledger.tell(moved, state.lower(), now, node=run.node_id, gpus=[each.gpu_id for each in run.placement])


def end(ledger: Ledger, job: JobRecord, cause: EndCause, now: float, *, exit_code: int | None = None) -> None:
    """The job reaches its terminal state. It leaves memory once its run's leases are released."""
    state = _OF_CAUSE[cause]
    ended = move(
        ledger,
        replace(job, ended_at=now, end_cause=cause.value, exit_code=exit_code, reason_code="", reason=""),
        state,
    )
    ledger.batch.ended_jobs[job.job_id] = job.order
    ledger.tell(ended, state.lower(), now, cause=cause.value, exit_code=exit_code, message=job.message or None)


def requeue(
    ledger: Ledger, job: JobRecord, now: float, *, cause: EndCause, retry_at: float | None = None, last_end: str = ""
) -> None:
    """Back into the queue with its submit time; the stay in the queue starts now."""
    limit = job.time_limit
    if limit is not None and job.used_seconds >= limit:
        end(ledger, job, EndCause.TIME_LIMIT, now)
        return
    # The code of a run that was put back is no result of the job; it is said in words.
    message = job.message if job.exit_code is None else f"requeued after exit {job.exit_code}"
    waiting = move(
        ledger,
        replace(
            job, queued_since=now, retry_at=retry_at, last_end=last_end or cause.value, reason_code="", reason="",
            exit_code=None, message=message,
        ),
        JobState.QUEUED,
    )  # fmt: skip
    ledger.tell(waiting, "requeued", now, cause=cause.value, exit_code=job.exit_code, step=job.last_ack_step)


def requeue_as_ours(ledger: Ledger, job: JobRecord, run: RunRecord, now: float, *, orderly: bool) -> None:
    """After a loss that is not the job's: what the policy's rules for retries say; they may hold it, too.

    `orderly`: its node was shut down and gave it its grace, which speaks against nobody.
    """
    cause = EndCause(run.end_cause or "")
    end_of_run = Ended(
        cause=_LOSSES.get(cause, Cause.OURS),
        ran_seconds=run.run_seconds or 0.0,
        # Of one that never started nothing is lost.
        requeue=job.spec.requeue or cause is EndCause.NEVER_STARTED,
        retries_used=job.own_failures,
        failures_in_a_row=job.infrastructure_failures,
    )
    following = after_end(end_of_run, Retries(), ledger.policy)
    if following.outcome is Outcome.FAILED:
        end(ledger, replace(job, message=_LOST_FOR_GOOD), EndCause.FAILED, now, exit_code=job.exit_code)
        return
    if orderly:
        requeue(ledger, job, now, cause=cause)
        return
    lost_gpus = [gpu.gpu_id for gpu in lost_cards(ledger, run)]
    avoidance = to_avoid(job.avoidance, following, now, nodes=(run.node_id,), gpus=lost_gpus)
    job = replace(job, infrastructure_failures=following.failures_in_a_row, avoidance=avoidance)
    if following.outcome is Outcome.HELD:
        sentence = f"{following.sentence}; the last: {job.message or cause.value}"
        held = move(
            ledger,
            replace(job, queued_since=now, reason_code="held", reason=sentence, last_end=cause.value),
            JobState.QUEUED,
        )
        held = move(ledger, held, JobState.HELD)
        ledger.tell(held, "held", now, reason=sentence)
        return
    wait = following.delay_seconds
    requeue(ledger, job, now, cause=cause, retry_at=now + wait if wait else None)


def lost_cards(ledger: Ledger, run: RunRecord) -> list[GpuRecord]:
    """The GPUs of a run that its node does not find any more, or whose driver has told of a fault."""
    here = [gpu for each in run.placement if (gpu := ledger.gpus.get(each.gpu_id)) is not None]
    return [
        gpu
        for gpu in here
        if gpu.condition == "lost" or (gpu.condition == "quarantined" and gpu.reason.startswith(CARD_FAULT))
    ]


def after_failure(ledger: Ledger, job: JobRecord, now: float, *, exit_code: int | None) -> None:
    """The job itself failed: it is tried again while its `retries` last, else it has failed."""
    wanted = job.spec.retries
    retries = Retries(
        max=wanted.max, backoff_seconds=wanted.backoff, exit_codes=frozenset(wanted.exit_codes)
    )  # fmt: skip
    end_of_run = Ended(cause=Cause.FAILED, exit_code=exit_code, retries_used=job.own_failures)
    following = after_end(end_of_run, retries, ledger.policy)
    if following.outcome is not Outcome.REQUEUE or job.cancel_requested:
        end(ledger, job, EndCause.FAILED, now, exit_code=exit_code)
        return
    job = replace(job, own_failures=following.retries_used, exit_code=None, message=following.sentence)
    requeue(ledger, job, now, cause=EndCause.FAILED, retry_at=now + following.delay_seconds)


def after_preemption(ledger: Ledger, job: JobRecord, run: RunRecord, now: float) -> None:
    """A preempted run has ended: what its mode says becomes of the job. All but a drain counts for a day."""
    kept = tuple(at for at in job.preempted_at if at > now - DAY_SECONDS)
    counts = run.stop_trigger != Trigger.DRAIN
    job = replace(
        job, preemptions=job.preemptions + 1, preempted_at=(*kept, now) if counts else kept,
        last_victim_run=run.run_id, infrastructure_failures=0,
    )  # fmt: skip
    end_of_run = Ended(cause=Cause.PREEMPTED, mode=Mode(mode_of(ledger, job).lower()), requeue=job.spec.requeue)
    following = after_end(end_of_run, Retries(), ledger.policy)
    if following.outcome is Outcome.CANCELLED:
        end(ledger, replace(job, message="cancelled by a preemption, as its mode says"), EndCause.CANCELLED, now)
    elif following.outcome is Outcome.FAILED:
        end(ledger, replace(job, message=_PREEMPTED_FOR_GOOD), EndCause.FAILED, now, exit_code=job.exit_code)
    else:
        requeue(ledger, job, now, cause=EndCause.PREEMPTED, last_end=EndCause.PREEMPTED if counts else DRAINED)


def mode_of(ledger: Ledger, job: JobRecord) -> PreemptionMode:
    """The job's preemption mode: its own, else its class's."""
    if job.spec.preemption.mode is not None:
        return job.spec.preemption.mode
    return PreemptionMode(class_of(job_value(job), ledger.policy).mode.upper())


def grace_of(ledger: Ledger, job: JobRecord) -> float:
    """The job's grace in seconds: its own, else its class's."""
    if job.spec.preemption.grace is not None:
        return job.spec.preemption.grace
    return class_of(job_value(job), ledger.policy).grace_seconds


def is_terminal(job: JobRecord) -> bool:
    """Whether the job has reached its end."""
    return job.state in TERMINAL
