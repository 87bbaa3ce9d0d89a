"""The service: how an executor starts, works, drains and ends. `wiring` has what it is made of.

SIGTERM: the executor ends, its runs live on and are found by the next one. SIGUSR1: it drains: every run is stopped
with the grace that `drain.json` in the runtime folder names, their ends are told, and the process ends with 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from makeway_runtime.devices.port import Devices
from makeway_runtime.devices.select import open_devices
from makeway_runtime.health import Check, reader_check, stuck_check
from makeway_runtime.kafka.publisher import Publisher
from makeway_schemas.facts import NodeReport
from makeway_schemas.ids import job_of
from makeway_schemas.plans import PlannedRun
from makeway_schemas.topics import DEAD_LETTERS, SCHEDULER_INBOX

from makeway_executor import clock, housekeeping
from makeway_executor.errors import SecondExecutor
from makeway_executor.inventory import Inventory
from makeway_executor.outlet import Outlet
from makeway_executor.report import NodeMoment, node_report
from makeway_executor.settings import ExecutorSettings
from makeway_executor.wiring import Outside, Parts, wire

_LOG: Final = structlog.get_logger(__name__)

DRAIN_FILE: Final = "drain.json"
ASK_AGAIN_SECONDS: Final = 1.0
EXPIRE_SECONDS: Final = 3600.0
FLUSH_SECONDS: Final = 3.0
FIRST_LOOK_SECONDS: Final = 10.0
"""A driver that takes longer does not hold up the start: cards that were not looked at are reported as such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Started:
    """What there is once the service has started; the lock is held for as long as the process lives."""

    lock: int
    devices: Devices
    inventory: Inventory
    parts: Parts


class Executor:
    """The service that `makeway_runtime.service.run` runs."""

    def __init__(self, settings: ExecutorSettings) -> None:
        """Opens nothing yet."""
        self._settings = settings
        self._client = f"executor-{settings.node_name}"
        self._publisher = Publisher(settings, client=self._client, topics=(SCHEDULER_INBOX, DEAD_LETTERS))
        self._outlet = Outlet(
            self._publisher, node_id=settings.node_name, pool=settings.pool, build_report=self._build_report
        )
        self._started: _Started | None = None
        self._sequence = 0
        self._asked_ns = 0
        self._draining = False

    async def start(self) -> None:
        """Takes the node's lock, finds the cards and the runs that are there. Raises SecondExecutor, DriverMissing."""
        settings = self._settings
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._begin_drain)
        for folder in (settings.state_dir, settings.run_root, settings.checkpoints, settings.runtime_dir):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = _take_lock(settings)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # shims are never waited for: they tell how it went
        devices = await open_devices(simulate=settings.simulate, node=settings.node_name, state_dir=settings.state_dir)
        inventory = Inventory(devices)
        await inventory.read()
        outside = Outside(
            devices=devices,
            publisher=self._publisher,
            outlet=self._outlet,
            client=self._client,
            refusal=self._refusal_of,
            ask_report=self._ask_report_soon,
        )
        parts = wire(settings, outside)
        self._started = _Started(lock=lock, devices=devices, inventory=inventory, parts=parts)
        parts.recovery.adopt_all(settings.run_root)
        # In this order: what the runs have on the cards is no stranger's, and nothing is reported of a card unseen.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_SECONDS):
                await parts.watch.look_for_strangers(inventory.present)
        if self._draining:
            parts.node.spawn_task(self._drain())

    async def run(self) -> None:
        """Works until cancelled."""
        parts = self._now.parts
        async with asyncio.TaskGroup() as group:
            group.create_task(parts.plans.run())
            group.create_task(self._outlet.run())
            group.create_task(self._report())
            group.create_task(parts.shipping.run())
            group.create_task(self._expire())

    async def stop(self) -> None:
        """Lets go of the runs, which live on."""
        if self._started is not None:
            await self._started.parts.plans.stop()
            self._started.parts.node.close()
            await self._started.devices.close()
        await self._publisher.stop()

    def checks(self) -> Sequence[Check]:
        """Health: plans arrive, and the handler of plans is not stuck."""
        plans = self._now.parts.plans
        return (reader_check("plans", plans), stuck_check("plan_handler", lambda: plans.busy_since))

    @property
    def _now(self) -> _Started:
        if self._started is None:
            raise RuntimeError("the executor is not started")
        return self._started

    def _refusal(self) -> str:
        if self._draining:
            return "the node is being stopped"
        return housekeeping.disk_refusal(self._settings.state_dir, self._settings.min_free_disk_percent)

    def _refusal_of(self, planned: PlannedRun) -> str:
        missing = self._now.inventory.missing(tuple(gpu.gpu_id for gpu in planned.gpus))
        return missing or self._refusal()

    def _build_report(self) -> NodeReport:
        now = self._now
        self._sequence += 1
        moment = NodeMoment(
            sequence=self._sequence,
            applied=now.parts.node.applied,
            wants_plan=now.parts.node.wants_plan,
            refusal=self._refusal(),
        )
        now.parts.watch.note_lost(now.inventory.present)
        runs = now.parts.node.runs.values()
        return node_report(now.parts.identity, moment, now.inventory.cards, now.parts.watch, runs)

    def _ask_report_soon(self) -> None:
        """At most once a second: an answer that does not satisfy must not become a storm."""
        if clock.age_seconds(self._asked_ns) >= ASK_AGAIN_SECONDS:
            self._asked_ns = clock.now_ns()
            self._outlet.ask_report()

    async def _report(self) -> None:
        now = self._now
        await now.parts.plans.started.wait()  # the plan that answers the first report must not be missed
        while True:
            self._outlet.ask_report()
            await asyncio.sleep(self._settings.report_seconds)
            await now.inventory.read_if_old()
            await now.parts.watch.look_for_strangers(now.inventory.present)

    async def _expire(self) -> None:
        while True:
            in_use = frozenset(job_of(run_id) for run_id in self._now.parts.node.runs)
            removed = await asyncio.to_thread(
                housekeeping.expire_checkpoints,
                self._settings.checkpoints,
                keep_days=self._settings.checkpoint_keep_days,
                in_use=in_use,
            )
            if removed:
                _LOG.info("checkpoints of finished jobs expired", jobs=removed)
            await asyncio.sleep(EXPIRE_SECONDS)

    def _begin_drain(self) -> None:
        if not self._draining and self._started is not None:
            self._started.parts.node.spawn_task(self._drain())
        self._draining = True  # told before the start was done: the start goes on to drain

    async def _drain(self) -> None:
        grace_seconds = self._settings.down_grace_seconds
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            grace_seconds = float(json.loads((self._settings.runtime_dir / DRAIN_FILE).read_bytes())["grace_seconds"])
        node = self._now.parts.node
        _LOG.info("draining", runs=len(node.runs), grace_seconds=grace_seconds)
        await node.drain(grace_seconds)
        self._outlet.ask_report()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._outlet.flushed()
        signal.raise_signal(signal.SIGTERM)


def _take_lock(settings: ExecutorSettings) -> int:
    descriptor = os.open(settings.state_dir / "executor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise SecondExecutor(f"another executor works in {settings.state_dir}") from error
    return descriptor
