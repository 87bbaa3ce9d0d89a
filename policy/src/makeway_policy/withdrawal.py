"""How a run that has not started is ended, and when one that was kept without leases may have them."""

from dataclasses import replace

from makeway_policy.model import LeaseState, Member, Run, StopCause
from makeway_policy.state import PoolState


def withdraw(state: PoolState, run: Run, cause: StopCause, now: float, to: tuple[Member, ...] = ()) -> None:
    """End a run that has not started: a PENDING one is gone at once, the others when their node has answered."""
    if run.lease_state is LeaseState.PENDING:
        state.remove_run(run.run_id, now)
        return
    leaving = LeaseState.LEAVING if run.lease_state is LeaseState.LIVE else run.lease_state
    state.put_run(replace(run, lease_state=leaving, withdrawing=True, stop_cause=cause, leaves_by=now, moves_to=to))


def can_have_leases(state: PoolState, run: Run) -> bool:
    """Whether no run that must go first still has NEXT leases, which cannot be shared."""
    return all(state.runs[each].lease_state is not LeaseState.NEXT for each in run.after)
