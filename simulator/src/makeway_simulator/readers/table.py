"""Reading tables of text: plain or gzip, cells typed, every problem told with its file, line and column."""

import codecs
import gzip
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Final, Never, TypeVar

from makeway_policy.quantities import quantity, verb
from makeway_schemas.whole_numbers import read_whole

from makeway_simulator.errors import TraceError
from makeway_simulator.limits import SECONDS_MOST

_GZIP_MAGIC: Final = b"\x1f\x8b"
_LINE_BYTES_MOST: Final = 64 * 1024 * 1024
"""Of a line: beyond it a file is something else, such as gzip that swells without end."""
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
"""Python's own `int` and `float` take `1_0` and the digits of every script as well."""
_UNFINISHED: Final = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_QUOTED: Final = re.compile(r'"([^"]*(?:""[^"]*)*)"(?=,|$)')
_SHOWN_MOST: Final = 60
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


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of each line, without its end. Raises TraceError where bytes are not text or gzip is broken."""
    number = 0
    with _opened(path) as file:
        try:
            while raw := file.readline(_LINE_BYTES_MOST + 1):
                for part in raw.removesuffix(b"\n").removesuffix(b"\r").split(b"\r"):
                    number += 1
                    yield number, _decoded(path, number, part)
        except (EOFError, OSError, zlib.error) as error:
            raise TraceError(str(path), number + 1, 1, f"cannot be read: {error}") from error


@contextmanager
def _opened(path: Path) -> Iterator[BufferedIOBase]:
    """The file's bytes, through gzip where it is that. Raises TraceError where it cannot be opened."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise TraceError(str(path), 0, 0, f"cannot be read: {error.strerror or error}") from error
    with file:
        if not file.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC):
            yield file
            return
        with gzip.open(file) as unpacked:
            yield unpacked


def _decoded(path: Path, number: int, raw: bytes) -> str:
    """A line as text, the mark (BOM) that some programs begin a file with taken off."""
    if len(raw) > _LINE_BYTES_MOST:
        raise TraceError(str(path), number, 1, f"is longer than {_LINE_BYTES_MOST} bytes")
    raw = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        column = len(raw[: error.start].decode()) + 1
        raise TraceError(str(path), number, column, "is no UTF-8 text") from error


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
            self._refuse(name, f"{shown(found)} is there before")
        known.add(found)
        return found

    def whole(self, name: str, least: int = 0, most: int = 2**53) -> int:
        """The cell as a whole number within bounds."""
        text = self.text_of(name)
        if not _WHOLE.fullmatch(text):
            return self._refuse(name, f"{shown(text)} is not a whole number")
        value = read_whole(text)
        if not least <= value <= most:
            return self._refuse(name, f"{clipped(text)} is not within {least} to {most}")
        return value

    def number(self, name: str, least: float = 0.0, most: float = SECONDS_MOST) -> float:
        """The cell as a finite number within bounds."""
        text = self.text_of(name)
        if not _NUMBER.fullmatch(text) and not _UNFINISHED.fullmatch(text):
            return self._refuse(name, f"{shown(text)} is not a number")
        value = float(text)
        if math.isnan(value) or value < least:
            return self._refuse(name, f"{clipped(text)} is not a number of at least {least:g}")
        if value > most:
            return self._refuse(name, f"{clipped(text)} is not a number of at most {most:g}")
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
        try:
            cells = _cells(str(path), number, text, delimiter)
            if len(cells) != len(header):
                column = cells[min(len(cells), len(header)) - 1][1]
                belong = f"where {len(header)} {verb(len(header), 'belongs', 'belong')}"
                raise TraceError(str(path), number, column, f"{quantity(len(cells), 'cell')} {belong}")
        except TraceError as error:
            skipping.note(error)
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
    header = [cell.strip() for cell, _ in _cells(str(path), number, text, delimiter)]
    missing = [name for name in columns if name not in header]
    if missing:
        raise TraceError(str(path), number, 1, f"the header lacks {', '.join(missing)}")
    if len(set(header)) != len(header):
        raise TraceError(str(path), number, 1, "the header names a column twice")
    return header


def refuse_control(path: str, number: int, text: str) -> None:
    """Raises TraceError for a character that no text has, such as NUL: it would end up in names."""
    found = control_in(text)
    if found is not None:
        raise TraceError(path, number, text.index(found) + 1, f"holds the control character U+{ord(found):04X}")


def control_in(text: str) -> str | None:
    """The first character that is none to write with: a control character, or half of one."""
    found = _CONTROL.search(text)
    return None if found is None else found[0]


def seconds_of(at: datetime) -> float:
    """A date and time as seconds since 1970, UTC where it names no zone. Raises ValueError beyond the times we take."""
    try:
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except OverflowError:
        seconds = math.inf
    if abs(seconds) > SECONDS_MOST:
        raise ValueError(f"is no time: it is beyond {SECONDS_MOST:g} seconds from 1970")
    return seconds


def shown(text: str) -> str:
    """A text in quotes, no longer than is good to read."""
    return repr(clipped(text))


def clipped(text: str) -> str:
    """A text, no longer than is good to read."""
    return text if len(text) <= _SHOWN_MOST else f"{text[:_SHOWN_MOST]}..."


def _cells(path: str, number: int, text: str, delimiter: str) -> list[tuple[str, int]]:
    """Cells with the columns (from 1) that they begin in; in quotes only where commas divide them. Raises TraceError.

    Python's csv module does not say where a cell begins, and takes a quote that is not closed.
    """
    refuse_control(path, number, text)
    found = []
    at = 0
    while True:
        if delimiter == "," and text[at : at + 1] == '"':
            quoted = _QUOTED.match(text, at)
            if quoted is None:
                raise TraceError(path, number, at + 1, "a quote has no end, or something stands behind it")
            cell, end = quoted[1].replace('""', '"'), quoted.end()
        else:
            end = text.find(delimiter, at)
            end = end if end >= 0 else len(text)
            cell = text[at:end]
        found.append((cell.strip(), at + 1))
        if end == len(text):
            return found
        at = end + len(delimiter)
