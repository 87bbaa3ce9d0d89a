"""The short forms of scenario files: ranges of names, gangs, switches."""

import math
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

_RANGE: Final = re.compile(r"(?P<stem>.*?)(?P<first>\d+)\s*\.\.\s*(?P=stem)(?P<last>\d+)", re.ASCII)
_GANG: Final = re.compile(r"(-?\d+)\s*x\s*(-?\d+)", re.ASCII)
MOST_NAMES: Final = 10_000
MOST_DIGITS: Final = 19

T = TypeVar("T")


def names(given: str | tuple[str, ...]) -> tuple[str, ...]:
    """All names of a text or a list: single ones, ranges such as `job-1..job-4`, several with commas.

    Raises ValueError for a range that runs backwards or is too long.
    """
    parts = [part.strip() for each in ((given,) if isinstance(given, str) else given) for part in each.split(",")]
    found: list[str] = []
    for part in parts:
        found.extend(_range(part))
        if len(found) > MOST_NAMES:
            raise ValueError(f"more than {MOST_NAMES} names")
    return tuple(found)


def _range(text: str) -> tuple[str, ...]:
    match = _RANGE.fullmatch(text)
    if match is None:
        return (text,)
    digits = max(len(match["first"]), len(match["last"]))
    first, last = (int(match["first"]), int(match["last"])) if digits < MOST_DIGITS else (0, MOST_NAMES)
    if not 0 <= last - first < MOST_NAMES:
        raise ValueError(f"{text!r} is no range of at most {MOST_NAMES} names that counts up")
    width = len(match["first"]) if match["first"].startswith("0") else 0
    return tuple(f"{match['stem']}{number:0{width}d}" for number in range(first, last + 1))


def by_name(given: Mapping[str, T]) -> dict[str, T]:
    """A mapping whose keys are single names."""
    return {name: value for key, value in given.items() for name in names(key)}


def gang(given: Any) -> tuple[Any, Any] | None:
    """(members, GPUs of each) of `4 x 1`; None for anything else."""
    match = _GANG.fullmatch(given.strip()) if isinstance(given, str) else None
    return None if match is None else (int(match[1]), int(match[2]))


def mib(gib: Any) -> Any:
    """MiB of a number of GiB; what is no number stays what it is, for whoever refuses it."""
    if isinstance(gib, bool) or not isinstance(gib, int | float):
        return gib
    size = gib * 1024
    return int(size) if isinstance(size, float) and math.isfinite(size) and size == int(size) else size
