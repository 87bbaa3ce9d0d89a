"""What a batch writes of runs: what has changed, and nothing of what came and went inside it."""

from dataclasses import replace

from makeway_policy.rules import Policy
from makeway_scheduler.ledger import Ledger
from makeway_scheduler.records import LeaseRecord, RunRecord
from makeway_scheduler.writes import collect
from makeway_schemas.states import RunState

KEPT = RunRecord(
    run_id="p.1", job_id="p", number=1, node_id="a", placement=(LeaseRecord(gpu_id="g", vram_mib=80, slots=4),),
    leases=(), lease_state=None, value=500, planned_at=1.0,
)  # fmt: skip


def test_a_run_that_was_kept_without_leases_and_gone_inside_one_batch_is_not_stored() -> None:
    ledger = Ledger("default", Policy())
    ledger.begin()
    ledger.runs.put("p.1", KEPT)
    ledger.runs.put("p.1", replace(KEPT, state=RunState.RELEASED, ended_at=1.0))
    ledger.runs.put("p.2", replace(KEPT, run_id="p.2", number=2))
    body = collect(ledger, ()).body
    assert [row["run_id"] for row in body["new_runs"]] == ["p.2"]
    assert "runs" not in body


def test_the_end_of_a_run_that_is_stored_is_written() -> None:
    ledger = Ledger("default", Policy())
    ledger.begin()
    ledger.runs.put("p.1", replace(KEPT, stored=True))
    ledger.commit()
    ledger.begin()
    ledger.runs.put("p.1", replace(ledger.runs["p.1"], state=RunState.RELEASED, ended_at=1.0))
    body = collect(ledger, ()).body
    assert [(row["run_id"], row["state"]) for row in body["runs"]] == [("p.1", "RELEASED")]
    assert "new_runs" not in body
