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
