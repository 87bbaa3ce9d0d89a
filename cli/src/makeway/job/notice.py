"""Hears the stop notice: by its signal, and by the control socket when the signal is one that nobody handles.

A signal handler may run between any two instructions of the main thread, so it only sets a flag and writes a byte into
a pipe; a thread reads the pipe and calls the callbacks.

The notice goes to the whole process tree. A forked worker (a data loader's) lets it pass, since the program needs it
for its last checkpoint, and dies of every other such signal, such as the one by which the program ends its workers.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from makeway.job.control import ControlError, ask, inside_makeway
from makeway.job.stderr import say

_GRACE_VARIABLE: Final = "MAKEWAY_GRACE_SECONDS"
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
"""Those that may carry the notice; the ones that the program handles itself are left to it."""


class _Notice:
    def __init__(self) -> None:
        self.heard_at: float | None = None  # monotonic seconds
        self.kill_at: float | None = None  # monotonic seconds, None: unknown or not wanted
        self.callbacks: list[Callable[[], object]] = []
        self.handled: list[signal.Signals] = []
        self.lock = threading.Lock()
        self.listening = False
        self.wake_read, self.wake_write = os.pipe()
        os.set_blocking(self.wake_write, False)

    def listen(self) -> None:
        """Starts to listen, once; from the main thread signals are heard too."""
        with self.lock:
            if self.listening:
                return
            self.listening = True
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS if inside_makeway() else (signal.SIGTERM,):
                self._handle(number)
            os.register_at_fork(after_in_child=self._become_worker)
        threading.Thread(target=self._call_back, name="makeway-stop", daemon=True).start()
        if inside_makeway():
            threading.Thread(target=self._ask, name="makeway-control", daemon=True).start()

    def _handle(self, number: signal.Signals) -> None:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, self._on_signal)
            self.handled.append(number)

    def _become_worker(self) -> None:
        for number in self.handled:
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, _in_worker)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.hear(_environment_grace())

    def hear(self, grace_seconds: float | None) -> None:
        """A stop is wanted. Safe in a signal handler: plain assignments and one write that cannot block."""
        now = time.monotonic()
        if self.heard_at is None:
            self.heard_at = now
        if grace_seconds is not None:
            self.kill_at = now + grace_seconds
        with contextlib.suppress(BlockingIOError):
            os.write(self.wake_write, b"x")

    def _ask(self) -> None:
        try:
            answer = ask("wait", wait=True)
            left = answer.get("grace_left_seconds")
            self.hear(float(left) if isinstance(left, int | float) else _environment_grace())
        except ControlError:
            return  # the signal is still heard; the shim may have gone at the end

    def _call_back(self) -> None:
        os.read(self.wake_read, 1)
        with self.lock:
            waiting, self.callbacks = self.callbacks, []
        for callback in waiting:
            _call(callback)


def _in_worker(number: int, frame: FrameType | None) -> None:
    """Lets the notice pass once: the next signal, or one that is no notice, ends the worker."""
    signal.signal(number, signal.SIG_DFL)
    if not _notice_was_delivered():
        os.kill(os.getpid(), number)


def _notice_was_delivered() -> bool:
    try:
        return ask("status").get("stop") is True
    except ControlError:
        return False


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception as error:  # noqa: BLE001 - one callback's mistake must not keep the next from saving its work
        say(f"on_stop callback {callback!r} failed: {error!r}")


def _environment_grace() -> float | None:
    try:
        return float(os.environ[_GRACE_VARIABLE])
    except (KeyError, ValueError):
        return None


_notice: Any = None
_notice_lock: Final = threading.Lock()


def _get() -> _Notice:
    global _notice
    with _notice_lock:
        if _notice is None:
            _notice = _Notice()
    notice: _Notice = _notice
    notice.listen()
    return notice


def listen() -> None:
    """Starts to hear the notice; call it early, and from the main thread. The other functions here do it too."""
    _get()


def stop_requested() -> bool:
    """Whether the notice has come. Cheap enough to ask in every step."""
    return _get().heard_at is not None


def grace_left() -> float | None:
    """Seconds until SIGKILL, at least 0; None while no stop is wanted or its grace is unknown."""
    kill_at = _get().kill_at
    return None if kill_at is None else max(0.0, kill_at - time.monotonic())


def on_stop(callback: Callable[[], object]) -> None:
    """Calls back once when the notice comes, in a thread of its own; at once if it has come already."""
    notice = _get()
    with notice.lock:
        late = notice.heard_at is not None
        if not late:
            notice.callbacks.append(callback)
    if late:
        threading.Thread(target=_call, args=(callback,), name="makeway-stop", daemon=True).start()
