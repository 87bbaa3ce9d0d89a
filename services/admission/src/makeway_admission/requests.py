"""From a JSON object to a validated job, or to the list of fields that are wrong, each with its limit."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar

from makeway_schemas.api import FieldProblem
from makeway_schemas.field_names import field_names
from makeway_schemas.job_spec import JobSpec
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from makeway_admission.errors import ProblemCode, Refused, problem_of

ModelT = TypeVar("ModelT", bound=BaseModel)
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
        "finite_number": "must be a finite number",
        "float_type": "must be a number",
        "bool_type": "must be true or false",
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


def parse_job(document: Mapping[str, Any]) -> JobSpec:
    """The job of a request. Raises Refused with every field that is wrong."""
    return parse_model(JobSpec, document)


def parse_model(model: type[ModelT], document: Mapping[str, Any]) -> ModelT:
    """A request's model. Raises Refused with every field that is wrong, named as in the request."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise refused_fields(model, error.errors(include_url=False, include_input=False)) from error


def refused_fields(model: type[BaseModel], errors: Iterable[ErrorDetails]) -> Refused:
    """The refusal that names each field; `unknown_field` where nothing else is wrong."""
    found = list(errors)[:MAX_FIELDS]
    fields = tuple(_field_problem(model, error) for error in found)
    only_unknown = all(error["type"] == "extra_forbidden" for error in found)
    code = ProblemCode.UNKNOWN_FIELD if only_unknown else ProblemCode.INVALID_FIELD
    return Refused(problem_of(code, said(fields), fields))


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
    message = _sentence(error)
    field = path_of(error["loc"])
    if not error["loc"]:
        # What does not fit together names its fields in its own sentence.
        field = next((word for word in re.findall(r"[a-z_]+", message) if word in names), "")
    return FieldProblem(field=field[:300], message=message[:1000])


def _sentence(error: ErrorDetails) -> str:
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
