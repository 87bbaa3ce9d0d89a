"""Frozen values that are cheap to make, and copies of them with some fields changed.

A frozen dataclass sets each field of a new value through a call, and `dataclasses.replace` does the same again: of what
every decision makes by the dozen that would be most of the cost. For the type checker these are the standard ones, and
it is the checker that keeps the values frozen.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, make_dataclass
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["changed", "value"]

if TYPE_CHECKING:
    from dataclasses import dataclass as value
    from dataclasses import replace as changed
else:

    def value(*, frozen: bool, kw_only: bool, slots: bool) -> Callable[[type[Any]], type[Any]]:
        """A dataclass that is frozen for the type checker, and has a hash as if it were."""
        return dataclass(kw_only=kw_only, slots=slots, unsafe_hash=frozen)

    def changed(value: Any, /, **fields_changed: Any) -> Any:
        """A copy of a `value` without `__post_init__`, with these fields changed."""
        read, fill = _access(type(value))
        copy = object.__new__(type(value))
        fill(copy, *read(value))
        for name, each in fields_changed.items():
            setattr(copy, name, each)
        return copy


@cache
def _access(kind: type[Any]) -> tuple[Callable[[Any], tuple[Any, ...]], Callable[..., None]]:
    """How all fields of such values are read at once, and how they are set on a new one.

    A dataclass whose fields need no names when it is made sets them by the same statements, and several times faster
    than one after the other by name; what it is told to set them on need not be its own.
    """
    names = [field.name for field in fields(kind)]
    return attrgetter(*names), vars(make_dataclass("_InOrder", names))["__init__"]
