"""The forms that values of scenario files may have. Where there are several, the value's kind says which is meant, so
that a mistake is told in the words of that one.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from makeway_schemas.amounts import GPUS_MOST, percent_of, percent_text
from makeway_schemas.durations import Seconds, parse_unbounded
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    PlainValidator,
    StringConstraints,
    Tag,
)

from makeway_simulator.limits import SECONDS_MOST
from makeway_simulator.scenario import notation

TAGS: Final = frozenset({"(plain)", "(list)", "(fields)"})
"""What stands for the kind of a value in the place of a problem."""

PROFILE: Final = re.compile(r"\d+(?:c\.\d+)?g\.(\d+)gb(?:\+\w+)?", re.ASCII)
SLICES_MOST: Final = 64
_GPU_RANGE: Final = re.compile(r"[0-9]+\.\.[0-9]+")

PlainTag = Tag("(plain)")
ListTag = Tag("(list)")
FieldsTag = Tag("(fields)")


def _kind(value: Any) -> str:
    if isinstance(value, Mapping | BaseModel):
        return "(fields)"
    return "(list)" if isinstance(value, list | tuple) else "(plain)"


def either(wanted: str) -> Discriminator:
    """Marks a union of which the value's kind chooses one; `wanted` says which kinds there are."""
    return Discriminator(_kind, custom_error_type="kind", custom_error_message=f"must be {wanted}")


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("yes", "on", "no", "off"):
        return value in ("yes", "on")
    raise ValueError("must be yes or no")


def _moment(value: Any) -> float | str:
    if value == "never":
        return "never"
    return _time(value, "never")


def _within(value: Any) -> float | str:
    if value == "cycle":
        return "cycle"
    return _time(value, "cycle")


def _time(value: Any, word: str) -> float:
    """A time where the word may stand too."""
    try:
        found = parse_unbounded(value)
    except ValueError as error:
        raise ValueError(f"{error}, or {word}") from error
    if found < 0:
        raise ValueError(f"must be 0 or more, or {word}")
    if found > SECONDS_MOST:
        raise ValueError(f"must be at most {SECONDS_MOST:g} seconds, or {word}")
    return found


def _listed(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise ValueError("must be a list")
    return value


def _pair(value: Any) -> Any:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError("must be two times, such as [10, 50]")
    return value


def _in_order(value: tuple[float, float]) -> tuple[float, float]:
    if value[0] > value[1]:
        raise ValueError("must be two times of which the first is not the later one")
    return value


def _named(value: str) -> str:
    notation.names(value)
    return value


def _profile(value: str) -> str:
    if PROFILE.fullmatch(value) is None:
        raise ValueError(f"{value!r} is no MIG profile such as 1g.5gb")
    return value


def _count(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise ValueError("must be a number")
    return value


def _seconds(value: Any) -> Any:
    if not isinstance(value, str):
        return _count(value)
    return parse_unbounded(value)


def _each(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The check for a value, or for each of a list."""

    def checked(value: Any) -> Any:
        return [check(each) for each in value] if isinstance(value, list | tuple) else check(value)

    return checked


def _gpus(value: Any) -> Any:
    """A number, or a range of two as a submit has it."""
    if not isinstance(value, str):
        return _count(value)
    if _GPU_RANGE.fullmatch(value) is None:
        raise ValueError("must be a number, or a range such as 2..4")
    return value


def _members(value: Any) -> Any:
    return value if notation.gang(value) is not None else _count(value)


def _amount(value: Any) -> float | str:
    percent = percent_of(value)
    if percent is not None:
        return percent_text(percent)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= GPUS_MOST:
        raise ValueError(f"must be 0 to {GPUS_MOST} GPUs, or per cent of the pool such as 25%")
    return float(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number")
    return float(value)


Time = Annotated[Seconds, Field(ge=0, le=SECONDS_MOST)]
Period = Annotated[Seconds, Field(gt=0, le=SECONDS_MOST)]
Number = Annotated[float, BeforeValidator(_number)]
GpuAmount = Annotated[float | str, PlainValidator(_amount)]
"""GPUs of a team's rights, parts of one too, or per cent of the pool."""
Switch = Annotated[bool, BeforeValidator(_switch)]
Word = Annotated[str, StringConstraints(min_length=1)]
Words = Annotated[Annotated[str, PlainTag] | Annotated[tuple[str, ...], ListTag], either("a text or a list of texts")]
Name = Annotated[str, AfterValidator(_named)]
Named = Annotated[Word, AfterValidator(_named)]
JobNames = Annotated[
    Annotated[Name, PlainTag] | Annotated[tuple[Name, ...], ListTag], either("a name or a list of names")
]
"""Names of jobs: one, several with commas or as a list, a range such as job-1..job-4."""
Within = Annotated[float | str, PlainValidator(_within)]
Moment = Annotated[float | str, PlainValidator(_moment)]
Moments = Annotated[
    Annotated[Moment, PlainTag] | Annotated[tuple[Time, ...], ListTag], either("a time, never, or a list of times")
]
Listed = BeforeValidator(_listed)
Span = Annotated[tuple[Time, Time], BeforeValidator(_pair), AfterValidator(_in_order)]
Slices = dict[Annotated[str, AfterValidator(_profile)], Annotated[int, Field(ge=0, le=SLICES_MOST)]]
AnyNumber = Annotated[Any, BeforeValidator(_count)]
"""Any number, and nothing else: what a submit refuses is the scenario's point, a slip is not."""
AnyNumbers = Annotated[Any, BeforeValidator(_each(_count))]
AnySeconds = Annotated[Any, BeforeValidator(_seconds)]
"""Any number of seconds, or a duration such as 90s."""
AnySecondsEach = Annotated[Any, BeforeValidator(_each(_seconds))]
GpuCounts = Annotated[Any, BeforeValidator(_each(_gpus))]
"""The same, or `min..max`."""
MemberCount = Annotated[Any, BeforeValidator(_members)]
