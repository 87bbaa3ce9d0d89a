"""Values: frozen, cheap, and to everybody else the dataclasses that are written down."""

from collections.abc import Mapping
from dataclasses import asdict, field, fields, is_dataclass, replace
from typing import Any

import pytest
from makeway_policy.copies import changed, value


@value(frozen=True, kw_only=True, slots=True)
class Part:
    """A part of something."""

    size: int = 1
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def twice(self) -> int:
        return 2 * self.size

    def __lt__(self, other: "Part") -> bool:
        return self.size < other.size


@value(frozen=True, kw_only=True, slots=True)
class Whole:
    parts: tuple[Part, ...]


def test_a_value_cannot_be_changed() -> None:
    part: Any = Part()
    with pytest.raises(AttributeError):
        part.size = 2
    with pytest.raises(AttributeError):
        part.unheard_of = 2


def test_a_copy_has_the_given_fields_and_all_others_as_they_were() -> None:
    names = {"a": "b"}
    part = Part(size=3, names=names)
    copy = changed(part, size=4)
    assert (copy.size, copy.names is names, part.size) == (4, True, 3)


def test_a_copy_with_an_unknown_field_is_refused() -> None:
    part: Any = Part()
    with pytest.raises(TypeError, match="unheard_of"):
        changed(part, unheard_of=1)


def test_values_that_are_the_same_field_by_field_are_equal_and_count_as_one() -> None:
    assert Whole(parts=(Part(size=2),)) == Whole(parts=(Part(size=2),)) != Whole(parts=(Part(size=3),))
    assert {Whole(parts=()), Whole(parts=())} == {Whole(parts=())}


def test_defaults_are_made_anew_for_each_value() -> None:
    assert Part().names is not Part().names


def test_methods_properties_and_words_of_the_class_are_kept() -> None:
    assert (Part(size=3).twice, Part(size=1) < Part(size=2), Part.__doc__) == (6, True, "A part of something.")
    assert (Part.__module__, Part.__qualname__, repr(Part(size=2))) == (__name__, "Part", "Part(size=2, names={})")


def test_the_functions_for_dataclasses_know_them() -> None:
    part = Part(size=3, names={"a": "b"})
    assert is_dataclass(part)
    assert [each.name for each in fields(part)] == ["size", "names"]
    assert replace(part, size=5) == Part(size=5, names={"a": "b"})
    assert asdict(Whole(parts=(part,))) == {"parts": ({"size": 3, "names": {"a": "b"}},)}


def test_a_field_that_would_not_be_compared_is_refused() -> None:
    class Odd:
        note: str = field(default="", compare=False)

    with pytest.raises(TypeError, match="note"):
        value(frozen=True, kw_only=True, slots=True)(Odd)
