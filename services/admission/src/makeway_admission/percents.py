"""Rights in per cent of the pool between the API, where both are one field, and the table, where each has its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from makeway_schemas.amounts import percent_of, percent_text
from makeway_schemas.api import TeamBody


def columns_of(body: TeamBody) -> dict[str, Any]:
    """The columns that hold the rights: GPUs where they are given in GPUs, else in `percents`."""
    given = {"guarantee": body.guarantee, "limit": body.limit, "user_limit": body.user_limit}
    percents: dict[str, Any] = {name: percent_of(amount) for name, amount in given.items()}
    percents["class_limits"] = _percents(body.class_limits)
    percents["allowances"] = _percents(body.allowances)
    return {
        "guarantee": 0 if percents["guarantee"] is not None else body.guarantee,
        "gpu_limit": None if percents["limit"] is not None else body.limit,
        "user_limit": None if percents["user_limit"] is not None else body.user_limit,
        "class_limits": _gpus(body.class_limits),
        "allowances": _gpus(body.allowances),
        "percents": {name: value for name, value in percents.items() if value not in (None, {})},
    }


def in_texts(percents: Mapping[str, Any]) -> dict[str, Any]:
    """What the table has in per cent, as the API shows it; figures that are given in GPUs are missing."""
    return {
        name: {each: percent_text(percent) for each, percent in value.items()}
        if isinstance(value, Mapping)
        else percent_text(value)
        for name, value in percents.items()
    }


def _percents(amounts: Mapping[str, int | str]) -> dict[str, float]:
    found = {name: percent_of(amount) for name, amount in amounts.items()}
    return {name: percent for name, percent in found.items() if percent is not None}


def _gpus(amounts: Mapping[str, int | str]) -> dict[str, int | str]:
    return {name: amount for name, amount in amounts.items() if percent_of(amount) is None}
