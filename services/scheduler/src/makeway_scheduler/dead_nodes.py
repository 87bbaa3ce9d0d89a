"""Nodes that are declared dead: what ran there is lost, its jobs go back to the queue, and its leases are released.

Only a person can know that nothing runs any more on a node that is silent, so only a silent node can be declared dead.
If it is heard again all the same, it is told to stop what it still runs; that counts for nothing.
"""

from dataclasses import replace
from typing import Final

from makeway_schemas.facts import NodeCommandIssued, RunEnd
from makeway_schemas.states import NodeState, StopCause

from makeway_scheduler import apply_ends, emptying, node_notes
from makeway_scheduler.ledger import Ledger
from makeway_scheduler.records import NodeRecord, RunRecord

HEARD: Final = "the node is heard; a drain empties it"


def declare(ledger: Ledger, node: NodeRecord, fact: NodeCommandIssued, now: float) -> str | None:
    """Give up a silent node and all that ran there; again only tells why. Returns why not, where it is heard."""
    if node.state is NodeState.READY:
        return HEARD
    note = node_notes.with_word(node.note, node_notes.DECLARED_DEAD, fact)
    if node.state is NodeState.DEAD:
        ledger.nodes.put(node.node_id, replace(node, note=note))
        return None
    ledger.nodes.put(node.node_id, replace(node, state=NodeState.DEAD, state_since=now, note=note))
    here = [ledger.runs[each.run_id] for each in ledger.state.runs_on_node(node.node_id) if each.run_id in ledger.runs]
    # Whoever waits for others to leave goes before them, so that nobody is promoted on a dead node.
    for run in sorted(here, key=lambda run: (not (run.after or run.pending), run.run_id)):
        _lose(ledger, run, node.state_since, now)
    return None


def _lose(ledger: Ledger, run: RunRecord, silent_since: float, now: float) -> None:
    if not run.ended:
        waits = bool(run.after) or run.pending or run.withdrawing
        ran = 0.0 if run.started_at is None else max(0.0, silent_since - run.started_at)
        job = ledger.jobs.get(run.job_id)
        # What ends the job besides says why in its own words.
        ends = job is None or job.cancel_requested or run.stop_cause in (StopCause.CANCEL, StopCause.TIME_LIMIT)
        message = "" if ends else f"node {run.node_id} was declared dead"
        end = RunEnd(outcome="never_started" if waits else "lost", run_seconds=ran, message=message)
        apply_ends.note_exited(ledger, run, end, now, ended_at=now)
    emptying.release(ledger, run.run_id, None, now)
    emptying.settle_released(ledger, run.run_id, now)
