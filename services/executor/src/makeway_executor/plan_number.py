"""The number of the newest plan this node applied: older ones are refused, also after a restart."""

from __future__ import annotations

import json
from pathlib import Path


class PlanNumberFile:
    """A small file, replaced whole. Not fsynced: after a power cut a stale plan can stop runs, which ended anyway."""

    def __init__(self, path: Path) -> None:
        """Reads nothing yet."""
        self._path = path

    def read(self) -> tuple[int, int]:
        """(epoch, number); (0, 0) where nothing was applied yet."""
        try:
            epoch, number = json.loads(self._path.read_bytes())
        except (FileNotFoundError, ValueError):
            return (0, 0)
        return (int(epoch), int(number))

    def write(self, number: tuple[int, int]) -> None:
        """Remembers a plan's (epoch, number). Raises OSError."""
        temporary = self._path.with_name(f"{self._path.name}.new")
        temporary.write_bytes(json.dumps(number).encode())
        temporary.replace(self._path)
