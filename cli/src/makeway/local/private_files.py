"""Files and folders that only their owner reads, written whole or not at all."""

import os
import stat
import tempfile
from pathlib import Path

__all__ = ["RUNTIME_FOLDER_PREFIX", "SOCKET_PATH_LIMIT_BYTES", "make_runtime_folder", "private_folder", "write_private"]

SOCKET_PATH_LIMIT_BYTES = 107
"""The kernel's limit for the path of a Unix socket (sun_path less its final zero)."""

RUNTIME_FOLDER_PREFIX = "makeway-"
"""How the name of a runtime folder begins; the rest is random."""

_RUNTIME_FOLDER_LIMIT_BYTES = 48
"""What a runtime folder may use of it: node and run ids must fit below."""


def private_folder(path: Path) -> Path:
    """Make the folder with its parents; itself readable by its owner alone. Returns the path."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if stat.S_IMODE(path.stat().st_mode) != 0o700:
        path.chmod(0o700)
    return path


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically and durably; mode 0600 from its first byte on."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def make_runtime_folder() -> Path:
    """A fresh private folder with a path short enough for sockets: below XDG_RUNTIME_DIR, TMPDIR or /tmp."""
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("TMPDIR"), "/tmp"):  # noqa: S108 - mkdtemp is private
        if not parent or len(os.fsencode(parent)) + len("/makeway-12345678") > _RUNTIME_FOLDER_LIMIT_BYTES:
            continue
        try:
            return Path(tempfile.mkdtemp(prefix=RUNTIME_FOLDER_PREFIX, dir=parent))
        except OSError:
            continue
    raise OSError("no folder for sockets: neither XDG_RUNTIME_DIR nor TMPDIR nor /tmp can be written")
