"""What the helper says to whoever reads the job's stderr."""

import contextlib
import sys
from typing import Final

_BEGIN: Final = "makeway.job:"


def say(*words: object) -> None:
    """Writes one line. Raises nothing: a stderr that nobody reads any more, or that is closed, costs the line only."""
    with contextlib.suppress(Exception):
        sys.stderr.write(" ".join([_BEGIN, *map(str, words)]) + "\n")
