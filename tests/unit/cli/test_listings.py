"""What is printed: safe for a terminal as text, exact as JSON, and never wrong about what is unknown."""

import importlib
import json
import pkgutil
import re
from datetime import UTC, datetime, timedelta

import makeway.commands
import pytest
import typer
from api_stub import JOB_ID, NOW, Answer, Makeway, StubServer, job_detail, job_view, run_view
from makeway.main import GROUPS, VERBS
from makeway.output import age, local_time, safe

NODE = {
    "node_id": "node-1", "pool": "default", "state": "READY", "accepts_runs": True, "simulated": True, "gpus": 1,
    "gpus_leased": 0, "cpus": 8, "memory_mib": 1024, "state_since": "2026-01-01T00:00:00Z",
}  # fmt: skip
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


def test_ps_shows_its_columns(server: StubServer, makeway: Makeway) -> None:
    server.on(
        "GET", "/v1/jobs", {"jobs": [job_view(state="QUEUED", node=None, reason="waits for a GPU", preemptions=2)]}
    )
    heading, row = makeway("ps").stdout.splitlines()
    assert heading.split() == ["ID", "NAME", "TEAM", "CLASS", "STATE", "GPUS", "NODE", "AGE", "PREEMPTED", "REASON"]
    assert row.split()[:7] == [JOB_ID, "train", "vision", "normal", "QUEUED", "1", "-"]
    assert row.endswith("2          waits for a GPU")


def test_ps_shows_what_a_job_holds_while_it_runs_and_what_it_asks_for_while_it_waits(
    server: StubServer, makeway: Makeway
) -> None:
    jobs = [
        job_view(gpus_max=4, gpus_held=3),
        job_view(gpus_max=4, state="QUEUED", node=None),
        job_view(gpus=2, state="QUEUED", node=None),
    ]
    server.on("GET", "/v1/jobs", {"jobs": jobs})
    rows = [row.split() for row in makeway("ps").stdout.splitlines()[1:]]
    assert [row[5:7] for row in rows] == [["3", "node-1"], ["1..4", "-"], ["2", "-"]]


def test_ps_says_of_a_job_only_what_holds_of_its_state(server: StubServer, makeway: Makeway) -> None:
    words = {"message": "retry 1 of 2", "reason": "no room"}
    states = ("QUEUED", "RUNNING", "EXPIRED")
    server.on("GET", "/v1/jobs", {"jobs": [job_view(state=state, **words) for state in states]})
    waiting, running, ended = makeway("ps").stdout.splitlines()[1:]
    assert waiting.endswith("  retry 1 of 2; no room")
    assert running.endswith("  no room")
    assert "retry" not in running
    assert ended.endswith("  retry 1 of 2")


def test_a_name_cannot_move_the_cursor_nor_break_the_list(server: StubServer, makeway: Makeway) -> None:
    names = ["\x1b[2Jgone", "a\nb", "\u202egnp.exe", "训练", "🚀"]
    server.on("GET", "/v1/jobs", {"jobs": [job_view(name=name) for name in names]})
    result = makeway("ps")
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == len(names) + 1
    assert "\x1b" not in result.stdout
    assert r"\x1b[2Jgone" in result.stdout
    assert r"\u202egnp.exe" in result.stdout
    assert "训练" in result.stdout


def test_an_answer_that_cannot_be_read_is_said_without_a_traceback(server: StubServer, makeway: Makeway) -> None:
    server.on("GET", "/v1/jobs", {"jobs": "none"})
    result = makeway("ps")
    assert result.returncode == 124
    assert result.stderr.startswith("makeway:")
    assert "the answer to /v1/jobs" in result.stderr


def test_wide_characters_keep_the_columns_aligned(server: StubServer, makeway: Makeway) -> None:
    server.on("GET", "/v1/jobs", {"jobs": [job_view(name="训练"), job_view(name="abcd")]})
    _, wide, narrow = makeway("ps").stdout.splitlines()
    assert wide.index("vision") == narrow.index("vision") - 2  # two characters that take four columns


def test_json_is_what_the_api_sent(server: StubServer, makeway: Makeway) -> None:
    view = job_view(name="\x1b[2J 训练", labels={"a": "b"})
    server.on("GET", "/v1/jobs", {"jobs": [view]})
    shown = json.loads(makeway("ps", "--output", "json").stdout)[0]
    assert {name: shown[name] for name in view if name != "submitted_at"} | {"submitted_at": NOW} == view


