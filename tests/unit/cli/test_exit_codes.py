"""The exit code tells a pipeline the truth: the state decides, a failed job is never 0."""

import time
from typing import Any

import pytest
from api_stub import JOB_ID, Answer, Makeway, Request, StubServer, job_detail, log_events, run_view, sse
from makeway.client import Patience

ENDINGS = [
    ({"state": "SUCCEEDED", "exit_code": 0}, 0),
    ({"state": "SUCCEEDED", "exit_code": 0, "preemptions": 1, "run_number": 2}, 0),
    ({"state": "FAILED", "exit_code": 1}, 1),
    ({"state": "FAILED", "exit_code": 137}, 137),
    ({"state": "FAILED", "exit_code": None}, 1),
    ({"state": "FAILED", "exit_code": 0}, 1),
    ({"state": "FAILED", "exit_code": None, "runs": [run_view(signal=9)]}, 137),
    ({"state": "CANCELLED", "exit_code": 0}, 121),
    ({"state": "TIMED_OUT", "exit_code": 143}, 122),
    ({"state": "EXPIRED", "exit_code": None}, 123),
]
SUBMITTED = {"job_id": JOB_ID, "name": "train"}
REFUSAL = Answer(
    status=422,
    body={
        "title": "Invalid",
        "status": 422,
        "code": "invalid_field",
        "fields": [{"field": "class", "message": "the team has no allowance for urgent"}],
    },
)


def ends(server: StubServer, ending: dict[str, Any]) -> None:
    """The job runs when first looked at and has ended after its events."""
    server.on("POST", "/v1/jobs", SUBMITTED)
    server.on("GET", f"/v1/jobs/{JOB_ID}", job_detail(), job_detail(**ending))
    events = sse({"sequence": 1, "state": "RUNNING", "run": 1}, {"sequence": 2, "state": ending["state"]})
    server.on("GET", f"/v1/jobs/{JOB_ID}/events", Answer(pieces=events))
    server.log(JOB_ID, b"line 1\n", b"line 2 without end")


@pytest.mark.parametrize(("ending", "code"), ENDINGS)
def test_wait_ends_with_what_the_state_says(server: StubServer, makeway: Makeway, ending: Any, code: int) -> None:
    ends(server, ending)
    result = makeway("wait", JOB_ID)
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    assert ending["state"] in result.stderr


@pytest.mark.parametrize("verb", [("submit", "--wait"), ("run",)])
@pytest.mark.parametrize(("ending", "code"), [ENDINGS[0], ENDINGS[1], ENDINGS[3], ENDINGS[7]])
def test_submit_wait_and_run_pass_the_code_on(
    server: StubServer, makeway: Makeway, verb: tuple[str, ...], ending: Any, code: int
) -> None:
    ends(server, ending)
    result = makeway(*verb, "--", "/bin/true")
    assert result.returncode == code, result.stderr
    assert result.stdout == (f"{JOB_ID}\n" if verb[0] == "submit" else "line 1\nline 2 without end")


def test_following_a_log_ends_with_the_jobs_code_and_printing_it_does_not(server: StubServer, makeway: Makeway) -> None:
    ends(server, {"state": "FAILED", "exit_code": 3})
    assert makeway("logs", "--follow", JOB_ID).returncode == 3
    assert makeway("logs", JOB_ID).returncode == 0


def test_without_waiting_zero_means_accepted(server: StubServer, makeway: Makeway) -> None:
    ends(server, {"state": "FAILED", "exit_code": 3})
    result = makeway("submit", "--", "/bin/false")
    assert (result.returncode, result.stdout) == (0, f"{JOB_ID}\n")


def test_a_refused_submit_has_its_own_code_and_names_the_field(server: StubServer, makeway: Makeway) -> None:
    server.on("POST", "/v1/jobs", REFUSAL)
    for verb in (["submit"], ["submit", "--wait"], ["run"]):
        result = makeway(*verb, "--", "/bin/true")
        assert (result.returncode, result.stdout) == (120, "")
        assert "class: the team has no allowance for urgent" in result.stderr


def test_an_unknown_job_is_refused(makeway: Makeway) -> None:
    assert makeway("wait", JOB_ID).returncode == 120


