"""Durations (``90s``, ``1h30m``) and sizes (``64GiB``) as people write them; plain numbers are seconds and MiB."""

import math
import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MIB: Final = {"MiB": 1, "GiB": 1024, "TiB": 1024 * 1024}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_INFINITE: Final = re.compile(r"\.?inf(?:inity)?", re.IGNORECASE)
_ACCEPTED: Final = "a duration is a number of seconds or a text such as 90s, 15m or 2h"
_UNITS: Final = ("d", "h", "m", "s", "ms")
"""In the order in which a text has them."""
DURATION_TEXT: Final = r"^\b" + "".join(rf"([0-9]+(\.[0-9]+)?{unit})?" for unit in _UNITS) + "$"
SIZE_TEXT: Final = r"^[0-9]+(\.[0-9]+)?(MiB|GiB|TiB)$"
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(MiB|GiB|TiB)")


def parse_duration(value: object) -> float:
    """Seconds of a number or a text such as ``90s`` or ``1h30m``. Raises ValueError with what is accepted."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a duration must be a finite number of seconds")
    found = parse_unbounded(value)
    if isinstance(value, str) and (found < 0 or _INFINITE.fullmatch(value)):
        raise ValueError("a duration is 0 or more seconds, and not endless")
    return found


def parse_unbounded(value: object) -> float:
    """The same for a field with bounds of its own, which name them: ``-5s`` is below 0, infinity the largest float."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(_ACCEPTED)
    if isinstance(value, str):
        sign, text = (-1.0, value[1:]) if value.startswith("-") else (1.0, value)
        if _INFINITE.fullmatch(text):
            return sign * sys.float_info.max
        if _DURATION.fullmatch(text) is None:
            raise ValueError(_ACCEPTED)
        return sign * _sum_of(_DURATION_PART.findall(text))
    if isinstance(value, float) and math.isnan(value):
        raise ValueError("a duration must be a finite number of seconds")
    return _at_most_a_float(value)


def _sum_of(parts: Sequence[tuple[str, str]]) -> float:
    """The seconds of numbers with their units, each unit at most once and the larger before the smaller."""
    places = [_UNITS.index(unit) for _, unit in parts]
    if any(later <= earlier for earlier, later in pairwise(places)):
        raise ValueError("a duration has each of d, h, m, s and ms at most once and in this order, such as 1h30m")
    return _at_most_a_float(sum(float(number) * _SECONDS[unit] for number, unit in parts))


def _at_most_a_float(value: float) -> float:
    """A number of any size as one that the field can refuse by its limit."""
    return float(max(min(value, sys.float_info.max), -sys.float_info.max))


def parse_size_mib(value: object) -> int:
    """MiB of a whole number or a text such as ``64GiB``. Raises ValueError with what is accepted."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("a size is a whole number of MiB or a text such as 512MiB or 64GiB")
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match is None:
            raise ValueError("a size is a whole number of MiB or a text such as 512MiB or 64GiB")
        return _whole(_at_most_a_float(float(match[1]) * _MIB[match[2]]))
    return _whole(value)


def _whole(value: float) -> int:
    if isinstance(value, float) and (not math.isfinite(value) or value != int(value)):
        raise ValueError("a size must be a finite whole number of MiB")
    return int(value)


def format_duration(seconds: float) -> str:
    """A short text that ``parse_duration`` reads again, such as ``1h30m`` or ``2.5s``."""
    if seconds < 60:
        return f"{round(seconds, 3):g}s"
    parts = []
    rest = round(seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def duration_schema(*others: dict[str, Any], **bounds: float) -> dict[str, Any]:
    """The JSON Schema of a duration, as a number within bounds, as a text, or as one of the other schemas."""
    return {"anyOf": [{"type": "number", **bounds}, *others, {"type": "string", "pattern": DURATION_TEXT}]}


# JSON Schemas name both forms, so that editors take either for right. Whoever uses it gives bounds.
Seconds = Annotated[
    float,
    BeforeValidator(parse_unbounded, json_schema_input_type=float | Annotated[str, Field(pattern=DURATION_TEXT)]),
]
Mib = Annotated[
    int, BeforeValidator(parse_size_mib, json_schema_input_type=int | Annotated[str, Field(pattern=SIZE_TEXT)])
]
