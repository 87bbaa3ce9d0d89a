"""What can go wrong with a replay: one small tree, data as fields, the sentence made from them."""

import re
from collections.abc import Mapping
from typing import Final

_FIRST: Final = re.compile(r"[.\[]")


class SimulatorError(Exception):
    """The base of everything that this package raises on purpose."""


class TraceError(SimulatorError):
    """A file that is no trace of the named format: file, line and column count from 1; 0 where there is none."""

    def __init__(self, path: str, line: int, column: int, problem: str) -> None:
        self.path = path
        self.line = line
        self.column = column
        self.problem = problem
        place = f"{path}:{line}:{column}" if line else path
        super().__init__(f"{place}: {problem}")


class UnknownChoice(SimulatorError):
    """A policy, workload or cluster that does not exist."""

    def __init__(self, what: str, given: str, known: tuple[str, ...]) -> None:
        self.what = what
        self.given = given
        self.known = known
        super().__init__(f"no {what} {given!r}; there is {', '.join(known) if known else 'none'}")


class BadValue(SimulatorError):
    """A value that cannot be meant, with what it should look like."""

    def __init__(self, what: str, given: str, wanted: str) -> None:
        self.what = what
        self.given = given
        self.wanted = wanted
        super().__init__(f"{what} {given!r} is not {wanted}")


class ScenarioError(SimulatorError):
    """A scenario that means nothing: the field, and what is wrong with it."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")

    def within(self, places: Mapping[str, str]) -> "ScenarioError":
        """The same with the field's whole path, where `places` has that of its first part."""
        first, rest = _FIRST.split(self.field, maxsplit=1)[0], _FIRST.search(self.field)
        tail = self.field[rest.start() :] if rest else ""
        return ScenarioError(f"{places.get(first, first)}{tail}", self.problem)
