"""What a model refuses about a request, in the words of the API: each field by its path, with the limit that it breaks.

Here because the client says the same of a value that it does not even send.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from makeway_schemas.api.base import FieldProblem, Problem
from makeway_schemas.field_names import field_names

UNKNOWN_FIELD: Final = "unknown_field"
INVALID_FIELD: Final = "invalid_field"
FIELD_TITLES: Final[Mapping[str, str]] = MappingProxyType(
    {UNKNOWN_FIELD: "A field is not known", INVALID_FIELD: "A field is not valid"}
)
"""The codes of what is refused field by field, with their titles."""
FIELD_STATUS: Final = 422
MAX_FIELDS: Final = 50
"""So many wrong fields are named at most."""

_SENTENCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "greater_than": "must be more than {gt}",
        "greater_than_equal": "must be at least {ge}",
        "less_than": "must be less than {lt}",
        "less_than_equal": "must be at most {le}",
        "int_type": "must be a whole number",
        "int_from_float": "must be a whole number",
        "int_parsing": "must be a whole number",
        "int_parsing_size": "is a number too long to be within any limit",
        "finite_number": "must be a finite number",
        "float_type": "must be a number",
        "bool_type": "must be true or false",
        "bool_parsing": "must be true or false",
        "string_type": "must be a text",
        "string_unicode": "must be valid Unicode, without lone surrogates",
        "string_too_long": "must have at most {max_length} characters",
        "string_too_short": "must have at least {min_length} characters",
        "string_pattern_mismatch": "must match {pattern}",
        "too_long": "must have at most {max_length} items; this has {actual_length}",
        "too_short": "must have at least {min_length} items",
        "tuple_type": "must be a list",
        "dict_type": "must be an object of names and values",
        "model_type": "must be an object",
        "missing": "must be given",
        "enum": "must be {expected}",
        "literal_error": "must be {expected}",
    }
)


def field_refusal(model: type[BaseModel], errors: Iterable[ErrorDetails]) -> Problem:
    """The problem that names each field; `unknown_field` where nothing else is wrong."""
    found = list(errors)[:MAX_FIELDS]
    fields = tuple(_field_problem(model, error) for error in found)
    code = UNKNOWN_FIELD if all(error["type"] == "extra_forbidden" for error in found) else INVALID_FIELD
    return Problem(
        type=f"urn:makeway:problem:{code}",
        title=FIELD_TITLES[code],
        status=FIELD_STATUS,
        detail=said(fields),
        code=code,
        fields=fields,
    )


def said(fields: Iterable[FieldProblem]) -> str:
    """The fields' problems as one sentence for people."""
    return "; ".join(f"{each.field}: {each.message}" if each.field else each.message for each in fields)[:2000]


def path_of(location: Iterable[str | int]) -> str:
    """A field's path as people write it: `preemption.grace`, `command[0]`."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part != "[key]":
            path += f".{part}" if path else part
    return path


def unknown_name(kind: str, name: str, known: Sequence[str]) -> str:
    """The sentence of a name that is not known, with the nearest that is; `kind` is what it should be one of."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f"is not a known {kind}; did you mean {near[0]}?"
    return f"is not a known {kind}; known are {', '.join(known)}" if known else f"is not known: there is no {kind} here"


def _field_problem(model: type[BaseModel], error: ErrorDetails) -> FieldProblem:
    names = field_names(model, error["loc"][:-1])
    if error["type"] == "extra_forbidden":
        name = str(error["loc"][-1])
        return FieldProblem(field=path_of(error["loc"])[:300], message=unknown_name("field", name, names))
    message = sentence_of(error)
    field = path_of(error["loc"])
    if not error["loc"]:
        # What does not fit together names its fields in its own sentence.
        field = next((word for word in re.findall(r"[a-z_]+", message) if word in names), "")
    return FieldProblem(field=field[:300], message=message[:1000])


def sentence_of(error: ErrorDetails) -> str:
    """What is wrong with one value, with the limit that it breaks."""
    template = _SENTENCES.get(error["type"])
    context = {name: _plain(value) for name, value in error.get("ctx", {}).items()}
    if template is not None:
        return template.format_map(_Known(context))
    return error["msg"].removeprefix("Value error, ")


class _Known(dict[str, object]):
    def __missing__(self, key: str) -> str:
        return "?"


def _plain(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value