def test_all_pages_are_fetched_up_to_the_limit(server: StubServer, makeway: Makeway) -> None:
    first, second = {"jobs": [job_view()] * 3, "next": "17"}, {"jobs": [job_view()] * 3}
    server.on("GET", "/v1/jobs", first, second)
    assert len(makeway("ps").stdout.splitlines()) == 7
    assert server.requests[1].query["cursor"] == ["17"]
    server.on("GET", "/v1/jobs", first)
    assert len(makeway("ps", "--limit", "2").stdout.splitlines()) == 3


def test_ps_asks_for_what_its_flags_say(server: StubServer, makeway: Makeway) -> None:
    server.on("GET", "/v1/jobs", {"jobs": []})
    makeway("ps", "--in", "QUEUED", "--in", "HELD", "--team", "t", "--class", "low", "--label", "a=b=c", "--all")
    query = server.requests[0].query
    assert (query["state"], query["label"], query["all"]) == (["QUEUED", "HELD"], ["a=b=c"], ["true"])
    assert (query["team"], query["class"]) == (["t"], ["low"])


def test_show_tells_every_run(server: StubServer, makeway: Makeway) -> None:
    runs = [run_view(end_cause="preempted", exit_code=0, ack_step=40, forced=True), run_view(number=2, resumed_step=40)]
    server.on("GET", "/v1/resolve", {"job_id": JOB_ID})
    server.on("GET", f"/v1/jobs/{JOB_ID}", job_detail(runs=runs, preemptions=1))
    out = makeway("show", "train").stdout
    assert server.requests[0].query == {"ref": ["train"]}
    assert "preempted (killed)" in out
    assert re.search(r"^preempted +1x$", out, re.MULTILINE)


@pytest.mark.parametrize("reference", ["train", "0123", "@last"])
def test_a_reference_is_resolved_by_the_server(server: StubServer, makeway: Makeway, reference: str) -> None:
    server.on("GET", "/v1/resolve", {"job_id": JOB_ID})
    accepted = {"command_id": 1, "job_id": JOB_ID, "state": "RUNNING"}
    server.on("POST", f"/v1/jobs/{JOB_ID}/cancel", Answer(status=202, body=accepted))
    assert makeway("cancel", reference).stdout == f"{JOB_ID}  RUNNING, will be cancelled\n"
    assert server.requests[0].query == {"ref": [reference]}


def test_a_cancel_after_the_end_says_so(server: StubServer, makeway: Makeway) -> None:
    message = "the job had ended before: it is SUCCEEDED and stays so"
    accepted = {"command_id": None, "job_id": JOB_ID, "state": "SUCCEEDED", "message": message}
    server.on("POST", f"/v1/jobs/{JOB_ID}/cancel", accepted)
    assert makeway("cancel", JOB_ID).stdout == f"{JOB_ID}  {message}\n"


def test_an_unknown_reading_is_a_dash_not_zero(server: StubServer, makeway: Makeway) -> None:
    gpu = {"gpu_id": "GPU-1", "node": "n", "index": 0, "type_name": "A100", "vram_mib": 81920, "state": "FREE"}
    server.on("GET", "/v1/gpus", [gpu])
    assert makeway("gpu", "list").stdout.splitlines()[1].split()[4:11] == ["-", "-", "80", "GiB", "-", "-", "-"]


def test_changing_one_limit_of_a_team_keeps_the_others(server: StubServer, makeway: Makeway) -> None:
    body = {"limit": 8, "guarantee": 2, "weight": 1.5, "max_queued": 50, "class_limits": {"low": 1}, "allowances": {}}
    body |= {"user_limit": 3, "gpu_hours_per_month": 100.0}
    view = body | {"team": "vision", "gpus_used": 0, "jobs_waiting": 0, "jobs_running": 0}
    server.on("GET", "/v1/teams", [view])
    server.on("PUT", "/v1/teams/vision", view)
    assert makeway("team", "set", "vision", "--limit", "none", "--allow", "urgent=4").returncode == 0
    assert server.requests[-1].json == body | {"limit": None, "allowances": {"urgent": 4}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--weight", "nan"), "weight: should be a finite number"),
        (("--weight", "-1"), "weight: should be greater than or equal to 0"),
        (("--max-queued", "many"), "max_queued: must be a whole number"),
    ],
)
def test_a_wrong_right_is_said_in_the_command_s_words(
    server: StubServer, makeway: Makeway, given: tuple[str, str], said: str
) -> None:
    server.on("GET", "/v1/teams", [])
    result = makeway("team", "set", "vision", *given)
    assert result.returncode == 120
    assert said in result.stderr
    assert "Input should" not in result.stderr


