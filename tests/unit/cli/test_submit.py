"""What `submit` sends: flags for every field, a file, or both; always with an idempotency key."""

import re
from pathlib import Path
from typing import Any

import pytest
from api_stub import JOB_ID, Answer, Makeway, StubServer
from makeway.spec.flags import spec_flags
from makeway_schemas.job_parts import Constraints, DisruptionGroup, Preemption, Retries
from makeway_schemas.job_spec import JobSpec


@pytest.fixture(autouse=True)
def accepts(server: StubServer) -> None:
    server.on("POST", "/v1/jobs", Answer(status=201, body={"job_id": JOB_ID, "name": JOB_ID}))


def sent(server: StubServer) -> dict[str, Any]:
    """The body of the last request."""
    body: dict[str, Any] = server.requests[-1].json
    return body


def test_each_field_has_a_flag() -> None:
    paths = {flag.path for flag in spec_flags()}
    inner = {"preemption": Preemption, "constraints": Constraints, "retries": Retries, "group": DisruptionGroup}
    names = {info.alias or name for name, info in JobSpec.model_fields.items()} - {"command", *inner}
    nested = {(outer, name) for outer, model in inner.items() for name in model.model_fields}
    assert paths == {(name,) for name in names} | nested
    flags = [name for flag in spec_flags() for name in flag.names]
    assert len(flags) == len(set(flags))


def test_flags_of_limits_and_constraints_become_fields(server: StubServer, makeway: Makeway) -> None:
    result = makeway(
        *("submit", "--gpus", "2..4", "--cpus", "1.5", "--memory", "64GiB", "--topology", "require"),
        *("--constraints-labels", "disk=fast", "--constraints-nodes", "node-1", "--constraints-nodes", "node-2"),
        *("--constraints-anti-affinity", "app=web", "--deadline", "2036-12-01T00:00:00Z", "--on-deadline", "cancel"),
        *("--max-wait", "2h", "--no-requeue", "--retries-max", "3", "--retries-exit-codes", "7"),
        *("--retries-exit-codes", "9", "--", "true"),
    )
    assert result.returncode == 0, result.stderr
    body = sent(server)
    assert {name: body[name] for name in body if name not in ("command", "working_dir")} == {
        "gpus": 2,
        "gpus_max": 4,
        "cpus": 1.5,
        "memory": 65536,
        "topology": "require",
        "constraints": {
            "labels": {"disk": "fast"},
            "nodes": ["node-1", "node-2"],
            "anti_affinity": {"app": "web"},
        },
        "deadline": "2036-12-01T00:00:00Z",
        "on_deadline": "cancel",
        "max_wait": 7200.0,
        "requeue": False,
        "retries": {"max": 3, "exit_codes": [7, 9]},
    }


def test_flags_become_fields(server: StubServer, makeway: Makeway) -> None:
    script = makeway.folder / "job.sh"
    script.write_text("#!/bin/sh\necho hi\n")
    result = makeway(
        *("submit", "--name", "训练", "--label", "a=1", "--label", "b=x=y", "--team", "vision", "--class", "urgent"),
        *("--priority", "950", "--script", str(script), "--env", "A=1", "-e", "FROM_HERE", "--gpus", "2"),
        *("--gpu-type", "A100", "--min-vram-mib", "64GiB", "--time-limit", "2h", "--no-preemptible"),
        *("--preemption-mode", "CHECKPOINT", "--preemption-grace", "90s", "--preemption-signal", "SIGUSR1"),
        *("--working-dir", "/data"),
        FROM_HERE="yes",
    )
    assert (result.returncode, result.stdout) == (0, f"{JOB_ID}\n"), result.stderr
    assert sent(server) == {
        "name": "训练",
        "labels": {"a": "1", "b": "x=y"},
        "team": "vision",
        "class": "urgent",
        "priority": 950,
        "script": "#!/bin/sh\necho hi\n",
        "working_dir": "/data",
        "env": {"A": "1", "FROM_HERE": "yes"},
        "gpus": 2,
        "gpu_type": "A100",
        "min_vram_mib": 65536,
        "time_limit": 7200.0,
        "preemptible": False,
        "preemption": {"mode": "CHECKPOINT", "grace": 90.0, "signal": "SIGUSR1"},
    }


def test_everything_after_the_dashes_is_the_command(server: StubServer, makeway: Makeway) -> None:
    makeway("submit", "--gpus", "0", "--", "sh", "-c", "echo --name; exit 3", "--wait")
    assert sent(server)["command"] == ["sh", "-c", "echo --name; exit 3", "--wait"]


def test_the_job_works_where_the_submitter_stands(server: StubServer, makeway: Makeway) -> None:
    makeway("submit", "--", "x")
    assert sent(server)["working_dir"] == str(makeway.folder)


def test_flags_beat_the_file_field_by_field(server: StubServer, makeway: Makeway) -> None:
    text = "name: a\ncommand: [x]\nenv: {A: '1', B: '2'}\npreemption: {grace: 10s, mode: REQUEUE}\n"
    (makeway.folder / "job.yaml").write_text(text)
    makeway("submit", "-f", "job.yaml", "--name", "b", "--env", "B=3", "--preemption-grace", "20s", "--", "y")
    assert sent(server)["name"] == "b"
    assert sent(server)["command"] == ["y"]
    assert sent(server)["env"] == {"A": "1", "B": "3"}
    assert sent(server)["preemption"] == {"grace": 20.0, "mode": "REQUEUE"}


def test_the_file_may_come_from_stdin(server: StubServer, makeway: Makeway) -> None:
    assert makeway("submit", "-f", "-", stdin="command: [x]\n").returncode == 0
    assert sent(server)["command"] == ["x"]


