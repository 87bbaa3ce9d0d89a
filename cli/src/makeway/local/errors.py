"""What can go wrong with the local cluster: one base class, sentences that name the mend."""

from pathlib import Path

__all__ = ["LibrariesUnavailable", "LocalClusterError", "ServerFailed", "ServerUnavailable"]


class LocalClusterError(Exception):
    """Base of all errors of the local cluster; its text is meant for the user."""


class ServerUnavailable(LocalClusterError):
    """A server cannot be had on this host at all (no binaries, no user to run it as)."""


class LibrariesUnavailable(LocalClusterError):
    """Kafka's jars could not be fetched, or do not match the lock."""


class ServerFailed(LocalClusterError):
    """A server did not start or did not stop.

    `log_path` is where it said why; the last lines are in the text.
    """

    def __init__(self, sentence: str, *, log_path: Path) -> None:
        super().__init__(f"{sentence}\n{_last_lines(log_path)}\n(log: {log_path})")
        self.log_path = log_path


def _last_lines(path: Path, count: int = 15) -> str:
    """The end of a log, empty where there is none."""
    try:
        with path.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - 16_384))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-count:])
    except OSError:
        return ""