def test_the_help_of_a_team_s_rights_shows_one_entry_a_flag(makeway: Makeway) -> None:
    said = " ".join(makeway("team", "set", "--help").stdout.split())
    assert "--allow urgent=4 --allow high=10%" in said
    assert "urgent=4, high" not in said


def test_rights_may_be_in_per_cent_of_the_pool(server: StubServer, makeway: Makeway) -> None:
    body = {"limit": "50%", "guarantee": 2, "weight": 1.0, "max_queued": 50, "class_limits": {}}
    body |= {"allowances": {"urgent": "12.5%"}, "user_limit": None, "gpu_hours_per_month": None}
    view = body | {"team": "vision", "gpus_used": 0, "jobs_waiting": 0, "jobs_running": 0}
    server.on("GET", "/v1/teams", [view])
    server.on("PUT", "/v1/teams/vision", view)
    result = makeway("team", "set", "vision", "--guarantee", "25%", "--class-limit", "low=10%")
    assert server.requests[-1].json == body | {"guarantee": "25%", "class_limits": {"low": "10%"}}
    assert result.stdout.splitlines()[1].split()[:5] == ["vision", "0", "2", "50%", "none"]
    assert result.stderr == ""
    told = {"pool_gpus": 9, "notes": ["this is the first team that is set up"]}
    server.on("PUT", "/v1/teams/vision", view | told)
    result = makeway("team", "set", "vision", "--guarantee", "25%")
    assert result.stdout.splitlines()[1].split()[:5] == ["vision", "0", "2", "50%=4.5", "none"]
    assert "urgent=12.5%=1.125" in result.stdout
    assert result.stderr == "this is the first team that is set up\n"
    wrong = makeway("team", "set", "vision", "--limit", "101%")
    assert wrong.returncode != 0
    assert "limit: must be at most 100%" in wrong.stderr


@pytest.mark.parametrize(("name", "message"), [("", "must not be empty"), ("a" * 300, "must have at most 63 char")])
def test_a_name_that_is_none_of_a_team_is_refused_before_anything_is_sent(
    server: StubServer, makeway: Makeway, name: str, message: str
) -> None:
    for command in (("team", "set", name), ("token", "create", "--role", "viewer", "--team", name)):
        result = makeway(*command)
        assert result.returncode == 120
        assert f"team: {message}" in result.stderr
    assert server.requests == []


def test_a_new_token_is_alone_on_stdout(server: StubServer, makeway: Makeway) -> None:
    created = {"token_id": "t1", "role": "viewer", "created_at": NOW, "token": "mw_t1_secret"}
    server.on("POST", "/v1/tokens", Answer(status=201, body=created))
    result = makeway("token", "create", "--role", "viewer", "--expires", "2h")
    assert result.stdout == "mw_t1_secret\n"
    assert server.requests[-1].json["expires_in_seconds"] == 7200
    assert makeway("token", "create", "--role", "king").returncode == 120


def test_doctor_names_a_mend_for_each_failure(server: StubServer, makeway: Makeway) -> None:
    server.on("GET", "/healthz", {"healthy": True, "checks": {"postgres": "ok"}})
    server.on("GET", "/v1/cluster", CLUSTER | {"scheduler": "", "version": "9.9.9"})
    server.on("GET", "/v1/nodes", [])
    server.on("GET", "/v1/gpus", [])
    result = makeway("doctor", "--output", "json")
    findings = json.loads(result.stdout)["findings"]
    failed = {finding["check"] for finding in findings if finding["verdict"] == "FAIL"}
    assert result.returncode == 1
    assert failed == {"scheduler", "nodes"}
    assert all(finding["mend"] for finding in findings if finding["verdict"] != "OK")


