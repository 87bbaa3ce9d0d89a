"""The forms that values of scenario files may have. Where there are several, the value's kind says which is meant, so
that a mistake is told in the words of that one.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from makeway_schemas.durations import Seconds, parse_duration
from pydantic import BaseModel, BeforeValidator, Discriminator, Field, PlainValidator, StringConstraints, Tag

TAGS: Final = frozenset({"(plain)", "(list)", "(fields)"})
"""What stands for the kind of a value in the place of a problem."""

PlainTag = Tag("(plain)")
ListTag = Tag("(list)")
FieldsTag = Tag("(fields)")


def _kind(value: Any) -> str:
    if isinstance(value, Mapping | BaseModel):
        return "(fields)"
    return "(list)" if isinstance(value, list | tuple) else "(plain)"


Either = Discriminator(_kind)
"""Marks a union of which the value's kind chooses one."""


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("yes", "on", "no", "off"):
        return value in ("yes", "on")
    raise ValueError("must be yes or no")


def _moment(value: Any) -> float | str:
    if value == "never":
        return "never"
    try:
        found = parse_duration(value)
    except ValueError as error:
        raise ValueError(f"{error}, or never") from error
    if found < 0:
        raise ValueError("must be 0 or more, or never")
    return found


def _within(value: Any) -> float | str:
    return "cycle" if value == "cycle" else parse_duration(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number")
    return float(value)


Time = Annotated[Seconds, Field(ge=0)]
Period = Annotated[Seconds, Field(gt=0)]
Number = Annotated[float, BeforeValidator(_number)]
Switch = Annotated[bool, BeforeValidator(_switch)]
Word = Annotated[str, StringConstraints(min_length=1)]
Words = Annotated[Annotated[str, PlainTag] | Annotated[tuple[str, ...], ListTag], Either]
JobNames = Words
"""Names of jobs: one, several with commas or as a list, a range such as job-1..job-4."""
Within = Annotated[float | str, PlainValidator(_within)]
Moment = Annotated[float | str, PlainValidator(_moment)]
Moments = Annotated[Annotated[Moment, PlainTag] | Annotated[tuple[Time, ...], ListTag], Either]
