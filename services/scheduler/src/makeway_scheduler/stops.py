"""Telling runs to stop. Where causes meet: cancel, then time limit, then drain, then preempt."""

from dataclasses import replace
from typing import Final

from makeway_schemas.states import LeaseState, StopCause

from makeway_scheduler import job_moves
from makeway_scheduler.ledger import Ledger
from makeway_scheduler.records import RunRecord

_STRENGTH: Final = {StopCause.PREEMPT: 0, StopCause.DRAIN: 1, StopCause.TIME_LIMIT: 2, StopCause.CANCEL: 3}


def stop_run(ledger: Ledger, run: RunRecord, cause: StopCause, grace_seconds: float, now: float) -> None:
    """Commit a run's stop. A stronger cause replaces a weaker one and never gives more time than is left.

    A live lease becomes LEAVING; a NEXT lease stays NEXT until the run's end is booked, since it may be alive already.
    """
    if run.ended:
        return
    grace = grace_seconds
    if run.stop_cause is not None:
        if _STRENGTH[cause] <= _STRENGTH[run.stop_cause]:
            return
        grace = min(grace_seconds, run.stop_grace_seconds if run.stop_grace_seconds is not None else grace_seconds)
    leaves_by = now + grace if run.leaves_by is None else min(run.leaves_by, now + grace)
    ledger.runs.put(
        run.run_id,
        replace(
            run,
            stop_cause=cause,
            stop_grace_seconds=grace,
            stop_at=run.stop_at if run.stop_at is not None else now,
            leaves_by=leaves_by,
            lease_state=LeaseState.LEAVING if run.lease_state is LeaseState.LIVE else run.lease_state,
        ),
    )
    ledger.batch.plans_for.add(run.node_id)
    job_moves.follow(ledger, run.job_id, now)
