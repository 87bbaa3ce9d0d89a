"""Durations (``90s``, ``1h30m``) and sizes (``64GiB``) as people write them; plain numbers are seconds and MiB."""

import math
import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MIB: Final = {"MiB": 1, "GiB": 1024, "TiB": 1024 * 1024}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
DURATION_TEXT: Final = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"
SIZE_TEXT: Final = r"^[0-9]+(\.[0-9]+)?(MiB|GiB|TiB)$"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)(MiB|GiB|TiB)")


def parse_duration(value: object) -> float:
    """Seconds of a number or a text such as ``90s`` or ``1h30m``. Raises ValueError with what is accepted."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("a duration is a number of seconds or a text such as 90s, 15m or 2h")
    if isinstance(value, str):
        if _DURATION.fullmatch(value) is None:
            raise ValueError("a duration is a number of seconds or a text such as 90s, 15m or 2h")
        return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(value))
    if not math.isfinite(value):
        raise ValueError("a duration must be a finite number of seconds")
    return float(value)


def parse_size_mib(value: object) -> int:
    """MiB of a whole number or a text such as ``64GiB``. Raises ValueError with what is accepted."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("a size is a whole number of MiB or a text such as 512MiB or 64GiB")
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match is None:
            raise ValueError("a size is a whole number of MiB or a text such as 512MiB or 64GiB")
        return _whole(float(match[1]) * _MIB[match[2]])
    return _whole(value)


def _whole(value: float) -> int:
    if not math.isfinite(value) or value != int(value):
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


def duration_schema(**bounds: float) -> dict[str, Any]:
    """The JSON Schema of a duration, as a number within bounds or as a text."""
    return {"anyOf": [{"type": "number", **bounds}, {"type": "string", "pattern": DURATION_TEXT}]}


# JSON Schemas name both forms, so that editors take either for right.
Seconds = Annotated[
    float,
    BeforeValidator(parse_duration, json_schema_input_type=float | Annotated[str, Field(pattern=DURATION_TEXT)]),
]
Mib = Annotated[
    int, BeforeValidator(parse_size_mib, json_schema_input_type=int | Annotated[str, Field(pattern=SIZE_TEXT)])
]