def test_doctor_asks_for_no_driver_where_the_cards_are_simulated(server: StubServer, makeway: Makeway) -> None:
    context = makeway.folder / "context.json"
    context.write_text(json.dumps({"url": server.url, "token": "t"}))
    context.chmod(0o600)
    (makeway.folder / "settings.json").write_text(json.dumps({"simulate": "1xT4"}))
    assert "OK    driver: none is needed" in makeway("doctor", "--state", str(makeway.folder)).stdout
    (makeway.folder / "settings.json").write_text(json.dumps({"simulate": None}))
    assert "none is needed" not in makeway("doctor", "--state", str(makeway.folder)).stdout


@pytest.mark.parametrize(
    ("state", "note", "line"),
    [
        ("DEAD", "declared dead by ana: on fire", "WARN  node node-1: declared dead by ana: on fire"),
        ("UNKNOWN", "", "FAIL  node node-1: is UNKNOWN"),
        ("UNKNOWN", "drained by ana: fans", "FAIL  node node-1: is UNKNOWN; it was drained by ana: fans"),
    ],
)
def test_doctor_tells_a_dead_node_from_a_silent_one(
    server: StubServer, makeway: Makeway, state: str, note: str, line: str
) -> None:
    server.on("GET", "/healthz", {"healthy": True, "checks": {}})
    server.on("GET", "/v1/cluster", CLUSTER)
    server.on("GET", "/v1/nodes", [NODE | {"state": state, "note": note}])
    server.on("GET", "/v1/gpus", [])
    assert line in makeway("doctor").stdout


def test_a_scheduler_that_hangs_is_no_scheduler_that_decides(server: StubServer, makeway: Makeway) -> None:
    server.on("GET", "/healthz", {"healthy": True, "checks": {"postgres": "ok"}})
    server.on("GET", "/v1/cluster", CLUSTER | {"scheduler_silent_seconds": 42.4})
    server.on("GET", "/v1/nodes", [])
    server.on("GET", "/v1/gpus", [])
    words = "scheduler-1 does not answer, no sign of life for 42s: nothing is decided until it does"
    assert words in makeway("status").stdout
    findings = json.loads(makeway("doctor", "--output", "json").stdout)["findings"]
    (finding,) = [each for each in findings if each["check"] == "scheduler"]
    assert (finding["verdict"], finding["detail"]) == ("FAIL", "scheduler-1 does not answer, no sign of life for 42s")


@pytest.mark.parametrize(
    ("gpu", "mend"),
    [
        ({"state": "QUARANTINED", "failed": True}, "driver lists it again after that, or when its node has booted"),
        ({"state": "QUARANTINED", "failed": True, "simulated": True}, "take its events from the node's hooks.json"),
        ({"state": "QUARANTINED", "reason": "not empty since the end of x.1"}, "free again once proven idle"),
        ({"state": "LOST"}, "its driver shows it"),
    ],
)
def test_doctor_promises_a_failed_card_no_mend_by_being_idle(
    server: StubServer, makeway: Makeway, gpu: dict[str, object], mend: str
) -> None:
    server.on("GET", "/v1/cluster", CLUSTER)
    server.on("GET", "/v1/nodes", [])
    server.on("GET", "/healthz", {"healthy": True, "checks": {}})
    base = {"gpu_id": "GPU-1", "node": "n", "index": 0, "type_name": "A100", "vram_mib": 1}
    server.on("GET", "/v1/gpus", [base | gpu])
    findings = json.loads(makeway("doctor", "--output", "json").stdout)["findings"]
    (found,) = [each["mend"] for each in findings if each["check"] == "gpu n/0"]
    assert mend in found
    assert ("proven idle" in found) == (mend == "free again once proven idle")


def test_doctor_tells_a_stranger_on_the_port_from_no_answer(server: StubServer, makeway: Makeway) -> None:
    assert "is not makeway" in makeway("doctor").stdout
    assert "does not answer" in makeway("doctor", MAKEWAY_URL="http://127.0.0.1:9").stdout


def test_a_context_that_others_can_read_is_a_failure(server: StubServer, makeway: Makeway) -> None:
    path = makeway.folder / "context.json"
    path.write_text(json.dumps({"url": server.url, "token": "t"}))
    path.chmod(0o644)
    assert f"chmod 600 {path}" in makeway("doctor", "--state", str(makeway.folder)).stdout


