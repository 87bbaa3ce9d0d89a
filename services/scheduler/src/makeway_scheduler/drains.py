"""Why runs are still on nodes that are drained: stored whenever it changes, by the checks that decide."""

from datetime import UTC, datetime

from makeway_policy import protection
from makeway_policy.model import Drain, Run, RunState
from makeway_policy.state import is_leaving

from makeway_scheduler.ledger import Ledger


def explain_stays(ledger: Ledger, now: float) -> None:
    """Store what protects each run that a gentle drain waits for; nothing where that is stored already."""
    for node_id in sorted(ledger.draining()):
        if ledger.nodes[node_id].drain is Drain.GENTLY:
            for run in ledger.state.runs_on_node(node_id):
                _explain(ledger, node_id, run, now)


def _explain(ledger: Ledger, node_id: str, run: Run, now: float) -> None:
    if is_leaving(run) or protection.is_hold(run) or run.state is RunState.EXITED:
        return
    guard = protection.of_run(ledger.state, ledger.policy, run, now, overrides=False)
    if guard is None:
        return
    until = _until(guard)
    told = (guard.guard.value, until)
    if ledger.drains_told.get(run.run_id) == told:
        return
    ledger.batch.drains_told[run.run_id] = told
    ledger.batch.decisions.append(
        {
            "job_id": run.job_id,
            "decided_at": now,
            "choice": "drain",
            "reason_code": guard.guard.value,
            "reason": f"node {node_id} is drained, and {guard.sentence}",
            "detail": {"run": run.run_id, "protected": guard.sentence, "until": until},
        }
    )


def _until(guard: protection.Protection) -> str | None:
    return None if guard.until is None else datetime.fromtimestamp(guard.until, UTC).isoformat(timespec="seconds")
