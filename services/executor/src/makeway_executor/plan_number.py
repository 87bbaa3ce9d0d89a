"""The number of the newest plan this node applied: older ones are refused, also after a restart."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_WIDTH: Final = 20
_RECORD_BYTES: Final = 2 * _WIDTH + 2


class PlanNumberFile:
    """One record of fixed width, written over in place.

    Replacing a file by rename makes ext4 write its data out at once, a millisecond on every plan. Nothing is fsynced:
    after a power cut a stale plan can only stop runs, which have ended anyway.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file, making it where it is missing. Raises OSError."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> tuple[int, int]:
        """(epoch, number); (0, 0) where nothing was applied yet, or the record is torn."""
        try:
            epoch, number = os.pread(self._descriptor, _RECORD_BYTES, 0).split()
            return (int(epoch), int(number))
        except ValueError:
            return (0, 0)

    def write(self, number: tuple[int, int]) -> None:
        """Remembers a plan's (epoch, number). Raises OSError."""
        record = f"{number[0]:>{_WIDTH}} {number[1]:>{_WIDTH}}\n"
        os.pwrite(self._descriptor, record.encode(), 0)

    def close(self) -> None:
        """Lets the file go."""
        os.close(self._descriptor)