def test_an_age_is_never_negative() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    ages = [age(now - timedelta(seconds=s), now) for s in (-50, 0, 61, 3700, 200_000, 900_000)]
    assert ages == ["0s", "0s", "1m1s", "1h1m", "2d7h", "10d"]


def test_safe_leaves_what_is_printable() -> None:
    assert safe("é 训练 🚀 \u200d") == "é 训练 🚀 \u200d"
    assert safe("\x00\x7f\u2028\ue000") == r"\x00\x7f\u2028\ue000"


def test_every_verb_that_is_written_can_be_called() -> None:
    written = {
        command.name or command.callback.__name__: module.name
        for module in pkgutil.iter_modules(makeway.commands.__path__)
        for command in getattr(
            importlib.import_module(f"makeway.commands.{module.name}"), "app", typer.Typer()
        ).registered_commands
        if command.callback is not None and module.name not in GROUPS
    }
    assert {name: module.rpartition(".")[2] for name, module in VERBS.items()} == written


def test_why_gives_every_moment_in_the_reader_s_zone(server: StubServer, makeway: Makeway) -> None:
    victim = {"run": "a.1", "value": 500, "spared": "not protected any more: until 2026-01-02T03:00:00+00:00 it was"}
    view = {
        "job_id": JOB_ID, "state": "QUEUED", "reason_code": "not_yet", "decision": "wait", "decided_at": NOW,
        "reason": "it may begin at 2026-01-02T08:00:00+00:00", "as_of": NOW,
        "detail": {
            "possible_victims": [victim],
            "expected_start": "none: not before 2026-01-02T08:00:00+00:00: no limit",
        },
    }  # fmt: skip
    server.on("GET", f"/v1/jobs/{JOB_ID}/why", view)
    out = makeway("why", JOB_ID, TZ="UTC").stdout
    assert "it may begin at 2026-01-02 08:00:00 UTC (not_yet)" in out
    assert "none: not before 2026-01-02 08:00:00 UTC: no limit" in out
    assert "until 2026-01-02 03:00:00 UTC it was" in out
    assert "T0" not in out


def test_why_says_how_old_a_decision_is_and_what_lies_ahead(server: StubServer, makeway: Makeway) -> None:
    detail = {
        "gpus": {"in use": 4},
        "possible_victims": [{"run": "a.1", "value": 500, "spared": "it is inside its minimum run", "until": None}],
        "next_look": "in 20s",
        "next_look_at": "2026-01-02T03:05:05+00:00",
        "expected_start": "2026-01-02T04:04:45+00:00",
        "worst_case_wait": "2h",
    }
    view = {"job_id": JOB_ID, "state": "QUEUED", "reason_code": "no_room", "reason": "no room", "decision": "wait"}
    view |= {"decided_at": NOW, "as_of": "2026-01-02T03:04:45Z", "detail": detail}
    server.on("GET", f"/v1/jobs/{JOB_ID}/why", view)
    lines = makeway("why", JOB_ID, TZ="UTC").stdout.splitlines()
    assert [line.split(None, 1) for line in lines if line.startswith("decided")] == [
        ["decided", "2026-01-02 03:04:05 UTC, 40s ago"]
    ]
    assert "next look       in 20s" in lines
    assert "expected start  2026-01-02 04:04:45 UTC, in 1h" in lines
    at = lines.index("considered when it was decided:")
    assert [line.split(None, 1)[0] for line in lines[at + 1 :]] == ["gpus", "possible"]
    assert not any("next look at" in line for line in lines)


@pytest.mark.parametrize(("classes", "shown"), [(None, "all"), ([], "none"), (["low", "high"], "low,high")])
def test_the_classes_of_a_token_are_shown_as_they_are(
    server: StubServer, makeway: Makeway, classes: list[str] | None, shown: str
) -> None:
    server.on("GET", "/v1/tokens", [{"token_id": "t", "role": "submitter", "classes": classes, "created_at": NOW}])
    assert makeway("token", "list").stdout.splitlines()[1].split()[4] == shown


