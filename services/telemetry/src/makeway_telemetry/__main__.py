"""`python -m makeway_telemetry sampler` or `... collector`; `... mended` is an operator's word to the former."""

from __future__ import annotations

import importlib
import sys
from typing import Final

PARTS: Final = ("sampler", "collector")
MENDED: Final = "mended"
EXIT_USAGE: Final = 64


def main(arguments: list[str]) -> int:
    """Runs one part until it is told to stop. Returns the exit code."""
    if arguments[:1] == [MENDED]:
        words = importlib.import_module("makeway_telemetry.sampler.mended")
        answer: int = words.main(arguments[1:])
        return answer
    if len(arguments) != 1 or arguments[0] not in PARTS:
        sys.stderr.write(f"usage: python -m makeway_telemetry {'|'.join((*PARTS, MENDED))}\n")
        return EXIT_USAGE
    # One part alone: a node has no database driver, and no use for the other part's memory.
    app = importlib.import_module(f"makeway_telemetry.{arguments[0]}.app")
    code: int = app.main()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
