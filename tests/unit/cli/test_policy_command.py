"""`policy`: what is shown can be saved and applied; what is applied is what the file says; refusals have lines."""

import json
from dataclasses import fields
from typing import Any

import pytest
from api_stub import Answer, Makeway, StubServer
from makeway.policy_file import read_policy
from makeway.policy_text import policy_lines, value_text
from makeway_policy.document import completed, from_document, name_in_document, sources, to_document
from makeway_policy.presets import DEFAULT, PRESETS
from makeway_policy.rules import JobClass, Policy
from makeway_schemas.policy_file import PolicyClass, PolicyFile, Preset

DOCUMENT = {"preset": "plain", "backfill": "off", "classes": {"low": None, "high": {"grace": 90.5}}}


def view(document: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A policy as the API sends it."""
    return {"pool": "default", "document": document, "effective": to_document(from_document(document)), **changes}


def test_the_file_has_every_field_of_the_policy_and_its_default() -> None:
    assert {name_in_document(each.name) for each in fields(Policy)} | {"preset"} == set(PolicyFile.model_fields)
    assert {name_in_document(each.name) for each in fields(JobClass)} - {"name"} == set(PolicyClass.model_fields)
    assert {each.value for each in Preset} == set(PRESETS)
    said = PolicyFile().model_dump(mode="json", exclude={"preset", "name", "classes"})
    assert {name: value for name, value in to_document(DEFAULT).items() if name in said} == said
    assert PolicyClass().model_dump(mode="json") | {"alias": "P2"} == to_document(DEFAULT)["classes"]["normal"]


def test_every_field_is_described() -> None:
    for model in (PolicyFile, PolicyClass):
        assert [name for name, info in model.model_fields.items() if not info.description] == []


@pytest.mark.parametrize("document", [{"preset": "round-robin"}, DOCUMENT])
def test_a_policy_that_is_printed_whole_is_read_back_as_the_same(document: dict[str, Any]) -> None:
    text = "\n".join(policy_lines(completed(document), sources(document)))
    assert read_policy(text, "printed").policy == from_document(document)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("classes.low.grace", 90.5, "90.5s"),
        ("classes.low.grace", 5400.0, "1h30m"),
        ("classes.low.alias", "1e3", '"1e3"'),
        ("classes.low.mode", "OFF", '"OFF"'),
        ("classes.low.sla_wait", None, "null"),
        ("aging_points", 300.0, "300"),
        ("order", "fair", "fair"),
        ("gpu_aliases", {"A 1": ["x: y"]}, '{"A 1": ["x: y"]}'),
    ],
)
def test_a_value_is_printed_as_a_file_says_it(path: str, value: Any, text: str) -> None:
    assert value_text(path, value) == text


def test_show_prints_what_was_applied_or_everything_with_its_source(server: StubServer, makeway: Makeway) -> None:
    kept = view(DOCUMENT, policy_id=3, applied_by="ann", applied_at="2026-01-02T03:04:05Z")
    server.on("GET", "/v1/policies/default", Answer(body=kept))
    lines = makeway("policy", "show").stdout.splitlines()
    assert lines[0].startswith("# policy 3 of pool default, by ann, 2026-01-02")
    assert lines[1:4] == ["preset: plain", 'backfill: "off"', "classes:"]
    assert len(lines) == 7
    whole = makeway("policy", "show", "--effective").stdout
    assert 'backfill: "off"' in whole
    assert [line.split("  # ")[1] for line in whole.splitlines() if line.startswith(("delta", "backfill"))] == [
        "preset plain",
        "file",
    ]
    assert read_policy(whole, "shown").policy == from_document(DOCUMENT)
    told = json.loads(makeway("policy", "show", "--output", "json").stdout)
    assert (told["sources"]["backfill"], told["effective"]["backfill"]) == ("file", "off")


def test_a_preset_is_shown_without_a_cluster(server: StubServer, makeway: Makeway) -> None:
    assert "delta: 1 " in makeway("policy", "show", "--preset", "plain", "--effective").stdout
    assert makeway("policy", "show", "--preset", "simple").returncode == 2
    assert server.requests == []


def test_check_says_what_is_wrong_by_line_and_asks_no_server(server: StubServer, makeway: Makeway) -> None:
    file = makeway.folder / "p.yaml"
    file.write_text("delta: 12\nclasses:\n  high: {graze: 3s}\n")
    result = makeway("policy", "check", str(file))
    assert (result.returncode, result.stdout) == (120, "")
    assert f"{file}:3:10: classes.high.graze: unknown field; did you mean grace?" in result.stderr
    file.write_text("classes:\n  high: {grace: 3s}\n")
    assert "in order; 1 value differs from preset default" in makeway("policy", "check", str(file)).stdout
    printed = makeway("policy", "check", str(file), "--output", "json").stdout
    assert json.loads(printed) == {"classes": {"high": {"grace": 3.0}}}
    assert server.requests == []


def test_apply_sends_what_the_file_says_and_prints_what_changes(server: StubServer, makeway: Makeway) -> None:
    job = {"job_id": "0123456789ab", "name": "n", "team": "t", "class": "low", "state": "QUEUED"}
    answer = {
        "policy": view({"delta": 5}, policy_id=4),
        "applied": True,
        "changes": [{"field": "classes.low.grace", "before": 10.0, "after": 90.0}],
        "jobs_changed": 2,
        "jobs": [job | {"before": 200, "after": 150}],
    }
    server.on("PUT", "/v1/policies/default", Answer(body=answer))
    file = makeway.folder / "p.yaml"
    file.write_text("delta: 5\nhold_expiry: 1m\n")
    result = makeway("policy", "apply", str(file), "--dry-run")
    assert server.requests[-1].json == {"delta": 5, "hold_expiry": 60.0}
    assert server.requests[-1].query == {"dry_run": ["true"]}
    assert result.stdout.splitlines()[1].split() == ["classes.low.grace", "10s", "1m30s"]
    assert result.stdout.splitlines()[-1].split() == ["0123456789ab", "n", "t", "low", "QUEUED", "200", "150"]
    assert result.stderr.splitlines() == ["and 1 more job", "dry run: nothing was changed"]
    assert "policy 4 holds in pool default" in makeway("policy", "apply", "fifo").stderr
    assert server.requests[-1].json == {"preset": "fifo"}


def test_what_the_server_refuses_has_the_line_of_the_file(server: StubServer, makeway: Makeway) -> None:
    problem = {
        "title": "A field is not valid", "status": 422, "code": "invalid_field",
        "fields": [{"field": "classes.low", "message": "must stay: jobs that have not ended are in it (3)"}],
    }  # fmt: skip
    server.on("PUT", "/v1/policies/default", Answer(status=422, body=problem))
    file = makeway.folder / "p.yaml"
    file.write_text("classes:\n  low: null\n")
    result = makeway("policy", "apply", str(file))
    assert result.returncode == 120
    assert f"{file}:2:3: classes.low: must stay: jobs that have not ended are in it (3)" in result.stderr
