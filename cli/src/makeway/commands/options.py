"""The options that verbs share, and how they get their client."""

import re
from pathlib import Path
from typing import Annotated, Final

import typer
from makeway_schemas.durations import parse_duration

from makeway.client import Client, Patience
from makeway.context import find_context
from makeway.output import OutputFormat

Output = Annotated[
    OutputFormat,
    typer.Option("--output", "-o", case_sensitive=False, help="text, or json: the API's models (docs/cli.md)."),
]
State = Annotated[Path | None, typer.Option("--state", help="The cluster's state folder (or MAKEWAY_STATE).")]
Job = Annotated[str, typer.Argument(metavar="JOB", help="A name, an id, the beginning of an id, or @last.")]
Jobs = Annotated[list[str], typer.Argument(metavar="JOB...", help="Names, ids, beginnings of ids, or @last.")]

_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)
PATIENCE_HELP = "Seconds without contact before giving up, once there was contact."


def duration(given: str | float) -> float:
    """Seconds of an option: a plain number, or a text with units. Raises BadParameter with what is accepted."""
    try:
        return parse_duration(float(given) if isinstance(given, str) and _NUMBER.fullmatch(given) else given)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def file_named(given: str | Path) -> Path:
    """A file to read. Raises BadParameter where its name is empty, which would else mean the present folder."""
    if not str(given):
        raise typer.BadParameter("the name of the file is empty")
    return Path(given)


def connect(state: Path | None, *, patience_seconds: float | None = None) -> Client:
    """The client of the cluster in force. Raises NoCluster where none is known."""
    context = find_context(state)
    patience = Patience() if patience_seconds is None else Patience(later_seconds=patience_seconds)
    return Client(context.url, context.token, patience=patience)
