"""What a job can be told: which run is meant, and what comes back."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from api_stub import JOB_ID, NOW, Answer, Makeway, StubServer, job_detail
from makeway.output import local_time


def before(moment: str, seconds: float) -> str:
    return (datetime.fromisoformat(moment) - timedelta(seconds=seconds)).isoformat()


ACCEPTED = {"command_id": 7, "job_id": JOB_ID, "state": "RUNNING"}


def taken(server: StubServer, outcome: str) -> None:
    """The scheduler has said what became of command 7."""
    view: dict[str, Any] = {
        "command_id": 7,
        "job_id": JOB_ID,
        "command": "preempt",
        "issued_by": "me",
        "issued_at": NOW,
    }
    server.on("GET", "/v1/commands/7", view | {"applied_at": NOW, "outcome": outcome})


def record(**changes: Any) -> dict[str, Any]:
    """The record of the preemption of run 3 by hand."""
    return {
        "preemptor_job": None, "preemptor_run": None, "victim_job": JOB_ID, "victim_run": f"{JOB_ID}.3",
        "trigger": "manual", "rule": "manual", "preemptor_value": None, "victim_value": 500,
        "expected_cost_gpu_seconds": 1.0, "decided_at": NOW, **changes,
    }  # fmt: skip


@pytest.mark.parametrize(("given", "meant"), [((), 3), (("--run", "2"), 2)])
def test_a_preemption_names_the_run_that_is_meant_so_that_a_repeat_means_the_same(
    server: StubServer, makeway: Makeway, given: tuple[str, ...], meant: int
) -> None:
    server.on("GET", f"/v1/jobs/{JOB_ID}", job_detail(run_number=3), job_detail(run_number=4))
    busy = {"title": "Unavailable", "status": 503, "detail": "busy", "code": "unavailable"}
    server.on("POST", f"/v1/jobs/{JOB_ID}/preempt", Answer(status=503, body=busy), Answer(status=202, body=ACCEPTED))
    taken(server, "stopping")
    server.on("GET", "/v1/preemptions", [record()], [record(noticed_at=NOW)])
    assert makeway("preempt", JOB_ID, *given).stdout == f"{JOB_ID}  stopping\n"
    sent = [request.json for request in server.requests if request.method == "POST"]
    assert sent == [{"force": False, "run": meant}] * 2


def test_a_preemption_of_a_run_that_has_ended_is_refused_in_the_schedulers_words(
    server: StubServer, makeway: Makeway
) -> None:
    server.on("POST", f"/v1/jobs/{JOB_ID}/preempt", Answer(status=202, body=ACCEPTED))
    taken(server, "refused: run 2 has ended already")
    result = makeway("preempt", JOB_ID, "--run", "2")
    assert result.returncode == 120
    assert "run 2 has ended already" in result.stderr


def test_a_protected_run_is_refused_with_the_end_of_its_protection_in_the_readers_time(
    server: StubServer, makeway: Makeway
) -> None:
    refused = "refused: it is inside its minimum run, until 2026-01-02T03:04:05+00:00"
    server.on("POST", f"/v1/jobs/{JOB_ID}/preempt", Answer(status=202, body=ACCEPTED))
    taken(server, refused)
    shown = local_time(datetime.fromisoformat(NOW))
    assert f"it is inside its minimum run, until {shown}" in makeway("preempt", JOB_ID, "--run", "2").stderr


def test_a_preemption_of_a_run_that_had_ended_before_it_was_told_says_so(server: StubServer, makeway: Makeway) -> None:
    server.on("GET", f"/v1/jobs/{JOB_ID}", job_detail(run_number=3))
    server.on("POST", f"/v1/jobs/{JOB_ID}/preempt", Answer(status=202, body=ACCEPTED))
    taken(server, "stopping")
    server.on("GET", "/v1/preemptions", [record()], [record(exited_at=NOW, void=True)])
    result = makeway("preempt", JOB_ID)
    assert (result.returncode, result.stdout) == (120, "")
    assert f"run {JOB_ID}.3 had ended by itself before it was told to stop; nothing else was stopped" in result.stderr


def test_a_preemption_that_its_node_has_not_told_the_run_is_said_to_be_stored(
    server: StubServer, makeway: Makeway
) -> None:
    server.on("GET", f"/v1/jobs/{JOB_ID}", job_detail(run_number=3))
    server.on("POST", f"/v1/jobs/{JOB_ID}/preempt", Answer(status=202, body=ACCEPTED))
    taken(server, "stopping")
    server.on("GET", "/v1/preemptions", [record()])
    assert makeway("preempt", JOB_ID).stdout == (
        f"{JOB_ID}  stopping; its node has not told the run yet, `makeway preemptions {JOB_ID}` says what came of it\n"
    )


def test_a_preemption_of_a_job_that_has_ended_is_refused_like_one_of_an_ended_run(
    server: StubServer, makeway: Makeway
) -> None:
    message = "the job had ended before: it is SUCCEEDED and stays so"
    server.on("GET", f"/v1/jobs/{JOB_ID}", job_detail(run_number=3))
    ended = {"command_id": None, "job_id": JOB_ID, "state": "SUCCEEDED", "message": message}
    server.on("POST", f"/v1/jobs/{JOB_ID}/preempt", ended)
    result = makeway("preempt", JOB_ID)
    assert (result.returncode, result.stdout) == (120, "")
    assert message in result.stderr


def test_a_step_before_the_decision_has_no_negative_time(server: StubServer, makeway: Makeway) -> None:
    server.on("GET", "/v1/preemptions", [record(exited_at=before(NOW, 0.002), void=True)])
    out = makeway("preemptions").stdout
    assert "0.002 s before" in out
    assert "+-" not in out


def test_a_negative_priority_is_a_value_and_no_option(server: StubServer, makeway: Makeway) -> None:
    problem = {"title": "A field is out of its bounds", "status": 422, "code": "invalid_field"}
    fields = [{"field": "priority", "message": "must be 0 to 1000; this is -1"}]
    server.on("PUT", f"/v1/jobs/{JOB_ID}/priority", Answer(status=422, body=problem | {"fields": fields}))
    for order in (("priority", JOB_ID, "-1"), ("priority", "--output", "json", JOB_ID, "-1")):
        result = makeway(*order)
        assert result.returncode == 120
        assert "priority: must be 0 to 1000; this is -1" in result.stderr
    assert server.requests[-1].json == {"priority": -1}


@pytest.mark.parametrize("value", ["high", "--now", "1.5", "-", "1e3", "٣"])
def test_a_priority_that_is_no_number_is_wrong_usage(makeway: Makeway, value: str) -> None:
    result = makeway("priority", JOB_ID, value)
    assert result.returncode == 2
    assert "is neither a whole number nor `none`" in result.stderr
