"""What the command prints: results on stdout, everything else on stderr.

A name may hold anything printable in some terminal, so all that comes from elsewhere passes ``safe`` first. A reader
that closes its end early (``| head -1``) silences stdout and changes nothing else, not even the exit code.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from makeway_schemas.durations import format_duration
from pydantic import BaseModel
from rich.cells import cell_len

from makeway.errors import FileUnwritable

_JOINERS: Final = frozenset("\u200d\ufe0f")
"""Parts of emoji; invisible alone, and harmless."""


class OutputFormat(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


def safe(text: str) -> str:
    """The text with everything that could move a cursor or hide something written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _JOINERS else c.encode("unicode_escape").decode() for c in text)


def print_out(text: str) -> None:
    """One line of result."""
    write_out(f"{text}\n".encode(errors="backslashreplace"))


def write_out(data: bytes) -> None:
    """Bytes of result, as they are. After the reader went away, or without a stdout, this does nothing.

    Raises FileUnwritable where stdout takes no more, as on a full disk.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        # What is still buffered would fail again at exit: let the rest of it, and all that follows, go nowhere.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        if not isinstance(error, BrokenPipeError):
            raise FileUnwritable(Path("stdout"), error) from error


def say(text: str) -> None:
    """One line of progress or explanation."""
    if sys.stderr is None:
        return
    try:
        print(safe_lines(text), file=sys.stderr, flush=True)  # noqa: T201 - this is where the command speaks
    except (OSError, UnicodeEncodeError):
        return


def safe_lines(text: str) -> str:
    """``safe`` line by line."""
    return "\n".join(safe(line) for line in text.split("\n"))


def print_json(value: BaseModel | Iterable[BaseModel] | dict[str, Any]) -> None:
    """One JSON document: the model as the API sends it, or a list of them."""
    if isinstance(value, BaseModel):
        print_out(value.model_dump_json(by_alias=True, indent=2))
        return
    plain = value if isinstance(value, dict) else [item.model_dump(mode="json", by_alias=True) for item in value]
    print_out(json.dumps(plain, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns of text, as wide as they need to be; wide characters count double, as terminals show them."""
    table = [list(columns), *([safe(cell) for cell in row] for row in rows)]
    widths = [max(cell_len(row[at]) for row in table) for at in range(len(columns))]
    for row in table:
        cells = [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        print_out("  ".join(cells).rstrip())


def print_fields(pairs: Iterable[tuple[str, str]]) -> None:
    """``name  value`` lines, names padded; pairs without a value are left out."""
    shown = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        print_out(f"{name:<{width}}  {safe(value)}")


def age(since: datetime | None, now: datetime | None = None) -> str:
    """How long ago, in at most two units; never negative, whatever the two clocks think."""
    if since is None:
        return "-"
    return in_few_units(((now or datetime.now(UTC)) - since).total_seconds())


def in_few_units(seconds: float) -> str:
    """A length of time that is still growing, in at most two units; never negative."""
    seconds = max(0, round(seconds))
    size = 86400 if seconds >= 7 * 86400 else 3600 if seconds >= 2 * 86400 else 60 if seconds >= 3600 else 1
    return format_duration(seconds // size * size)


_MOMENT: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")


def in_local_time(text: str) -> str:
    """A sentence of the server, which gives moments in UTC, with each of them in the reader's zone."""
    return _MOMENT.sub(lambda found: local_time(datetime.fromisoformat(found[0])), text)


def local_time(at: datetime | None) -> str:
    """A point in time in the reader's zone."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z") if at is not None else ""
