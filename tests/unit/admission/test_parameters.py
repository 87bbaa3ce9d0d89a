"""Query parameters that a route does not have are refused by name, on every route."""

import json
import re
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from makeway_admission.access import Principal, Role
from makeway_admission.generate import document
from makeway_admission.web import create_app
from starlette.types import Message

ROUTES = [(method.upper(), path) for path, item in document()["paths"].items() for method in item]


class Tokens:
    """Every token is an admin's; `node` ones are that node's."""

    async def principal(self, authorization: str | None) -> Principal:
        role = Role.NODE if authorization == "node" else Role.ADMIN
        return Principal(token_id="t", name="it", role=role, team=None, node="n1" if role is Role.NODE else None)


# A request that is let through fails for want of the other parts.
APP: Any = create_app(SimpleNamespace(access=Tokens()))  # type: ignore[arg-type]


async def asked(method: str, path: str, query: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=APP)
    async with httpx.AsyncClient(transport=transport, base_url="http://makeway") as client:
        return await client.request(method, f"{re.sub(r'{[^}]*}', '1', path)}?{query}")


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_every_route_refuses_a_parameter_that_it_does_not_have(method: str, path: str) -> None:
    answer = await asked(method, path, "xyzzy=1&ref=x")
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "unknown_field")
    assert "xyzzy" in [each["field"] for each in problem["fields"]]


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        ("stat=RUNNING", "stat", "is not a known parameter; did you mean state?"),
        ("dryrun=1", "dryrun", "is not a known parameter; known are state, team, class, "),
        ("class_=low", "class_", "did you mean class?"),
        ("limit=1&limit=2", "limit", "is given twice"),
        ("Limit=1", "Limit", "did you mean limit?"),
    ],
)
async def test_the_refusal_names_the_parameter_and_what_may_be_meant(query: str, field: str, message: str) -> None:
    (problem,) = (await asked("GET", "/v1/jobs", query)).json()["fields"]
    assert problem["field"] == field
    assert message in problem["message"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (f"limit={'9' * 30}", "must be at most 1000"),
        (f"limit={'9' * 5000}", "is a number too long to be within any limit"),
        ("limit=0", "must be at least 1"),
        ("limit=1.5", "must be a whole number"),
        ("all=maybe", "must be true or false"),
    ],
)
async def test_a_value_that_is_no_good_is_refused_in_the_words_of_other_fields(query: str, message: str) -> None:
    answer = await asked("GET", "/v1/jobs", query)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field")
    assert answer.json()["fields"] == [{"field": query.partition("=")[0], "message": message}]


async def test_a_dry_run_that_is_misspelt_applies_nothing() -> None:
    answer = await asked("PUT", "/v1/policies/main", "dryrun=true")
    assert answer.json()["detail"] == "dryrun: is not a known parameter; did you mean dry_run?"


async def test_each_described_parameter_is_known_and_a_list_may_be_given_twice() -> None:
    described = document()["paths"]
    for method, path in ROUTES:
        for each in described[path][method.lower()].get("parameters", ()):
            if each["in"] != "query":
                continue
            twice = (await asked(method, path, f"{each['name']}=1&{each['name']}=1&xyzzy=1")).json()
            schema = each["schema"]
            is_list = "array" in [schema.get("type"), *(kind.get("type") for kind in schema.get("anyOf", ()))]
            assert [found["field"] for found in twice["fields"]] == (
                ["xyzzy"] if is_list else sorted([each["name"], "xyzzy"])
            )


async def test_a_channel_is_not_opened_with_a_parameter() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "websocket",
        "path": "/v1/nodes/n1/channel",
        "query_string": b"runs=1",
        "headers": [(b"authorization", b"node")],
        "subprotocols": [],
        "extensions": {"websocket.http.response": {}},
    }
    await APP(scope, receive, send)
    assert sent[0]["status"] == 422
    assert json.loads(sent[1]["body"])["detail"] == "runs: is not known: there is no parameter here"
