"""An operator's word that a card was mended, for where no sampler could see it: `python -m makeway_telemetry mended`.

A card cannot be reset while anybody has it open, so the sampler is stopped then, and what it finds afterwards looks as
the failed card did. The word is a file in the node's state folder. The next look at the list of devices takes it up,
once, and before the faults that were heard since: it holds for what the card did before, never for what it does next.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

from makeway_telemetry.sampler.health import VerdictFile, boot_id

EXIT_REFUSED: Final = 1


class MendedCards:
    """The words that were not taken up yet."""

    def __init__(self, state_dir: Path) -> None:
        """Lives in `<state_dir>/telemetry/mended`: an empty file a card, named by its UUID."""
        self._folder = state_dir / "telemetry" / "mended"

    def say(self, uuids: Collection[str]) -> None:
        """Leaves word of these cards. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for uuid in uuids:
            (self._folder / uuid).touch()

    def take(self) -> frozenset[str]:
        """Returns the cards that word was left of and forgets it: what is lost is said again. Raises OSError."""
        try:
            found = list(self._folder.iterdir())
        except FileNotFoundError:
            return frozenset()
        for file in found:
            file.unlink(missing_ok=True)
        return frozenset(file.name for file in found)


def main(arguments: list[str]) -> int:
    """Leaves word that cards were mended. Returns the exit code: 1 when one of them is not known to have failed."""
    parser = argparse.ArgumentParser(
        prog="python -m makeway_telemetry mended",
        description="Say, on its node, that a failed card was reset or replaced: it is used again once it is empty.",
    )
    parser.add_argument("--state-dir", type=Path, required=True, help="the node's MAKEWAY_STATE_DIR")
    parser.add_argument("gpus", nargs="+", metavar="GPU", help="the card's UUID; of a MIG instance its card's")
    told = parser.parse_args(arguments)
    verdicts = VerdictFile(told.state_dir).load(boot_id())
    failed = sorted(uuid for uuid, verdict in verdicts.items() if not verdict.healthy)
    unknown = [uuid for uuid in told.gpus if uuid not in failed]
    if unknown:
        sys.stderr.write(
            f"not known to have failed here: {', '.join(unknown)}; failed: {', '.join(failed) or 'none'}\n"
        )
        return EXIT_REFUSED
    MendedCards(told.state_dir).say(told.gpus)
    sys.stderr.write("noted; the sampler takes it up within a minute of running, and a GPU is used once it is empty\n")
    return 0
