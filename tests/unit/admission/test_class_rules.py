"""What the policy's classes allow a job to ask for."""

from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest
from makeway_admission.class_rules import ClassRights, find_class, rights_of
from makeway_policy.rules import JobClass, Policy
from makeway_schemas.api import FieldProblem
from makeway_schemas.job_spec import JobSpec

POLICY = Policy()
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


def rights(**fields: Any) -> ClassRights | FieldProblem:
    return rights_of(JobSpec.model_validate({"command": ["true"], **fields}), POLICY, NOW)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (None, "normal"),
        ("low", "low"),
        ("P0", "urgent"),
        ("P1", "high"),
        ("P2", "normal"),
        ("P3", "low"),
        ("LOW", "low"),
        ("Normal", "normal"),
        ("p0", "urgent"),
    ],
)
def test_a_class_is_found_by_name_and_alias(given: str | None, name: str) -> None:
    found = find_class(given, POLICY)
    assert found is not None
    assert found.name == name


def test_classes_that_differ_by_case_alone_are_told_apart() -> None:
    other = replace(POLICY.classes["low"], name="LOW", alias=None)
    policy = replace(POLICY, classes=MappingProxyType({**POLICY.classes, "LOW": other}))
    names = {
        given: found and found.name for given in ("low", "LOW", "Low", "") for found in [find_class(given, policy)]
    }
    assert names == {"low": "low", "LOW": "LOW", "Low": None, "": None}


def test_an_unknown_class_is_answered_with_the_nearest() -> None:
    problem = rights(**{"class": "urgnt"})
    assert isinstance(problem, FieldProblem)
    assert problem.field == "class"
    assert "did you mean urgent?" in problem.message


@pytest.mark.parametrize(
    ("class_name", "lowest", "highest"),
    [("urgent", 900, 1000), ("high", 700, 880), ("normal", 300, 680), ("low", 0, 280)],
)
def test_an_own_priority_lies_in_its_class_s_range(class_name: str, lowest: int, highest: int) -> None:
    for priority in (lowest, highest):
        assert isinstance(rights(priority=priority, **{"class": class_name}), ClassRights)
    for priority in {max(0, lowest - 1), highest + 1} - {lowest}:
        problem = rights(priority=priority, **{"class": class_name})
        assert isinstance(problem, FieldProblem)
        assert (problem.field, f"{lowest} to {highest}" in problem.message) == ("priority", True)


@pytest.mark.parametrize(
    ("class_name", "longest"), [("urgent", "5m"), ("high", "5m"), ("normal", "30m"), ("low", "10m")]
)
def test_the_grace_is_within_its_class_s_maximum(class_name: str, longest: str) -> None:
    assert isinstance(rights(preemption={"grace": longest}, **{"class": class_name}), ClassRights)
    problem = rights(preemption={"grace": f"{longest}1s"}, **{"class": class_name})
    assert isinstance(problem, FieldProblem)
    assert (problem.field, longest in problem.message) == ("preemption.grace", True)


def test_a_class_may_bound_the_time_limit() -> None:
    policy = Policy(classes={"normal": JobClass(name="normal", time_limit_max_seconds=3600)})
    spec = JobSpec.model_validate({"command": ["true"], "time_limit": "2h"})
    problem = rights_of(spec, policy, NOW)
    assert isinstance(problem, FieldProblem)
    assert (problem.field, "1h" in problem.message) == ("time_limit", True)


def test_what_needs_an_allowance_is_told() -> None:
    for fields, needs in (
        ({}, (False, False)),
        ({"class": "urgent"}, (True, False)),
        ({"class": "high"}, (True, False)),
        ({"preemptible": False}, (False, True)),
        ({"preemption": {"mode": "OFF"}}, (False, True)),
        ({"class": "urgent", "preemption": {"mode": "OFF"}}, (True, False)),
    ):
        found = rights(**fields)
        assert isinstance(found, ClassRights)
        assert (found.class_needs_allowance, found.not_preemptible) == needs, fields


def test_a_share_counts_no_whole_gpus_yet() -> None:
    for fields, gpus in (({"gpus": 3}, 3), ({"gpus": 3, "vram_mib": 1024}, 0), ({"gpus": 0}, 0)):
        found = rights(**fields)
        assert isinstance(found, ClassRights)
        assert found.whole_gpus == gpus


def test_a_deadline_lies_ahead() -> None:
    assert isinstance(rights(deadline="2026-11-29T13:00:01+01:00"), ClassRights)
    problem = rights(deadline="2026-11-29T13:00:00+01:00")
    assert problem == FieldProblem(field="deadline", message="must be in the future; now it is 2026-11-29T12:00:00Z")


def test_a_job_may_begin_before_it_would_be_overdue() -> None:
    begin = "2026-11-29T14:00:00Z"
    assert isinstance(rights(begin_at=begin, deadline="2026-11-29T14:00:01Z", max_wait="121m"), ClassRights)
    late = rights(begin_at=begin, deadline=begin)
    assert late == FieldProblem(field="begin_at", message="must be before the deadline, 2026-11-29T14:00:00Z")
    late = rights(begin_at=begin, max_wait="2h")
    assert late == FieldProblem(field="begin_at", message="must be before the longest wait, max_wait 2h, is over")


def test_slots_count_as_a_part_of_a_card_that_is_known_later() -> None:
    found = rights(shares=2, gpus=3)
    assert isinstance(found, ClassRights)
    assert found.whole_gpus == 0


def test_to_be_exempt_after_a_while_is_not_to_be_preemptible() -> None:
    found = rights(preemption={"exempt_after": "1h"})
    assert isinstance(found, ClassRights)
    assert found.not_preemptible


def test_a_job_that_excludes_every_node_it_names_is_refused() -> None:
    assert isinstance(rights(constraints={"nodes": ["a", "b"], "exclude_nodes": ["a"]}), ClassRights)
    problem = rights(constraints={"nodes": ["a"], "exclude_nodes": ["a", "b"]})
    assert isinstance(problem, FieldProblem)
    assert (problem.field, problem.message) == (
        "constraints.exclude_nodes", "leaves none of the nodes that constraints.nodes names: a"
    )  # fmt: skip


def test_more_shares_than_the_policy_gives_a_card_are_refused() -> None:
    assert isinstance(rights(shares=4), ClassRights)
    assert rights(shares=5) == FieldProblem(field="shares", message="must be at most 4, the policy's max_shares")
    spec = JobSpec.model_validate({"command": ["true"], "shares": 5})
    assert isinstance(rights_of(spec, Policy(max_shares=5), NOW), ClassRights)


@pytest.mark.parametrize(
    ("name", "why"), [("@last", "begin with @"), ("@x", "begin with @"), ("0123456789ab", "job's id")]
)
def test_a_name_that_would_mean_another_job_is_refused(name: str, why: str) -> None:
    problem = rights(name=name)
    assert isinstance(problem, FieldProblem)
    assert (problem.field, why in problem.message) == ("name", True)


@pytest.mark.parametrize("name", ["", "last", "a@b", "0123456789a", "0123456789abc", "0123456789aB", "job-01234567"])
def test_other_names_are_taken(name: str) -> None:
    assert isinstance(rights(name=name), ClassRights)
