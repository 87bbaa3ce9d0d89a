"""What facts from nodes do to the state: a run has started, has saved its state, has ended.

The live scheduler and the simulator apply facts with the same functions, so that what a decision reads means the same.
"""

from makeway_policy.copies import changed
from makeway_policy.model import LeaseState, Run, RunState
from makeway_policy.state import PoolState


def run_begun(state: PoolState, run_id: str, now: float) -> None:
    """The node has begun the start: the hold's clock ends."""
    run = state.runs.get(run_id)
    if run is not None and run.begun_at is None:
        state.put_run(changed(run, begun_at=now))


def run_started(state: PoolState, run_id: str, now: float) -> None:
    """The process is there. Its predecessors are thereby proven empty and released; repeats change nothing."""
    run = state.runs.get(run_id)
    if run is None or run.started_at is not None:
        return
    for predecessor in sorted(run.after):
        state.remove_run(predecessor, now)
    run = state.runs[run_id]
    live = LeaseState.LIVE if run.lease_state is LeaseState.NEXT else run.lease_state
    noticed = run.noticed_at is not None
    state.put_run(
        changed(
            run,
            lease_state=LeaseState.LEAVING if noticed else live,
            state=RunState.NOTICED if noticed else RunState.RUNNING,
            started_at=now,
            begun_at=run.begun_at if run.begun_at is not None else now,
            withdrawing=False,
            moves_to=(),
        )
    )
    job = state.jobs[run.job_id]
    state.put_job(
        changed(
            job, has_started=True, down=False, last_end_preempted=False, failed_holds=0, no_victims_until=0.0,
            promoted=False,
        )
    )  # fmt: skip


def acked(state: PoolState, run_id: str, now: float, progress: float | None = None) -> None:
    """The job has saved its state; work before `now` is safe."""
    run = state.runs.get(run_id)
    if run is not None:
        state.put_run(changed(run, last_ack_at=now, progress=run.progress if progress is None else progress))


def run_released(state: PoolState, run_id: str, now: float) -> tuple[Run, ...]:
    """The run has ended and its GPUs are proven empty: book the time it used, and release it.

    Returns its followers as they are now. The job waits again from now on (its stay in the queue goes on if this run
    never started), so the caller removes or holds it in the same breath if it does not.
    """
    run = state.runs.get(run_id)
    if run is None:
        return ()
    job = state.jobs[run.job_id]
    if run.started_at is not None:
        used = job.used_seconds + max(0.0, now - run.started_at)
        state.put_job(changed(job, used_seconds=used, queued_since=now))
    return state.remove_run(run_id, now)
