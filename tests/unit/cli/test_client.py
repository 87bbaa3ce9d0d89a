"""What the client refuses by itself is refused as the server would: one documented error, by field, nothing sent."""

from datetime import UTC, datetime
from typing import Any

import pytest
from api_stub import JOB_ID, Answer, StubServer
from makeway.client import Client, Patience, Refused
from makeway.errors import BadAnswer
from makeway_admission.errors import Refused as ServerRefused
from makeway_admission.requests import parse_job


def client_of(server: StubServer) -> Client:
    return Client(server.url, "secret", patience=Patience(first_seconds=0.3, later_seconds=0.5))


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"command": []}, "command"),
        ({"command": ["true"], "gpuss": 1}, "gpuss"),
        ({"command": ["true"], "preemption": {"grace": "x"}}, "preemption.grace"),
        ({"command": ["true"], "gpus": float("nan")}, "gpus"),
        ({"command": ["true"], "shares": 1, "vram_mib": 1}, "vram_mib"),
        ({}, "command"),
    ],
)
def test_a_wrong_field_of_a_job_is_refused_as_the_server_says_it(
    server: StubServer, document: dict[str, Any], field: str
) -> None:
    with client_of(server) as client, pytest.raises(Refused) as refused:
        client.submit(document)
    with pytest.raises(ServerRefused) as said:
        parse_job(document)
    assert refused.value.problem == said.value.problem
    assert [each.field for each in refused.value.problem.fields] == [field]
    assert server.requests == []


def test_a_job_that_is_no_mapping_is_refused(server: StubServer) -> None:
    with client_of(server) as client, pytest.raises(Refused, match="must be an object"):
        client.submit(["true"])  # type: ignore[arg-type]


def test_limits_are_refused_by_name_and_may_be_values_of_python(server: StubServer) -> None:
    accepted = {"command_id": 1, "job_id": JOB_ID, "state": "QUEUED"}
    server.on("PATCH", f"/v1/jobs/{JOB_ID}", Answer(status=202, body=accepted))
    with client_of(server) as client:
        with pytest.raises(Refused, match="time_limit: must be more than 0"):
            client.change_limits(JOB_ID, {"time_limit": 0})
        client.change_limits(JOB_ID, {"time_limit": "2h", "deadline": datetime(2036, 12, 1, tzinfo=UTC)})
        client.change_limits(JOB_ID, {"deadline": None})
    assert [request.json for request in server.requests] == [
        {"time_limit": 7200.0, "deadline": "2036-12-01T00:00:00Z"},
        {"deadline": None},
    ]


def test_an_answer_to_a_policy_that_is_none_is_said_to_be_none(server: StubServer) -> None:
    server.on("PUT", "/v1/policies/main", Answer(body={"hello": "world"}))
    with client_of(server) as client, pytest.raises(BadAnswer):
        client.apply_policy("main", {})
