"""Streams and waits outlive outages: nothing twice, nothing left out, and a lost event delays nobody for long."""

import pytest
from api_stub import JOB_ID, Answer, Request, StubServer, job_detail, log_events, sse
from makeway.client import Client, NoContact, Patience
from makeway.errors import NoScheduler
from makeway_schemas.states import JobState

JOB = f"/v1/jobs/{JOB_ID}"


def client_of(server: StubServer) -> Client:
    """A client with little patience."""
    return Client(server.url, "secret", patience=Patience(first_seconds=0.3, later_seconds=0.5))


def test_events_go_on_after_a_broken_connection(server: StubServer) -> None:
    answers = [
        Answer(pieces=sse({"sequence": 1, "state": "QUEUED"}, {"sequence": 2, "state": "RUNNING"}), cut=True),
        Answer(status=503),
        Answer(pieces=sse({"sequence": 3, "state": "SUCCEEDED"})),
    ]
    server.on("GET", f"{JOB}/events", *answers)
    with client_of(server) as client:
        assert [event.sequence for event in client.events(JOB_ID)] == [1, 2, 3]
    assert [request.headers.get("last-event-id") for request in server.requests] == [None, "2", "2"]


def test_a_history_ends_once_nothing_new_comes_not_where_a_server_shuts_down(server: StubServer) -> None:
    def answer(request: Request) -> Answer:
        seen = int(request.headers.get("last-event-id", "0"))
        coming = [{"sequence": seen + 1, "state": "QUEUED"}] if seen < 3 else []
        return Answer(pieces=[b": hello\n\n", *sse(*coming)])

    server.routes["GET", "/v1/events"] = answer
    with client_of(server) as client:
        assert [event.sequence for event in client.history()] == [1, 2, 3]
    assert len(server.requests) == 4


def test_a_log_goes_on_after_a_broken_connection_with_each_byte_once(server: StubServer) -> None:
    content = bytes(range(256)) * 20

    def answer(request: Request) -> Answer:
        seen = int(request.headers.get("last-event-id", "1:0").partition(":")[2])
        if seen >= 3000:
            return Answer(pieces=log_events(content[seen:], offset=seen))
        return Answer(pieces=log_events(content[seen : seen + 1000], offset=seen, end=False), cut=True)

    server.routes["GET", f"{JOB}/logs"] = answer
    with client_of(server) as client:
        assert b"".join(client.logs(JOB_ID)) == content


def test_a_log_that_ends_while_the_job_goes_on_is_opened_again(server: StubServer) -> None:
    """A server that shuts down ends its streams too."""
    server.log(JOB_ID, b"all of it")
    server.on("GET", JOB, job_detail(), job_detail(state="SUCCEEDED"))
    with client_of(server) as client:
        assert b"".join(client.logs(JOB_ID, follow=True)) == b"all of it"
    assert [request.path for request in server.requests].count(f"{JOB}/logs") == 2


def test_what_no_run_wrote_is_said_beside_the_log(server: StubServer, capsys: pytest.CaptureFixture[str]) -> None:
    note = b'event: note\ndata: {"run": 1, "message": "5 bytes of run 1 have not come"}\n\n'
    server.on("GET", f"{JOB}/logs", Answer(pieces=[note, *log_events(b"x")]))
    with client_of(server) as client:
        assert b"".join(client.logs(JOB_ID)) == b"x"
    assert capsys.readouterr().err == "makeway: 5 bytes of run 1 have not come\n"


def test_a_wait_ends_by_the_state_even_if_no_event_comes(server: StubServer) -> None:
    server.on("GET", f"{JOB}/events", Answer(pieces=[b": still here\n\n"]))
    server.on("GET", JOB, job_detail(), job_detail(), job_detail(state="FAILED", exit_code=4))
    server.on("GET", "/v1/cluster", {**CLUSTER, "scheduler": "s"})
    with client_of(server) as client:
        assert client.wait(JOB_ID).state is JobState.FAILED


def test_a_wait_ends_when_the_server_says_that_nothing_more_will_come(server: StubServer) -> None:
    server.on("GET", f"{JOB}/events", Answer(status=204))
    server.on("GET", JOB, job_detail(), job_detail(state="SUCCEEDED"))
    with client_of(server) as client:
        assert client.wait(JOB_ID).state is JobState.SUCCEEDED


def test_a_wait_gives_up_when_nobody_schedules_for_long(server: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makeway.client.waiting.OWNERLESS_SECONDS", 0.2)
    server.on("GET", f"{JOB}/events", Answer(pieces=[b": still here\n\n"]))
    server.on("GET", JOB, job_detail(state="QUEUED"))
    server.on("GET", "/v1/cluster", {**CLUSTER, "scheduler": ""})
    with client_of(server) as client, pytest.raises(NoScheduler):
        client.wait(JOB_ID)


CLUSTER = {
    "version": "0",
    "nodes": 1,
    "nodes_ready": 1,
    "gpus": 1,
    "gpus_leased": 0,
    "jobs": {},
    "by_type": [],
    "epoch": 1,
}


def test_an_outage_longer_than_the_patience_is_no_contact(server: StubServer) -> None:
    server.on("GET", JOB, Answer(status=503))
    with client_of(server) as client, pytest.raises(NoContact, match="HTTP 503"):
        client.job(JOB_ID)


def test_a_refusal_is_not_repeated(server: StubServer) -> None:
    with client_of(server) as client, pytest.raises(Exception, match="Not found"):
        client.job(JOB_ID)
    assert len(server.requests) == 1