def test_no_contact_has_its_own_code(makeway: Makeway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makeway.commands.options.Patience", lambda: Patience(first_seconds=0.2))
    result = makeway("ps", MAKEWAY_URL="http://127.0.0.1:9")
    assert result.returncode == 124
    assert "no contact with http://127.0.0.1:9" in result.stderr


def test_no_known_cluster_says_what_to_do(makeway: Makeway) -> None:
    result = makeway("ps", MAKEWAY_URL="", MAKEWAY_STATE=str(makeway.folder / "nothing"))
    assert result.returncode == 124
    assert "makeway up" in result.stderr


def test_a_wait_that_times_out_says_that_the_job_goes_on(server: StubServer, makeway: Makeway) -> None:
    server.on("GET", f"/v1/jobs/{JOB_ID}", job_detail())
    server.on("GET", f"/v1/jobs/{JOB_ID}/events", Answer(pieces=sse({"sequence": 1, "state": "RUNNING"})))
    server.on("GET", "/v1/cluster", Answer(body=CLUSTER))
    result = makeway("wait", JOB_ID, "--timeout", "300ms")
    assert result.returncode == 125
    assert "goes on" in result.stderr


def test_the_time_out_of_a_wait_is_for_all_jobs_together(server: StubServer, makeway: Makeway) -> None:
    first, second = JOB_ID, "0123456789ac"
    for job in (first, second):
        server.on("GET", f"/v1/jobs/{job}", job_detail(job_id=job))
    ended = job_detail(job_id=first, state="SUCCEEDED")

    def slowly(request: Request) -> Answer:
        time.sleep(0.6)
        return Answer(body=ended)

    server.routes[("GET", f"/v1/jobs/{first}")] = slowly
    server.on("GET", f"/v1/jobs/{second}/events", Answer(pieces=[b": still here\n\n"]))
    server.on("GET", "/v1/cluster", Answer(body=CLUSTER))
    began = time.monotonic()
    result = makeway("wait", first, second, "--timeout", "1")
    assert time.monotonic() - began < 1.5
    assert result.returncode == 125
    assert f"job {second} has not ended in 1 s; it goes on" in result.stderr


def test_a_wait_for_several_finds_all_of_them_before_it_waits_for_one(server: StubServer, makeway: Makeway) -> None:
    server.on("GET", f"/v1/jobs/{JOB_ID}", job_detail())
    result = makeway("wait", JOB_ID, "nosuchjob")
    assert result.returncode == 120
    assert [request.path for request in server.requests] == ["/v1/resolve"]


def test_of_several_jobs_each_line_of_a_wait_names_its_job(server: StubServer, makeway: Makeway) -> None:
    first, second = JOB_ID, "0123456789ac"
    moves = sse({"sequence": 1, "state": "RUNNING"}, {"sequence": 2, "state": "SUCCEEDED", "kind": "succeeded"})
    for job, name in ((first, "train"), (second, "eval")):
        views = [job_detail(job_id=job, name=name, state=state) for state in ("QUEUED", "SUCCEEDED")]
        server.on("GET", f"/v1/jobs/{job}", *views)
        server.on("GET", f"/v1/jobs/{job}/events", Answer(pieces=moves))
    server.on("GET", "/v1/resolve", {"job_id": first}, {"job_id": second})
    result = makeway("wait", "train", second[:11] + "c")
    lines = [line.removeprefix("makeway: ").split(" ", 1)[-1] for line in result.stderr.splitlines()]
    assert lines == ["train RUNNING", f"{first} (train) SUCCEEDED", f"{second} RUNNING", f"{second} (eval) SUCCEEDED"]


@pytest.mark.parametrize("pieces", [[b": still here\n\n"], log_events(b"step 1\n", end=False)])
def test_a_run_that_times_out_says_that_the_job_goes_on(
    server: StubServer, makeway: Makeway, pieces: list[bytes]
) -> None:
    server.on("POST", "/v1/jobs", Answer(status=201, body={"job_id": JOB_ID, "name": JOB_ID}))
    server.on("GET", f"/v1/jobs/{JOB_ID}", job_detail())
    server.on("GET", f"/v1/jobs/{JOB_ID}/logs", Answer(pieces=pieces))
    result = makeway("run", "--timeout", "300ms", "--", "x")
    assert result.returncode == 125
    assert "goes on" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_time_out_of_a_submit_that_does_not_wait_is_wrong_usage(server: StubServer, makeway: Makeway) -> None:
    result = makeway("submit", "--timeout", "3s", "--", "x")
    assert result.returncode == 2
    assert "--timeout: means nothing without --wait" in " ".join(result.stderr.replace("│", " ").split())
    assert server.requests == []


CLUSTER = {
    "version": "0.1.0",
    "nodes": 1,
    "nodes_ready": 1,
    "gpus": 4,
    "gpus_leased": 1,
    "jobs": {"RUNNING": 1},
    "by_type": [],
    "scheduler": "scheduler-1",
    "epoch": 3,
}


def test_wrong_usage_is_two(makeway: Makeway) -> None:
    assert makeway("ps", "--no-such-flag").returncode == 2
    assert makeway("no-such-verb").returncode == 2


@pytest.mark.parametrize("verb", [["run", "--", "x"], ["logs", "-f", JOB_ID]])
def test_a_reader_that_goes_away_does_not_change_the_code(
    server: StubServer, makeway: Makeway, verb: list[str]
) -> None:
    ends(server, {"state": "FAILED", "exit_code": 7})
    many = [b"x" * 60_000 + b"\n"] * 20
    server.log(JOB_ID, *many)
    process = makeway.process(*verb)
    assert process.stdout is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) == 7
    assert b"Traceback" not in said
    assert b"Broken" not in said


@pytest.mark.parametrize(("name", "told"), [("train", f"{JOB_ID} (train)"), (JOB_ID, JOB_ID)])
def test_a_job_without_a_name_of_its_own_is_named_once(
    server: StubServer, makeway: Makeway, name: str, told: str
) -> None:
    ends(server, {"state": "SUCCEEDED", "exit_code": 0})
    server.on("POST", "/v1/jobs", {"job_id": JOB_ID, "name": name})
    assert f"job {told} submitted\n" in makeway("run", "--", "true").stderr


def test_a_duration_of_an_option_may_be_a_plain_number_and_what_it_may_be_is_said(makeway: Makeway) -> None:
    for text in ("1", "0.5", "2s", "1h30m"):
        assert makeway("wait", JOB_ID, "--timeout", text, "--patience", text).returncode == 120, text
    refused = makeway("wait", JOB_ID, "--timeout", "soon")
    assert refused.returncode == 2
    assert "a number of seconds or a text such as 90s" in " ".join(refused.stderr.replace("│", " ").split())
