"""From file and flags to a valid ``JobSpec``, or to a list of what is wrong and where."""

from collections.abc import Mapping
from typing import Any, Final

from makeway_schemas.job_spec import JobSpec
from pydantic import ValidationError

from makeway.documents import reader
from makeway.documents.problems import placed, problems_of
from makeway.documents.reader import Document, Location, dotted
from makeway.errors import Refused, SpecInvalid, SpecProblem

_WHAT: Final = "a job file is a mapping of fields, such as `command: [python, train.py]`"


def load_file(name: str) -> Document:
    """Reads a job file; ``-`` is stdin. Raises SpecInvalid."""
    return reader.load(name, _WHAT)


def read_spec(text: str, source: str) -> Document:
    """Parses the text of a job file. Raises SpecInvalid with file, line and column."""
    return reader.parse(text, source, _WHAT)


def build(file: Document | None, flags: Mapping[str, Any], working_dir: str) -> JobSpec:
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
        found = problems_of(error, JobSpec)
        raise SpecInvalid(tuple(_placed(problem, location, file, flags) for problem, location in found)) from error


def placed_in(refused: Refused, file: Document | None, flags: Mapping[str, Any]) -> SpecInvalid | None:
    """A server's refusal of single fields with the lines that they have in the file; None for any other refusal."""
    if file is None or not refused.problem.fields:
        return None
    locations = {dotted(location): location for location in file.places}
    return SpecInvalid(
        tuple(
            _placed(each.message, locations.get(each.field) or tuple(each.field.split(".")), file, flags)
            for each in refused.problem.fields
        )
    )


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Inner mappings (preemption, env, labels) are merged entry by entry, so a flag changes only what it names."""
    for key, value in values.items():
        inner = into.get(key)
        if isinstance(value, Mapping) and isinstance(inner, dict):
            into[key] = dict(inner)
            _merge(into[key], value)
        else:
            into[key] = value


def _placed(message: str, location: Location, file: Document | None, flags: Mapping[str, Any]) -> SpecProblem:
    """The problem with its line, if the value came from the file."""
    if file is None or _came_from_flags(location, flags):
        return SpecProblem(field=dotted(location), message=message)
    return placed(message, location, file)


def _came_from_flags(location: Location, flags: Mapping[str, Any]) -> bool:
    inner: Any = flags
    for part in location:
        if not isinstance(inner, Mapping) or part not in inner:
            return inner is not flags and not isinstance(inner, Mapping)
        inner = inner[part]
    return bool(location)
