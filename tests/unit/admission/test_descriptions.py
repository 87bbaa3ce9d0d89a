"""The committed description of the API is what the code says."""

import json

from makeway_admission.errors import ProblemCode, problem_of
from makeway_admission.generate import FILE, document
from makeway_admission.policies import plain
from makeway_policy.rules import Policy
from makeway_schemas.generate import render


def test_the_committed_description_is_current() -> None:
    assert FILE.read_text(encoding="utf-8") == render(document())


def test_every_reference_in_it_leads_somewhere() -> None:
    described = document()

    def references(value: object) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [each for inner in value.values() for each in references(inner)]
        return [each for inner in value for each in references(inner)] if isinstance(value, list) else []

    for reference in references(described):
        _, section, kind, name = reference.split("/")
        assert name in described[section][kind], reference


def test_every_route_but_health_and_the_description_asks_for_a_token() -> None:
    described = document()
    assert described["security"] == [{"bearer": []}]
    free = [path for path, item in described["paths"].items() for call in item.values() if call.get("security") == []]
    assert free == ["/healthz", "/openapi.json"]


def test_every_code_has_a_status_and_a_title() -> None:
    for code in ProblemCode:
        problem = problem_of(code)
        assert 400 <= problem.status < 600
        assert (problem.title != "", problem.code) == (True, code.value)


def test_a_policy_is_told_as_plain_json() -> None:
    told = json.loads(json.dumps(plain(Policy()), allow_nan=False))
    assert told["classes"]["low"]["may_preempt"] == "once_aged"
    assert told["victims"] == "priority-first"
