"""From file and flags to a valid ``JobSpec``, or to a list of what is wrong and where."""

import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from makeway_schemas.job_spec import JobSpec
from pydantic import BaseModel, ValidationError

from makeway.errors import SpecInvalid, SpecProblem
from makeway.spec.file import MAX_BYTES, SpecFile, dotted, read_spec

Location = tuple[int | str, ...]

_BY_TYPE: Final = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "string_type": "must be a text; put it in quotes",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping of names to values",
    "tuple_type": "must be a list of texts, such as [python, train.py]",
    "model_type": "must be a mapping of fields",
    "none_required": "must be left out",
}


def load_file(name: str) -> SpecFile:
    """Reads a job file; ``-`` is stdin. Raises SpecInvalid."""
    source = "stdin" if name == "-" else name
    try:
        raw = sys.stdin.buffer.read(MAX_BYTES + 1) if name == "-" else _read(Path(name))
        text = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SpecInvalid((SpecProblem(field="", message=f"cannot be read: {reason}", source=source),)) from error
    if len(raw) > MAX_BYTES:
        raise SpecInvalid((SpecProblem(field="", message=f"is over {MAX_BYTES} bytes", source=source),))
    return read_spec(text, source)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def build(file: SpecFile | None, flags: Mapping[str, Any], working_dir: str) -> JobSpec:
    """The specification of both; ``working_dir`` holds where neither names one. Raises SpecInvalid."""
    values: dict[str, Any] = {"working_dir": working_dir}
    if file is not None:
        values |= file.values
    if ("command" in flags) != ("script" in flags):  # a program given as a flag replaces the file's, in either form
        values.pop("command", None)
        values.pop("script", None)
    _merge(values, flags)
    try:
        return JobSpec.model_validate(values)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        found = (_problem(detail["loc"], detail["type"], detail["msg"], detail["input"]) for detail in details)
        raise SpecInvalid(tuple(_placed(problem, location, file, flags) for problem, location in found)) from error


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Inner mappings (preemption, env, labels) are merged entry by entry, so a flag changes only what it names."""
    for key, value in values.items():
        inner = into.get(key)
        if isinstance(value, Mapping) and isinstance(inner, dict):
            into[key] = dict(inner)
            _merge(into[key], value)
        else:
            into[key] = value


def _problem(location: Location, kind: str, message: str, given: Any) -> tuple[str, Location]:
    if kind == "extra_forbidden":
        return _unknown(location), location
    text = _BY_TYPE.get(kind) or message.removeprefix("Value error, ").removeprefix("Input ")
    if isinstance(given, str | int | float) and not isinstance(given, bool) and len(str(given)) <= 60:
        text += f" (given: {given})"
    return text, location


def _unknown(location: Location) -> str:
    known = _field_names(location[:-1])
    near = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
    return "unknown field" + (f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}")


def _field_names(outer: Location) -> list[str]:
    model: type[BaseModel] = JobSpec
    for part in outer:
        annotation = next(i.annotation for n, i in model.model_fields.items() if part in (n, i.alias))
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return [info.alias or name for name, info in model.model_fields.items()]


def _placed(message: str, location: Location, file: SpecFile | None, flags: Mapping[str, Any]) -> SpecProblem:
    """The problem with its line, if the value came from the file."""
    name = dotted(location)
    if file is None or _came_from_flags(location, flags):
        return SpecProblem(field=name, message=message)
    for length in range(len(location), 0, -1):
        place = file.places.get(tuple(location[:length]))
        if place is not None:
            return SpecProblem(field=name, message=message, source=file.source, line=place.line, column=place.column)
    return SpecProblem(field=name, message=message, source=file.source)


def _came_from_flags(location: Location, flags: Mapping[str, Any]) -> bool:
    inner: Any = flags
    for part in location:
        if not isinstance(inner, Mapping) or part not in inner:
            return inner is not flags and not isinstance(inner, Mapping)
        inner = inner[part]
    return bool(location)
