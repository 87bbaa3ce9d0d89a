"""Copies of frozen values with some fields changed, where `dataclasses.replace` would be most of the cost."""

from collections import deque
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from itertools import repeat
from operator import attrgetter, call
from typing import TYPE_CHECKING, Any

__all__ = ["changed"]

if TYPE_CHECKING:
    # For the checker it is the standard function: it knows the fields.
    from dataclasses import replace as changed
else:

    def changed(value: Any, /, **fields_changed: Any) -> Any:
        """A copy of a slotted dataclass without `__post_init__`, with these fields changed."""
        read, setters = _access(type(value))
        copy = object.__new__(type(value))
        deque(map(call, setters, repeat(copy), read(value)), maxlen=0)
        for name, each in fields_changed.items():
            object.__setattr__(copy, name, each)
        return copy


@cache
def _access(kind: type[Any]) -> tuple[Callable[[Any], tuple[Any, ...]], tuple[Callable[[Any, Any], None], ...]]:
    """How all fields of such values are read at once, and how each is set on a new one."""
    names = [field.name for field in fields(kind)]
    return attrgetter(*names), tuple(getattr(kind, name).__set__ for name in names)
