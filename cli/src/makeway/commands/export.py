"""``export``: the history of all jobs as a file that ``replay --format events`` reads."""

import gzip
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, TextIO

import typer
from makeway_policy.quantities import quantity
from makeway_schemas.api import EventView

from makeway.commands.options import State, connect
from makeway.errors import FileUnwritable
from makeway.output import say, write_out

app = typer.Typer(rich_markup_mode=None)

_AT_ONCE: Final = 500


@app.command()
def export(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Where to; gzip where it ends in .gz. Default: stdout.")
    ] = None,
    after: Annotated[int, typer.Option("--after", min=0, help="Only events after this sequence number.")] = 0,
    state_dir: State = None,
) -> None:
    """Write the events of all jobs that your token sees, one JSON object a line (docs/events.md)."""
    path = None if file is None or str(file) == "-" else file
    with connect(state_dir) as client:
        events = client.history(after=after)
        count = _print(events) if path is None else _write_file(path, events)
    say(quantity(count, "event") + (f" in {path}" if path else ""))


def _print(events: Iterable[EventView]) -> int:
    count = 0
    for some in _batched(events):
        write_out("".join(f"{event.model_dump_json()}\n" for event in some).encode())
        count += len(some)
    return count


def _batched(events: Iterable[EventView]) -> Iterator[list[EventView]]:
    """The events, some hundreds at a time."""
    left = iter(events)
    while some := list(islice(left, _AT_ONCE)):
        yield some


def _write_file(path: Path, events: Iterable[EventView]) -> int:
    """Into a file beside it, renamed when whole: half a history looks like a history.

    A device or a pipe is written to as it is, and a link goes on leading where it did.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        try:
            with _opened(path, packed=False) as out:
                return _write(out, events)
        except OSError as error:
            raise FileUnwritable(path, error) from error
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            with _opened(partial, packed=path.suffix == ".gz") as out:
                count = _write(out, events)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise FileUnwritable(path, error) from error
    return count


def _opened(path: Path, *, packed: bool) -> TextIO:
    return gzip.open(path, "wt", encoding="utf-8") if packed else path.open("w", encoding="utf-8")


def _write(out: TextIO, events: Iterable[EventView]) -> int:
    written = 0
    for event in events:
        out.write(event.model_dump_json() + "\n")
        written += 1
    return written
