"""GPUs that are proven empty: leases are released, and whoever follows on them may go on."""

from dataclasses import replace
from typing import Any

from makeway_schemas.facts import GpuEmpty
from makeway_schemas.states import LeaseState, RunState

from makeway_scheduler import job_moves
from makeway_scheduler.ledger import Ledger
from makeway_scheduler.records import RunRecord


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
        note_preemption_step(ledger, run_id, empty_at=now)
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
        # One that was told to stop, or to move, stays NEXT until its node has answered: it may be alive already.
        told = follower.stop_cause is not None or follower.withdrawing
        free = not after and not follower.ended and not told
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


def note_preemption_step(ledger: Ledger, victim_run: str, **columns: Any) -> None:
    """Add a step to the record of the preemption that made the run leave."""
    record = ledger.batch.preemptions.setdefault(victim_run, {"victim_run": victim_run})
    record.update({name: value for name, value in columns.items() if value is not None})
