"""GPUs of a team's rights: a number, or per cent of the pool."""

from typing import Any

import pytest
from makeway_schemas.amounts import parse_amount, percent_of
from makeway_schemas.api import TeamBody
from pydantic import ValidationError


@pytest.mark.parametrize(
    ("given", "meant"),
    [(0, 0), (8, 8), ("25%", "25%"), ("12.50 %", "12.5%"), ("100%", "100%"), ("0%", 0), ("0.0%", 0)],
)
def test_an_amount_is_a_number_of_gpus_or_per_cent_in_one_form(given: Any, meant: int | str) -> None:
    assert parse_amount(given) == meant
    assert TeamBody(limit=given).limit == meant


@pytest.mark.parametrize(
    "given", [-1, 1.5, 1_000_001, True, "8", "101%", "-1%", "%", "1e1%", "nan%", "٣%", "5%\n", [], {}]
)
def test_anything_else_is_refused(given: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        TeamBody(class_limits={"low": given})
    assert [each["loc"] for each in caught.value.errors()] == [("class_limits", "low")]


@pytest.mark.parametrize("given", ["101%", "1000%", "9" * 400 + "%"])
def test_per_cent_above_the_limit_are_refused_with_it(given: str) -> None:
    with pytest.raises(ValidationError, match="must be at most 100%"):
        TeamBody(limit=given)


def test_the_percentage_of_a_number_of_gpus_is_none() -> None:
    assert [percent_of(each) for each in (8, None, "12.5%", "8")] == [None, None, 12.5, None]
