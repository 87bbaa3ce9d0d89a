"""JSON bodies: what cannot mean one thing is refused, what a field can refuse comes through."""

import math

import pytest
from makeway_admission.bodies import parse_document
from makeway_admission.errors import Refused


def test_numbers_that_no_field_takes_come_through_for_the_field_to_refuse() -> None:
    document = parse_document(b'{"a": NaN, "b": -Infinity, "c": 1e18, "d": ' + b"9" * 5000 + b"}")
    assert math.isnan(document["a"])
    assert (document["b"], document["c"]) == (-math.inf, 1e18)
    assert isinstance(document["d"], int)
    assert document["d"] > 10**100


def test_a_key_that_is_given_twice_is_named() -> None:
    for body in (b'{"gpus": 1, "gpus": 2}', b'{"env": {"gpus": "x", "gpus": "x"}}'):
        with pytest.raises(Refused) as refused:
            parse_document(body)
        assert [each.field for each in refused.value.problem.fields] == ["gpus"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"1",
        b'"x"',
        b"{",
        b"{'a': 1}",
        b"\xff",
        b'{"a": 1} x',
        b'{"a":' * 50 + b"1" + b"}" * 50,
        b'{"a":' * 100_000,
        b'{"a":' + b"[" * 40 + b"]" * 40 + b"}",
    ],
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        parse_document(body)
    assert refused.value.problem.status == 400
