"""What happens to a job: its moves between states, shared by facts and choices.

A job's state follows from its run: RESERVED while it has a hold, STARTING while its leases are live and nothing runs
yet, RUNNING, STOPPING once a stop is committed, UNKNOWN while its node is silent. A terminal state never changes.
"""

from dataclasses import replace
from typing import Final

from makeway_policy.model import Trigger
from makeway_policy.priority import class_of
from makeway_schemas.job_spec import PreemptionMode
from makeway_schemas.states import JOB_MOVES, TERMINAL, EndCause, JobState, LeaseState, NodeState

from makeway_scheduler.errors import SchedulerError
from makeway_scheduler.ledger import JobRecord, Ledger, RunRecord
from makeway_scheduler.policy_values import job_value

BACKOFF_FIRST_SECONDS: Final = 10.0
DAY_SECONDS: Final = 86_400.0
DRAINED: Final = "drained"
"""The last end of a job that made way for the draining of its node: no cool-down follows."""
LONG_RUN_SECONDS: Final = 600.0
"""A run this long ends a series of infrastructure failures."""

_OF_CAUSE: Final = {
    EndCause.DONE: JobState.SUCCEEDED,
    EndCause.FAILED: JobState.FAILED,
    EndCause.CANCELLED: JobState.CANCELLED,
    EndCause.TIME_LIMIT: JobState.TIMED_OUT,
}


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
    limit = job.spec.time_limit
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


def requeue_as_ours(ledger: Ledger, job: JobRecord, now: float, *, cause: EndCause, run_seconds: float) -> None:
    """After a loss that is not the job's: at once, then 10 s doubling; ten in a row without a long run hold it."""
    failures = 1 if run_seconds >= LONG_RUN_SECONDS else job.infrastructure_failures + 1
    job = replace(job, infrastructure_failures=failures)
    if failures >= ledger.policy.infrastructure_failures_max:
        sentence = f"{failures} runs in a row were lost without the job's doing; the last: {job.message or cause.value}"
        held = move(
            ledger,
            replace(job, queued_since=now, reason_code="held", reason=sentence, last_end=cause.value),
            JobState.QUEUED,
        )
        held = move(ledger, held, JobState.HELD)
        ledger.tell(held, "held", now, reason=sentence)
        return
    wait = (
        0.0
        if failures == 1
        else min(BACKOFF_FIRST_SECONDS * 2 ** (failures - 2), ledger.policy.retry_backoff_max_seconds)
    )
    requeue(ledger, job, now, cause=cause, retry_at=now + wait if wait else None)


def after_preemption(ledger: Ledger, job: JobRecord, run: RunRecord, now: float) -> None:
    """A preempted run has ended: what its mode says becomes of the job. All but a drain counts for a day."""
    kept = tuple(at for at in job.preempted_at if at > now - DAY_SECONDS)
    counts = run.stop_trigger != Trigger.DRAIN
    job = replace(
        job, preemptions=job.preemptions + 1, preempted_at=(*kept, now) if counts else kept,
        last_victim_run=run.run_id, infrastructure_failures=0,
    )  # fmt: skip
    if mode_of(ledger, job) is PreemptionMode.CANCEL:
        end(ledger, replace(job, message="cancelled by a preemption, as its mode says"), EndCause.CANCELLED, now)
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
