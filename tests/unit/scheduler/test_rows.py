"""What a new owner makes of the rows that it finds."""

from typing import Any

import pytest
from makeway_scheduler.rows import run_of
from makeway_schemas.states import LeaseState

GPU = {"gpu_id": "GPU-a-0", "vram_mib": 81920, "slots": 4}
ROW: dict[str, Any] = {
    "run_id": "00000000zzzz.1", "job_id": "00000000zzzz", "run_number": 1, "node_id": "a", "state": "PLANNED",
    "value": 500, "gpus": [GPU], "cpus": 1.0, "memory_mib": 0, "after_runs": [], "trigger": "", "restart_seconds": 0.0,
    "promoted": False, "after_preemption": False, "withdrawing": False, "stop_cause": None, "stop_trigger": "",
    "stop_grace_seconds": None, "stop_at": None, "leaves_by": None, "empty_at": None, "begun_at": None, "pid": None,
    "started_at": None, "noticed_at": None, "resumed_at": None, "resumed_step": None, "load_seconds": None,
    "ack_step": None, "ack_bytes": None, "ack_fraction": None, "acked_at": None, "ended_at": None, "end_cause": None,
    "exit_code": None, "signal": None, "forced": None, "run_seconds": None, "log_bytes": None, "message": "",
    "traceparent": None, "planned_at": 1.0, "leases": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"after_runs": ["00000000yyyy.1"]}, None),
        ({"withdrawing": True}, LeaseState.LEAVING),
        ({"stop_cause": "preempt"}, LeaseState.LEAVING),
        ({"state": "RUNNING"}, LeaseState.LEAVING),
        ({"state": "EXITED"}, LeaseState.LEAVING),
    ],
)
def test_only_a_run_that_was_kept_and_told_nothing_still_waits_for_its_gpus(
    changes: dict[str, Any], expected: LeaseState | None
) -> None:
    """Any other that is found without leases has left its GPUs before its end was told."""
    run = run_of({**ROW, **changes})
    assert run.lease_state is expected
    assert run.pending is (expected is None)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, LeaseState.LIVE),
        ({"state": "RUNNING"}, LeaseState.LIVE),
        ({"after_runs": ["00000000yyyy.1"]}, LeaseState.NEXT),
        ({"withdrawing": True}, LeaseState.NEXT),
        ({"after_runs": ["00000000yyyy.1"], "stop_cause": "cancel"}, LeaseState.NEXT),
        ({"stop_cause": "cancel"}, LeaseState.LEAVING),
        ({"state": "NOTICED", "stop_cause": "preempt"}, LeaseState.LEAVING),
        ({"state": "EXITED"}, LeaseState.LEAVING),
    ],
)
def test_a_run_of_cpu_and_memory_alone_is_what_its_state_says(changes: dict[str, Any], expected: LeaseState) -> None:
    assert run_of({**ROW, "gpus": [], **changes}).lease_state is expected


def test_a_run_with_leases_is_what_they_are() -> None:
    run = run_of({**ROW, "state": "RUNNING", "leases": [{**GPU, "state": "LEAVING"}]})
    assert run.lease_state is LeaseState.LEAVING
    assert [lease.gpu_id for lease in run.leases] == ["GPU-a-0"]
