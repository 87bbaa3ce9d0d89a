"""What a model refuses about a document, in the words of whoever wrote it: name, line, column, the nearest name."""

import difflib
import re
from collections.abc import Collection, Sequence
from typing import Any, Final

from makeway_schemas.field_names import field_names
from pydantic import BaseModel, ValidationError

from makeway.documents.reader import Document, Location, dotted
from makeway.errors import SpecProblem

_BY_TYPE: Final = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be a text; put it in quotes",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping of names to values",
    "tuple_type": "must be a list of texts, such as [python, train.py]",
    "model_type": "must be a mapping of fields",
    "none_required": "must be left out",
}
_LONGEST_SHOWN: Final = 60
_WORD: Final = re.compile(r"[a-z_]+")


def problems_of(
    error: ValidationError, model: type[BaseModel], tags: Collection[str] = ()
) -> list[tuple[str, Location]]:
    """What is wrong and where in the document, one entry a problem. `tags` of unions are no part of the place."""
    details = error.errors(include_url=False, include_context=False)
    return [
        _problem(
            model, tuple(part for part in detail["loc"] if part not in tags), detail["type"], detail["msg"],
            detail["input"],
        )
        for detail in details
    ]  # fmt: skip


def placed(message: str, location: Location, document: Document, also: Sequence[Location] = ()) -> SpecProblem:
    """The problem with its line: the value's, else that of what encloses it.

    `also` are other values that it is about, for what does not stand in the file itself. What is about several values
    together has no location; its sentence names them, and the first that stands in the file is its place.
    """
    inner = [location[:length] for length in range(len(location), 1, -1)]
    named = [(word,) for word in _WORD.findall(message)] if not location else []
    for candidate in (*inner, *also, location[:1], *named):
        place = document.places.get(candidate)
        if place is not None:
            return SpecProblem(
                field=dotted(location), message=message, source=document.source, line=place.line, column=place.column
            )
    return SpecProblem(field=dotted(location), message=message, source=document.source)


def _problem(model: type[BaseModel], location: Location, kind: str, message: str, given: Any) -> tuple[str, Location]:
    if location and location[-1] == "[key]":  # the name of an entry, not its value
        return f"is no name: {sentence_of(kind, message)}", location[:-1]
    if kind == "extra_forbidden":
        return _unknown(model, location), location
    text = sentence_of(kind, message)
    if isinstance(given, str | int | float) and not isinstance(given, bool) and len(str(given)) <= _LONGEST_SHOWN:
        text += f" (given: {given})"
    return text, location


def sentence_of(kind: str, message: str) -> str:
    """What pydantic says of a value (its kind of error, its message), in the command's words."""
    return _BY_TYPE.get(kind) or message.removeprefix("Value error, ").removeprefix("Input ")


def _unknown(model: type[BaseModel], location: Location) -> str:
    known = field_names(model, location[:-1])
    near = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
    return "unknown field" + (f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}")
