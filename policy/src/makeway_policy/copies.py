"""Frozen values that are cheap to make, and copies of them with some fields changed.

Every decision makes dozens of them. A frozen dataclass sets each field of a new value through a call, and
`dataclasses.replace` does the same again; a `msgspec.Struct` is made in C, in a fifth of the time, and copied in a
ninth. What is written down, and what the type checker sees, are dataclasses all the same: it checks the names and types
of the fields of a copy too. `dataclasses.fields`, `replace` and `asdict` know them.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from types import FunctionType
from typing import TYPE_CHECKING, Any

import msgspec

__all__ = ["changed", "value"]

_METHODS = (FunctionType, property, classmethod, staticmethod)

if TYPE_CHECKING:
    from dataclasses import dataclass as value
    from dataclasses import replace as changed
else:

    def value(*, frozen: bool, kw_only: bool, slots: bool) -> Callable[[type[Any]], type[Any]]:
        """A struct with the fields and the methods of the class; structs have slots in any case.

        No circle leads through values, which are made of older ones: the garbage collector leaves them out.
        """

        def as_struct(kind: type[Any]) -> type[Any]:
            methods = {name: each for name, each in vars(kind).items() if isinstance(each, _METHODS)}
            methods.pop("__annotate_func__", None)
            described = dataclass(frozen=frozen, kw_only=kw_only)(kind)
            about = {"__doc__": kind.__doc__, "__dataclass_fields__": described.__dataclass_fields__}
            return msgspec.defstruct(
                kind.__name__, [_as_in_struct(field) for field in fields(described)], module=kind.__module__,
                namespace=methods | about, frozen=frozen, kw_only=kw_only, gc=False, cache_hash=frozen,
            )  # fmt: skip

        return as_struct

    changed = msgspec.structs.replace


def _as_in_struct(field: "Field[Any]") -> tuple[str, Any] | tuple[str, Any, Any]:
    if not field.compare:
        raise TypeError(f"field {field.name}: the fields of a struct are all compared")
    if field.default is not MISSING:
        return (field.name, field.type, field.default)
    if field.default_factory is not MISSING:
        return (field.name, field.type, msgspec.field(default_factory=field.default_factory))
    return (field.name, field.type)
