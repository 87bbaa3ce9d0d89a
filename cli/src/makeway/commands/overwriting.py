"""Files that a command would write over what it reads: refused before anything is read or run."""

from collections.abc import Iterable
from pathlib import Path

import typer


def refuse_overwriting(context: typer.Context, option: str, target: Path | None, inputs: Iterable[Path | str]) -> None:
    """Raises BadParameter where `target`, the value of `option`, is one of the files that are read.

    Links to a file are that file. What is no regular file, such as a pipe, holds nothing that could be lost.
    """
    for each in inputs if target is not None else ():
        if target is not None and _is_same_file(target, Path(each)):
            raise typer.BadParameter(f"would overwrite {each}, which is read", ctx=context, param_hint=option)


def _is_same_file(target: Path, read: Path) -> bool:
    try:
        return target.is_file() and target.samefile(read)
    except (OSError, ValueError):  # it cannot be there: whoever reads or writes it says so
        return False
