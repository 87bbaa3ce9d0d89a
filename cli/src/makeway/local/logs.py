"""Logs stay small: each process of the cluster appends to one file, which is cut when it grows too large."""

import shutil
from pathlib import Path

__all__ = ["LOG_LIMIT_BYTES", "cut_large_logs"]

LOG_LIMIT_BYTES = 16 * 1024 * 1024


def cut_large_logs(folder: Path, limit_bytes: int = LOG_LIMIT_BYTES) -> list[Path]:
    """Copy each log over the limit to NAME.log.1 and empty it; returns those cut.

    The writers keep their descriptors, which append, so they go on at the new end. A line written between the copy and
    the cut is lost: accepted for logs, since no writer has to reopen anything.
    """
    cut = []
    for path in sorted(folder.glob("*.log")):
        if path.stat().st_size > limit_bytes:
            shutil.copyfile(path, path.with_name(f"{path.name}.1"))
            with path.open("r+b") as log:
                log.truncate(0)
            cut.append(path)
    return cut
