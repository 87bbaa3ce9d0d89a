"""Reading tables of text: plain or gzip, cells typed, every problem told with its file, line and column."""

import csv
import gzip
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Never, TextIO, TypeVar

from makeway_policy.quantities import quantity, verb

from makeway_simulator.errors import TraceError
from makeway_simulator.limits import SECONDS_MOST

_GZIP_MAGIC = b"\x1f\x8b"
_TEXT: Final = "utf-8-sig"
"""With or without the mark (BOM) that some programs begin a file with."""
_NO_NUMBER: Final = re.compile(r"[:,\[]\s*(NaN|-?Infinity)\b")

Value = TypeVar("Value")


@dataclass(kw_only=True, slots=True)
class Skipping:
    """What to do with broken lines: refuse the first (default), or skip and count them."""

    allowed: bool = False
    skipped: int = 0
    first: list[str] = field(default_factory=list)

    def note(self, error: TraceError) -> None:
        """Count one broken line, or raise it where that is not wanted."""
        if not self.allowed:
            raise error
        self.skipped += 1
        if len(self.first) < 5:
            self.first.append(str(error))


def open_text(path: Path) -> TextIO:
    """Open a file as UTF-8 text, through gzip where it is that. Raises TraceError where it cannot be opened."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP_MAGIC
        return gzip.open(path, "rt", encoding=_TEXT, newline="") if packed else path.open(encoding=_TEXT, newline="")
    except OSError as error:
        raise TraceError(str(path), 0, 0, f"cannot be read: {error.strerror or error}") from error


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of each line, without its end. Raises TraceError where bytes are not text or gzip is broken."""
    number = 0
    with open_text(path) as file:
        try:
            for number, line in enumerate(file, start=1):
                yield number, line.rstrip("\r\n")
        except (UnicodeDecodeError, EOFError, OSError) as error:
            raise TraceError(str(path), number + 1, 1, f"cannot be read: {error}") from error


def json_of(path: str, number: int, text: str) -> Any:
    """One line as JSON. Raises TraceError, for NaN and Infinity too: Python takes them, JSON has none."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise TraceError(path, number, error.colno, f"is no JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        found = _NO_NUMBER.search(text)
        problem = f"{found[1]} is no number" if found else "is no JSON that can be read"
        raise TraceError(path, number, found.start(1) + 1 if found else 1, problem) from error


def _no_constant(name: str) -> Never:
    raise ValueError(name)


class Row:
    """One line of a table with named columns. Cells are read by name; problems know their column."""

    def __init__(self, path: str, line: int, text: str, cells: dict[str, tuple[str, int]]) -> None:
        self.path = path
        self.line = line
        self.text = text
        self._cells = cells

    def has(self, name: str) -> bool:
        """Whether the column exists and is not empty on this line."""
        return bool(self._cells.get(name, ("", 0))[0])

    def text_of(self, name: str) -> str:
        """The cell as it stands; empty where the table has no such column."""
        return self._cells.get(name, ("", 0))[0]

    def name_of(self, name: str) -> str:
        """The cell, which must not be empty."""
        return self.text_of(name) or self._refuse(name, "is empty")

    def new_name_of(self, name: str, known: set[str]) -> str:
        """The cell, which must not be empty nor come again; `known` are those that came before."""
        found = self.name_of(name)
        if found in known:
            self._refuse(name, f"{found!r} is there before")
        known.add(found)
        return found

    def whole(self, name: str, least: int = 0, most: int = 2**53) -> int:
        """The cell as a whole number within bounds."""
        text = self.text_of(name)
        try:
            value = int(text)
        except ValueError:
            return self._refuse(name, f"{text!r} is not a whole number")
        if not least <= value <= most:
            return self._refuse(name, f"{value} is not within {least} to {most}")
        return value

    def number(self, name: str, least: float = 0.0, most: float = SECONDS_MOST) -> float:
        """The cell as a finite number within bounds."""
        text = self.text_of(name)
        try:
            value = float(text)
        except ValueError:
            return self._refuse(name, f"{text!r} is not a number")
        if not math.isfinite(value) or value < least:
            return self._refuse(name, f"{text} is not a number of at least {least:g}")
        if value > most:
            return self._refuse(name, f"{text} is not a number of at most {most:g}")
        return value

    def refuse(self, name: str, problem: str) -> TraceError:
        """The error that names the column and where it stands."""
        return TraceError(self.path, self.line, self._cells.get(name, ("", 1))[1], f"{name}: {problem}")

    def _refuse(self, name: str, problem: str) -> Never:
        raise self.refuse(name, problem)


def read_rows(
    path: Path, columns: Sequence[str], parse: Callable[[Row], Value], skipping: Skipping, delimiter: str = ","
) -> list[Value]:
    """Parse each line under a header that must have `columns`; broken lines go to `skipping`."""
    numbered = lines_of(path)
    header = _header(path, next(numbered, (0, "")), columns, delimiter)
    return list(_parsed(rows_under(path, numbered, header, skipping, delimiter), parse, skipping))


def rows_under(
    path: Path, numbered: Iterable[tuple[int, str]], header: Sequence[str], skipping: Skipping, delimiter: str
) -> Iterator[Row]:
    """The lines as rows with these columns; one with another count of cells is broken."""
    for number, text in numbered:
        if not text.strip():
            continue
        cells = _split(text, delimiter)
        if len(cells) != len(header):
            column = cells[min(len(cells), len(header)) - 1][1]
            skipping.note(
                TraceError(
                    str(path),
                    number,
                    column,
                    f"{quantity(len(cells), 'cell')} where {len(header)} {verb(len(header), 'belongs', 'belong')}",
                )
            )
            continue
        yield Row(str(path), number, text, dict(zip(header, cells, strict=True)))


def _parsed(rows: Iterable[Row], parse: Callable[[Row], Value], skipping: Skipping) -> Iterator[Value]:
    for row in rows:
        try:
            yield parse(row)
        except TraceError as error:
            skipping.note(error)


def _header(path: Path, first: tuple[int, str], columns: Sequence[str], delimiter: str) -> list[str]:
    number, text = first
    if not number:
        raise TraceError(str(path), 1, 1, f"is empty; its first line should name {', '.join(columns)}")
    header = [cell.strip() for cell, _ in _split(text, delimiter)]
    missing = [name for name in columns if name not in header]
    if missing:
        raise TraceError(str(path), number, 1, f"the header lacks {', '.join(missing)}")
    if len(set(header)) != len(header):
        raise TraceError(str(path), number, 1, "the header names a column twice")
    return header


def _split(text: str, delimiter: str) -> list[tuple[str, int]]:
    """Cells with the columns (from 1) that they begin in."""
    if '"' not in text:
        column = 1
        found = []
        for cell in text.split(delimiter):
            found.append((cell.strip(), column))
            column += len(cell) + len(delimiter)
        return found
    cells = next(csv.reader([text], delimiter=delimiter), [])
    starts = [1]
    quoted = False
    for at, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif character == delimiter and not quoted:
            starts.append(at + 2)
    return [(cell.strip(), starts[min(at, len(starts) - 1)]) for at, cell in enumerate(cells)]
