"""``session()``: one run of a training job, from resuming to declaring it done."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, SupportsFloat, SupportsIndex

from makeway.job import control, notice
from makeway.job.checkpoint import Checkpoint, CheckpointFolder, Snapshot, Superseded, take_snapshot
from makeway.job.number import real
from makeway.job.stderr import say

FOLDER_VARIABLE: Final = "MAKEWAY_CHECKPOINT_DIR"
RUN_VARIABLE: Final = "MAKEWAY_RUN"
_DEFAULT_FOLDER: Final = "checkpoints"


class SaveFailed(Exception):
    """A checkpoint that was waited for could not be kept; the reason is its cause."""


class Session:
    """The job's checkpoints and its stop notice. Made by ``session``; used from one thread."""

    def __init__(self, folder: CheckpointFolder) -> None:
        self.folder = folder
        self.run = folder.run
        self.declared_done = False
        self._changed = threading.Condition()
        self._pending: tuple[Snapshot, float | None] | None = None
        self._writing = False
        self._closing = False
        self._ended = False
        self._error: BaseException | None = None
        self._writer = threading.Thread(target=self._write_until_closed, name="makeway-checkpoint", daemon=True)
        self._writer.start()

    def stop_requested(self) -> bool:
        """Whether the notice has come."""
        return notice.stop_requested()

    def grace_left(self) -> float | None:
        """Seconds until SIGKILL; None while no stop is wanted."""
        return notice.grace_left()

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Calls back once when the notice comes, in another thread."""
        notice.on_stop(callback)

    def resume(self) -> Checkpoint | None:
        """The newest checkpoint, reported as resumed with its load time; None for a start from the beginning."""
        found = self.folder.newest()
        if found is not None:
            _warn_of(lambda: control.resumed(found.step, load_seconds=found.load_seconds))
        return found

    def save(
        self,
        step: SupportsIndex,
        state: Any,
        *,
        epoch: SupportsFloat | SupportsIndex | None = None,
        fraction: SupportsFloat | SupportsIndex | None = None,
        wait: bool = False,
    ) -> None:
        """Copies the state now and writes it in the background; it is acked once it is on disk.

        A newer save replaces one that was not begun yet. A failure is said on stderr and training goes on; with
        ``wait`` it raises SaveFailed. Raises Superseded when a newer run owns the folder, TypeError for a step, epoch
        or fraction that is no number; those of numpy and other libraries are taken.
        """
        progress = real("fraction", fraction)
        snapshot = take_snapshot(step, state, epoch)
        with self._changed:
            self._raise_if_superseded()
            self._error = None
            if self._has_writer():
                self._pending = (snapshot, progress)
                self._changed.notify_all()
            else:
                self._error = RuntimeError("the session has ended, or is another process's")
                _say_not_saved(snapshot, self._error)
        if wait:
            self.flush()

    def flush(self) -> None:
        """Waits until nothing is left to write. Raises SaveFailed with the last failure, or Superseded."""
        with self._changed:
            self._changed.wait_for(self._nothing_to_wait_for)
            self._raise_if_superseded()
            if self._error is not None:
                raise SaveFailed(f"the checkpoint was not kept: {_reason(self._error)}") from self._error

    def done(self) -> None:
        """Declares the work finished: after a stop notice too, this run's end is then the job's."""
        self._drain()
        self.declared_done = True
        control.done()

    def close(self) -> None:
        """Writes what is pending and ends the writer."""
        self._drain()
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._writer.join()

    def _drain(self) -> None:
        with self._changed:
            self._changed.wait_for(self._nothing_to_wait_for)

    def _nothing_to_wait_for(self) -> bool:
        return (self._pending is None and not self._writing) or not self._has_writer()

    def _has_writer(self) -> bool:
        """Whether somebody writes what is saved. A process that was forked has no such thread."""
        return not self._ended and self._writer.is_alive()

    def _raise_if_superseded(self) -> None:
        if isinstance(self._error, Superseded):
            raise self._error

    def _write_until_closed(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending is not None or self._closing)
                if self._pending is None:
                    self._ended = True
                    return
                (snapshot, fraction), self._pending = self._pending, None
                self._writing = True
            error = self._write(snapshot, fraction)  # raises nothing: who saves or leaves waits for this thread
            with self._changed:
                self._writing = False
                self._error = error
                self._changed.notify_all()

    def _write(self, snapshot: Snapshot, fraction: float | None) -> BaseException | None:
        try:
            size_bytes = self.folder.write(snapshot)
            _warn_of(lambda: control.ack(snapshot.step, size_bytes=size_bytes, fraction=fraction, epoch=snapshot.epoch))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it fails this save and not those that follow
            _say_not_saved(snapshot, error)
            return error
        return None


@contextmanager
def session(folder: str | os.PathLike[str] | None = None, *, keep: int = 3) -> Iterator[Session]:
    """A run's session; ``folder`` defaults to the job's checkpoint folder, outside makeway to ``./checkpoints``.

    At a normal end, without a stop wanted, it declares the job done. Raises Superseded where a newer run was here.
    """
    notice.listen()
    chosen = Path(folder or os.environ.get(FOLDER_VARIABLE) or _DEFAULT_FOLDER)
    number = os.environ.get(RUN_VARIABLE, "")
    opened = Session(CheckpointFolder(chosen, run=int(number) if number.isdigit() else None, keep=keep))
    try:
        yield opened
    finally:
        opened.close()
    if not opened.declared_done and not opened.stop_requested():
        _warn_of(opened.done)  # without a notice, a good exit code says it too


def _warn_of(tell: Callable[[], None]) -> None:
    """A word that did not arrive, for whatever reason, costs a better decision, not the job."""
    try:
        tell()
    except Exception as error:  # noqa: BLE001 - what is saved stays saved
        say(error)


def _say_not_saved(snapshot: Snapshot, error: BaseException) -> None:
    say("step", snapshot.step, "was not saved:", _reason(error))


def _reason(error: BaseException) -> object:
    return error if error.args else repr(error)  # a MemoryError has no words
