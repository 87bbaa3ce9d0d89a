"""A policy's document as the text of a file: what is shown can be saved, changed and applied."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from makeway_policy.document import is_duration
from makeway_schemas.durations import format_duration

_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*( [A-Za-z0-9_-]+)*")
_WORDS_OF_YAML: Final = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
"""Some readers of YAML take these for other values than texts; ours takes only the last three."""


def policy_lines(document: Mapping[str, Any], notes: Mapping[str, str] | None = None) -> list[str]:
    """The lines of a file that says what the document says; ``notes`` are comments by the path of a value."""
    rows = list(_rows(document, "", 0))
    notes = notes or {}
    width = max((len(line) for path, line in rows if path in notes), default=0)
    return [f"{line:<{width}}  # {notes[path]}" if path in notes else line for path, line in rows]


def value_text(path: str, value: Any) -> str:
    """One value as a file says it: a duration such as ``1h30m``, a text in quotes where it needs them."""
    if isinstance(value, int | float) and not isinstance(value, bool) and is_duration(path):
        return format_duration(value) if value == round(value) or value < 60 else f"{value}s"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS_OF_YAML:
        return value
    if isinstance(value, float) and value == round(value):
        return str(round(value))
    return json.dumps(value, ensure_ascii=False)


def _rows(values: Mapping[str, Any], outer: str, depth: int) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        path = f"{outer}.{name}" if outer else name
        # Names of cards may hold anything, so they stay on one line, as JSON writes them.
        nested = isinstance(value, Mapping) and bool(value) and path != "gpu_aliases"
        yield path, f"{'  ' * depth}{name}:" + ("" if nested else f" {value_text(path, value)}")
        if nested:
            yield from _rows(value, path, depth + 1)
