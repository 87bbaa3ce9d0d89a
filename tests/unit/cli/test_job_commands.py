"""What a job can be told: which run is meant, and what comes back."""

from typing import Any

import pytest
from api_stub import JOB_ID, NOW, Answer, Makeway, StubServer, job_detail

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


@pytest.mark.parametrize(("given", "meant"), [((), 3), (("--run", "2"), 2)])
def test_a_preemption_names_the_run_that_is_meant_so_that_a_repeat_means_the_same(
    server: StubServer, makeway: Makeway, given: tuple[str, ...], meant: int
) -> None:
    server.on("GET", f"/v1/jobs/{JOB_ID}", job_detail(run_number=3), job_detail(run_number=4))
    busy = {"title": "Unavailable", "status": 503, "detail": "busy", "code": "unavailable"}
    server.on("POST", f"/v1/jobs/{JOB_ID}/preempt", Answer(status=503, body=busy), Answer(status=202, body=ACCEPTED))
    taken(server, "stopping")
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