@pytest.mark.parametrize("gpus", ["-100", "0.5", "1e18", "9223372036854775808", "NaN", "9" * 5000])
def test_impossible_numbers_are_refused_by_name_and_nothing_is_sent(
    server: StubServer, makeway: Makeway, gpus: str
) -> None:
    result = makeway("submit", f"--gpus={gpus}", "--", "x")
    assert result.returncode == 120
    assert "gpus: " in result.stderr
    assert server.requests == []


@pytest.mark.parametrize(
    ("flag", "value", "field"),
    [
        ("--vram-mib", "-1", "vram_mib"),
        ("--vram-mib", "NaN", "vram_mib"),
        ("--vram-mib", "inf", "vram_mib"),
        ("--time-limit", "-5", "time_limit"),
        ("--preemption-grace", "-1", "preemption.grace"),
        ("--priority", "1e30", "priority"),
        ("--working-dir", "here", "working_dir"),
        ("--preemption-mode", "SOMETIMES", "preemption.mode"),
        ("--name", "a\nb", "name"),
    ],
)
def test_a_wrong_flag_is_refused_by_the_fields_name(makeway: Makeway, flag: str, value: str, field: str) -> None:
    result = makeway("submit", f"{flag}={value}", "--", "x")
    assert result.returncode == 120
    assert re.search(rf"^(makeway: )?{re.escape(field)}: ", result.stderr, re.MULTILINE), result.stderr


def test_a_plain_number_is_a_duration_in_seconds_and_a_size_in_mib(server: StubServer, makeway: Makeway) -> None:
    makeway("submit", "--time-limit", "90", "--vram-mib", "2048", "--", "x")
    assert (sent(server)["time_limit"], sent(server)["vram_mib"]) == (90.0, 2048)


def test_a_retry_carries_the_same_key(server: StubServer, makeway: Makeway) -> None:
    accepted = Answer(status=201, body={"job_id": JOB_ID, "name": "x"})
    server.on("POST", "/v1/jobs", Answer(status=503), Answer(status=502), accepted)
    assert makeway("submit", "--", "x").returncode == 0
    keys = {request.headers["idempotency-key"] for request in server.requests}
    assert len(server.requests) == 3
    assert len(keys) == 1


def test_two_submits_have_two_keys_unless_one_is_given(server: StubServer, makeway: Makeway) -> None:
    makeway("submit", "--", "x")
    makeway("submit", "--", "x")
    makeway("submit", "--idempotency-key", "nightly-7", "--", "x")
    keys = [request.headers["idempotency-key"] for request in server.requests]
    assert len(set(keys)) == 3
    assert keys[2] == "nightly-7"


LATE = """command: [x]
begin_at: 2027-01-02T00:00:00Z
deadline: 2027-01-01T00:00:00Z
preemption:
  grace: 1d
"""


@pytest.mark.parametrize("command", ["submit", "run"])
def test_what_the_server_refuses_in_a_job_file_is_named_with_its_place(
    server: StubServer, makeway: Makeway, command: str
) -> None:
    (makeway.folder / "job.yaml").write_text(LATE)
    wrong = {
        "begin_at": "must be before the deadline, 2027-01-01T00:00:00Z",
        "preemption.grace": "must be at most 30m in class normal",
        "team": "the token is of team vision",
        "gpus": "must be at most 2, the limit of team vision",
    }
    fields = [{"field": field, "message": message} for field, message in wrong.items()]
    problem = {"title": "A field is out of its bounds", "status": 422, "code": "invalid_field", "fields": fields}
    server.on("POST", "/v1/jobs", Answer(status=422, body=problem))
    result = makeway(command, "-f", "job.yaml", "--gpus", "4")
    assert result.returncode == 120
    assert result.stderr.splitlines()[1:] == [
        "job.yaml:2:1: begin_at: must be before the deadline, 2027-01-01T00:00:00Z",
        "job.yaml:5:3: preemption.grace: must be at most 30m in class normal",
        "job.yaml: team: the token is of team vision",
        "gpus: must be at most 2, the limit of team vision",
    ]


def test_a_refusal_that_is_about_no_field_stays_in_the_servers_words(server: StubServer, makeway: Makeway) -> None:
    (makeway.folder / "job.yaml").write_text("command: [x]\n")
    problem = {"title": "The team's queue is full", "status": 429, "code": "queue_full", "detail": "1 job waits"}
    server.on("POST", "/v1/jobs", Answer(status=429, body=problem))
    result = makeway("submit", "-f", "job.yaml")
    assert (result.returncode, result.stderr) == (120, "makeway: The team's queue is full: 1 job waits\n")


def test_a_full_queue_is_an_answer_not_an_outage(server: StubServer, makeway: Makeway) -> None:
    problem = {"title": "The team's queue is full", "status": 429, "code": "queue_full"}
    server.on("POST", "/v1/jobs", Answer(status=429, body=problem, headers={"retry-after": "10"}))
    assert makeway("submit", "--", "x").returncode == 120
    assert len(server.requests) == 1


def test_a_missing_file_is_said_by_name(makeway: Makeway, tmp_path: Path) -> None:
    result = makeway("submit", "-f", str(tmp_path / "none.yaml"))
    assert result.returncode == 120
    assert "none.yaml: cannot be read: No such file" in result.stderr


def test_a_traceparent_of_the_submitter_is_passed_on(server: StubServer, makeway: Makeway) -> None:
    parent = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
    makeway("submit", "--", "x", TRACEPARENT=parent)
    assert server.requests[-1].headers["traceparent"] == parent