def test_when_a_new_token_expires_is_said(server: StubServer, makeway: Makeway) -> None:
    made = {
        "token_id": "t",
        "role": "viewer",
        "created_at": NOW,
        "token": "mw_t_x",
        "expires_at": NOW,
    }
    server.on("POST", "/v1/tokens", Answer(status=201, body=made))
    assert f"it expires at {local_time(datetime.fromisoformat(NOW))}" in makeway("token", "create").stderr
    server.on("POST", "/v1/tokens", Answer(status=201, body=made | {"expires_at": None}))
    assert "expires" not in makeway("token", "create").stderr


@pytest.mark.parametrize(
    ("note", "closed", "shown"),
    [
        ("cordoned by ann", {"cordoned": True}, "cordoned by ann"),
        ("cordoned by ann; drained by ops: fans", {"cordoned": True, "draining": True}, None),
        ("drained by ops", {"cordoned": True, "draining": True}, "drained by ops"),
        ("", {"cordoned": True}, "cordoned"),
        ("", {"cordoned": True, "draining": True}, "draining"),
    ],
)
def test_a_closed_node_says_so_once(
    server: StubServer, makeway: Makeway, note: str, closed: dict[str, bool], shown: str | None
) -> None:
    server.on("GET", "/v1/nodes", [NODE | {"note": note, "accepts_runs": True, **closed}])
    row = makeway("node", "list").stdout.splitlines()[1]
    assert row.endswith(f"simulated GPUs; {shown or note}")


def test_show_counts_the_run_that_goes_on(server: StubServer, makeway: Makeway) -> None:
    started = datetime.now(UTC) - timedelta(hours=3, seconds=5)
    runs = [
        run_view(run_seconds=60.0, started_at=NOW, ended_at=NOW),
        run_view(number=2, started_at=started.isoformat(), state="RUNNING"),
    ]
    server.on("GET", f"/v1/jobs/{JOB_ID}", job_detail(runs=runs, used_seconds=3600.0))
    out = makeway("show", JOB_ID).stdout
    assert re.search(r"^run time +4h$", out, re.MULTILINE)
    assert re.search(r"^2 +RUNNING .* 3h ", out, re.MULTILINE)
    runs[1]["ended_at"] = NOW  # it has ended, and for how long it ran is not known
    server.on("GET", f"/v1/jobs/{JOB_ID}", job_detail(runs=runs, used_seconds=3600.0))
    assert re.search(r"^run time +1h$", makeway("show", JOB_ID).stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("list", "makeway ps"), ("watch", "makeway logs --follow"), ("ls", "makeway ps"), ("squeue", "makeway ps"),
        ("sbmit", "Did you mean 'submit'?"), ("nod", "Did you mean 'node'?"),
    ],
)  # fmt: skip
def test_a_word_that_is_no_verb_is_answered_by_the_verb_that_is_meant(makeway: Makeway, word: str, told: str) -> None:
    result = makeway(word)
    assert result.returncode == 2
    assert told in " ".join(result.stderr.replace("│", " ").split())


def test_a_word_that_means_nothing_gets_no_hint(makeway: Makeway) -> None:
    assert "No such command 'xyzzy'." in makeway("xyzzy").stderr


def test_a_reading_is_said_to_be_as_old_as_it_is(server: StubServer, makeway: Makeway) -> None:
    figures = {
        "pool": "default", "type_name": "A100", "gpus": 1, "gpus_leased": 0, "gpus_unusable": 0, "vram_mib": 81920,
        "vram_leased_mib": 0, "vram_used_mib": 1024, "simulated": True,
    }  # fmt: skip
    server.on("GET", "/v1/cluster", CLUSTER | {"by_type": [figures | {"readings_age_seconds": 4.2}]})
    assert makeway("status").stdout.rstrip().endswith("simulated; measured 4s ago")
    server.on("GET", "/v1/cluster", CLUSTER | {"by_type": [figures]})
    assert "measured" not in makeway("status").stdout
    gpu = {"gpu_id": "GPU-1", "node": "n", "index": 0, "type_name": "A100", "vram_mib": 81920, "state": "FREE"}
    server.on("GET", "/v1/gpus", [gpu | {"vram_used_mib": 7, "reading_age_seconds": 29.6}])
    assert makeway("gpu", "list").stdout.rstrip().endswith("GPU-1  measured 30s ago")
