"""Running a service: one event loop, signals, health, watchdog, and a graceful end within time limits.

A service's `__main__.py` is `sys.exit(run(build, settings, name="scheduler"))`.
"""

from __future__ import annotations

import asyncio
import faulthandler
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

import structlog
import uvloop

from makeway_runtime import logs, tracing
from makeway_runtime.errors import StuckService
from makeway_runtime.health import Check, HealthServer, LoopLag, Watchdog
from makeway_runtime.settings import ServiceSettings

_LOG: Final = structlog.get_logger(__name__)

EXIT_OK: Final = 0
EXIT_CRASHED: Final = 70
EXIT_STUCK: Final = 75
"""Exit codes for the supervisor: whatever is not 0 is started again."""


class Service(Protocol):
    """What `run` runs. All three are called once, in this order."""

    async def start(self) -> None:
        """Opens what is needed to answer. May raise: the process ends and is started again."""

    async def run(self) -> None:
        """Works until cancelled. Returning or raising ends the process."""

    async def stop(self) -> None:
        """Ends gracefully: what was accepted is finished or left where it will be found. Also after a failed start."""

    def checks(self) -> Sequence[Check]:
        """The health checks; asked for once, after `start`."""
        ...


SettingsT = TypeVar("SettingsT", bound=ServiceSettings)


def run(build: Callable[[SettingsT], Service], settings: SettingsT, *, name: str) -> int:
    """Builds the service inside the loop and runs it until SIGTERM or SIGINT. Returns the exit code."""
    logs.configure(settings, service=name)
    tracing.configure(settings, service=name)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(build, settings))
    finally:
        tracing.shutdown()


async def _run(build: Callable[[SettingsT], Service], settings: SettingsT) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    service = build(settings)
    try:
        if await _first(stopping, service.start()):
            return EXIT_OK
        return await _work(service, settings, stopping)
    except StuckService as error:
        _LOG.error("stuck, ending to be started again", reason=str(error))
        return EXIT_STUCK
    except Exception:  # noqa: BLE001 - the last resort: said, and told to the supervisor by the exit code
        _LOG.exception("ending after an error")
        return EXIT_CRASHED
    finally:
        await _within(settings.stop_timeout_seconds, service.stop())


async def _work(service: Service, settings: ServiceSettings, stopping: asyncio.Event) -> int:
    loop_lag = LoopLag()
    checks = [*service.checks(), loop_lag.check()]
    health = HealthServer(checks, port=settings.health_port, port_file=settings.health_file)
    await health.start()
    watchdog = Watchdog(checks, limit_seconds=settings.watchdog_seconds)
    helpers = [
        asyncio.create_task(loop_lag.run()),
        asyncio.create_task(watchdog.run()),
        asyncio.create_task(_guard_loop(settings.watchdog_seconds)),
    ]
    _LOG.info("ready", health_port=health.port)
    try:
        if await _first(stopping, service.run(), *helpers):
            _LOG.info("stopping")
            return EXIT_OK
        _LOG.error("the service's work ended by itself")
        return EXIT_CRASHED
    finally:
        await health.stop()


async def _guard_loop(limit_seconds: float) -> None:
    """Ends the process when its loop hangs: prints where every thread is, then exits with 1.

    The watchdog lives on the loop and cannot see this. The standard library's timer is a thread in C, which runs also
    while the interpreter is held.
    """
    try:
        while True:
            faulthandler.dump_traceback_later(limit_seconds, exit=True)
            await asyncio.sleep(limit_seconds / 4)
    finally:
        faulthandler.cancel_dump_traceback_later()


async def _first(stopping: asyncio.Event, work: Awaitable[None], *others: asyncio.Task[None]) -> bool:
    """Waits for the first of all. True when told to stop; raises what a task raised; cancels the rest."""
    told = asyncio.create_task(stopping.wait())
    tasks = [asyncio.ensure_future(work), *others]
    try:
        done, _ = await asyncio.wait([told, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        return told in done
    finally:
        for task in (told, *tasks):
            task.cancel()
        await asyncio.gather(told, *tasks, return_exceptions=True)


async def _within(limit_seconds: float, stopping: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(limit_seconds):
            await stopping
    except TimeoutError:
        _LOG.error("stopping took too long and was cut short", limit_seconds=limit_seconds)
    except Exception:  # noqa: BLE001 - nothing may keep the process from ending
        _LOG.exception("stopping failed")
