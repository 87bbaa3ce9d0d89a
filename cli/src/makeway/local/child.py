"""One supervised process: start, watch, restart with back-off, stop.

The rules, in order:

1. `prepare` runs in a thread before every start; the process is forked from the main thread, since the kernel's death
   signal is tied to the thread that forked.
2. It is healthy once its probe says so. One that answers nothing for `start_seconds` after its start, or for
   `silent_seconds` later, is killed. One that answers that it is not well is left alone: what it waits for may be down,
   and a service that only a new process can heal ends itself.
3. Whatever ends by itself is started again: after 0.2 s, doubling to 10 s; 30 s of health reset the delay.
4. `stop` sends the stop signal, waits, and kills.
"""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from makeway.local.errors import LocalClusterError
from makeway.local.processes import Launch, identify, launch
from makeway.local.state_file import ChildState, ChildStatus

__all__ = ["Child", "ChildPlan", "Pace", "Trouble", "delay_after", "has_ended", "how_it_ended"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """The times of supervision, in seconds; tests shorten them."""

    first_delay_seconds: float = 0.2
    longest_delay_seconds: float = 10.0
    healthy_resets_seconds: float = 30.0
    start_seconds: float = 60.0
    silent_seconds: float = 60.0
    probe_starting_seconds: float = 0.1
    probe_healthy_seconds: float = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """Why a process is not well; `silent` when it gave no answer at all."""

    sentence: str
    silent: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildPlan:
    """What a child is. `probe` returns None when it is well; it must return within seconds."""

    name: str
    launch: Callable[[], Launch]
    probe: Callable[[], Awaitable[Trouble | None]]
    prepare: Callable[[], None] = lambda: None
    pace: Pace = field(default_factory=Pace)


def delay_after(previous_seconds: float | None, healthy_seconds: float, pace: Pace) -> float:
    """The wait before the next start, given the last wait (None for the first) and how long the process was healthy."""
    if previous_seconds is None or healthy_seconds >= pace.healthy_resets_seconds:
        return pace.first_delay_seconds
    return min(previous_seconds * 2, pace.longest_delay_seconds)


class Child:
    """Keeps one process running until told to stop. `report` hears of every change."""

    def __init__(self, plan: ChildPlan, report: Callable[[ChildStatus], None]) -> None:
        self.plan = plan
        self.status = ChildStatus(name=plan.name)
        self._report = report
        self._process: subprocess.Popen[bytes] | None = None
        self._stop_signal = signal.SIGTERM
        self._stop_seconds = 10.0
        self._healthy_at: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._first_health = asyncio.Event()

    def start(self) -> None:
        """Begin to keep it running."""
        self._task = asyncio.create_task(self._keep(), name=self.plan.name)

    async def until_healthy(self) -> None:
        """Wait for its first health; raises what made the keeping itself fail."""
        if self._task is None:
            raise RuntimeError("not started")
        health = asyncio.create_task(self._first_health.wait())
        await asyncio.wait([health, self._task], return_when=asyncio.FIRST_COMPLETED)
        health.cancel()
        if self._task.done():
            self._task.result()

    async def stop(self, first: signal.Signals | None = None, *, grace_seconds: float | None = None) -> None:
        """Stop the process and keep it stopped; `first` and `grace_seconds` replace its usual stop signal and time."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, LocalClusterError, OSError):
                await self._task
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(first or self._stop_signal)
            if not await self._ended(self._stop_seconds if grace_seconds is None else grace_seconds):
                _log.warning("%s did not stop in time and was killed", self.plan.name)
                self._process.kill()
                await self._ended(10.0)
        self._say(ChildState.STOPPED, "")

    async def _keep(self) -> None:
        delay: float | None = None
        while True:
            try:
                await self._begin()
                reason = await self._watch()
            except (LocalClusterError, OSError) as error:
                if not self._first_health.is_set():
                    raise  # it never worked: whoever waits for its health wants to know why
                reason = f"could not be started: {error}"
            healthy_seconds = 0.0 if self._healthy_at is None else time.monotonic() - self._healthy_at
            delay = delay_after(delay, healthy_seconds, self.plan.pace)
            _log.warning("%s %s; starting it again in %.1f s", self.plan.name, reason, delay)
            self.status = replace(self.status, restarts=self.status.restarts + 1, process=None)
            self._say(ChildState.BACKING_OFF, reason)
            await asyncio.sleep(delay)

    async def _begin(self) -> None:
        await asyncio.to_thread(self.plan.prepare)
        wanted = self.plan.launch()
        self._healthy_at = None
        self._stop_signal, self._stop_seconds = wanted.stop_signal, wanted.stop_seconds
        self._process = launch(wanted)
        self.status = replace(self.status, process=identify(self._process.pid))
        self._say(ChildState.STARTING, self.status.reason)

    async def _watch(self) -> str:
        """Probe until it ends or must be ended; returns what happened."""
        if self._process is None:
            raise RuntimeError("nothing to watch")
        pace = self.plan.pace
        last_answer = time.monotonic()
        while True:
            healthy = self.status.state is ChildState.HEALTHY
            if await self._ended(pace.probe_healthy_seconds if healthy else pace.probe_starting_seconds):
                return how_it_ended(self._process.returncode)
            trouble = await self.plan.probe()
            now = time.monotonic()
            if trouble is None or not trouble.silent:
                last_answer = now
            if trouble is None:
                self._is_well(now)
                continue
            if healthy:
                self._say(ChildState.UNHEALTHY, trouble.sentence)
            limit = pace.start_seconds if self._healthy_at is None else pace.silent_seconds
            if now - last_answer > limit:
                self._process.kill()
                await self._ended(10.0)
                return f"gave no answer for {limit:g} s ({trouble.sentence}) and was killed"

    def _is_well(self, now: float) -> None:
        if self._healthy_at is None:
            self._healthy_at = now
        if self.status.state is not ChildState.HEALTHY:
            self._say(ChildState.HEALTHY, self.status.reason if self.status.restarts else "")
            self._first_health.set()

    async def _ended(self, timeout_seconds: float) -> bool:
        return self._process is None or await has_ended(self._process, timeout_seconds)

    def _say(self, state: ChildState, reason: str) -> None:
        changed = replace(self.status, state=state, reason=reason)
        if state is ChildState.STOPPED:
            changed = replace(changed, process=None)
        self.status = changed
        self._report(changed)


async def has_ended(process: subprocess.Popen[bytes], timeout_seconds: float) -> bool:
    """Wait for the end of a child of ours and reap it; False when it still runs after the time."""
    if process.poll() is not None:
        return True
    ended = asyncio.Event()
    descriptor = os.pidfd_open(process.pid)  # not reaped yet, so the pid is still its own
    loop = asyncio.get_running_loop()
    try:
        loop.add_reader(descriptor, ended.set)
        async with asyncio.timeout(timeout_seconds):
            await ended.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    process.wait()
    return True


def how_it_ended(code: int) -> str:
    """A process's return code, in words."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
