"""Runs that are decided but not started: their clock, their end, and how one becomes another.

Order of checks for each (the first that holds is what happens):
 1. its stop is decided, or it has started: nothing
 2. a hold with a GPU that is quarantined, lost or cordoned, or on a node that takes no runs: it ends, and its job is
    decided again
 3. a node that is not heard: one that is kept without leases, of which no node has been told, ends and its job is
    decided again; the others wait, for their node may start them yet
 4. kept without leases behind a run that goes on after all (it had started before it was told to move): it ends and its
    job is decided again
 5. kept without leases, and nobody's NEXT lease is in the way any more: it gets its leases
 6. all its GPUs are proven empty and the node has not begun the start within the expiry: it ends, with back-off
 7. the node has begun the start and the process is not there within the start time-out: it is stopped, with back-off
"""

from dataclasses import replace
from typing import Final

from makeway_policy import protection, withdrawal
from makeway_policy.choices import Choice, Grant, Stop, Withdraw
from makeway_policy.index import Index
from makeway_policy.model import GpuHealth, Job, LeaseState, NodeHealth, Run, RunState, StopCause
from makeway_policy.state import PoolState, is_leaving

_ROUNDING = 1e-6
_DOUBLINGS_MOST: Final = 64
_BACKING_OFF_MOST_SECONDS: Final = 366 * 86400.0
"""The longest duration that a policy file may name: beyond it doubling means nothing, and soon is no date."""


def settle(index: Index, now: float) -> list[Choice]:
    """Look at every unstarted run that something changed for."""
    due = sorted(index.jobs.unsettled)
    index.jobs.unsettled.clear()
    choices: list[Choice] = []
    for run_id in due:
        run = index.state.runs.get(run_id)
        if run is not None and run.started_at is None and not is_leaving(run):
            choices.extend(_settle_one(index, run, now))
    return choices


def _settle_one(index: Index, run: Run, now: float) -> list[Choice]:
    state, policy = index.state, index.policy
    job = state.jobs[run.job_id]
    if protection.is_hold(run) and _has_bad_gpu(state, run):
        withdrawal.withdraw(state, run, StopCause.HOLD_LOST, now)
        return [_ended(job, run, StopCause.HOLD_LOST)]
    silent = any(state.nodes[node_id].health is not NodeHealth.READY for node_id in run.node_ids)
    if run.lease_state is LeaseState.PENDING:
        if not silent and all(is_leaving(state.runs[each]) for each in run.after):
            return _grant(state, run)
        withdrawal.withdraw(state, run, StopCause.HOLD_LOST, now)
        return [_ended(job, run, StopCause.HOLD_LOST)]
    if silent:
        return []
    if run.begun_at is not None:
        due_at: float | None = run.begun_at + policy.start_timeout_seconds
    else:
        due_at = None if run.empty_since is None else run.empty_since + policy.hold_expiry_seconds
    if due_at is None or due_at > now + _ROUNDING:
        index.jobs.wake_for_hold(run.run_id, due_at)
        return []
    backed_off = _back_off(index, job, now)
    if run.begun_at is None:
        withdrawal.withdraw(state, run, StopCause.HOLD_EXPIRED, now)
        return [_ended(backed_off, run, StopCause.HOLD_EXPIRED)]
    grace = run.grace_seconds
    state.put_run(
        replace(
            run, lease_state=LeaseState.LEAVING, state=RunState.NOTICED, noticed_at=now, stop_cause=StopCause.OURS,
            leaves_by=now + grace,
        )
    )  # fmt: skip
    return [
        Stop(
            job_id=job.job_id, run_id=run.run_id, cause=StopCause.OURS, grace_seconds=grace,
            no_victims_until=backed_off.no_victims_until, failed_holds=backed_off.failed_holds,
        )
    ]  # fmt: skip


def _grant(state: PoolState, run: Run) -> list[Choice]:
    if not withdrawal.can_have_leases(state, run):
        return []
    granted = replace(run, lease_state=LeaseState.NEXT if run.after else LeaseState.LIVE)
    state.put_run(granted)
    return [Grant(job_id=run.job_id, run=granted)]


def _back_off(index: Index, job: Job, now: float) -> Job:
    doubled = index.policy.backing_off_seconds * 2.0 ** min(job.failed_holds, _DOUBLINGS_MOST)
    seconds = min(doubled, _BACKING_OFF_MOST_SECONDS)
    changed = replace(job, no_victims_until=now + seconds, failed_holds=job.failed_holds + 1)
    index.state.put_job(changed)
    return changed


def _has_bad_gpu(state: PoolState, run: Run) -> bool:
    for lease in run.leases:
        gpu = state.gpus.get(lease.gpu_id)
        if gpu is None or gpu.health is not GpuHealth.AVAILABLE:
            return True
    return not all(state.nodes[node_id].is_open for node_id in run.node_ids)


def _ended(job: Job, run: Run, cause: StopCause) -> Withdraw:
    return Withdraw(
        job_id=job.job_id,
        run_id=run.run_id,
        cause=cause,
        no_victims_until=job.no_victims_until,
        failed_holds=job.failed_holds,
    )
