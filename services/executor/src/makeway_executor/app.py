"""The composition root: what an executor is made of, how it starts, works, drains and ends.

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
from importlib import metadata
from typing import Final

import structlog
from makeway_runtime.devices.port import Devices, DevicesUnknown, GpuInfo
from makeway_runtime.devices.select import open_devices
from makeway_runtime.health import Check, reader_check, stuck_check
from makeway_runtime.kafka.dead_letters import DeadLetters
from makeway_runtime.kafka.delivery import Delivery
from makeway_runtime.kafka.loop import HotLoop, LoopOptions
from makeway_runtime.kafka.publisher import Publisher
from makeway_schemas.facts import NodeReport
from makeway_schemas.ids import job_of
from makeway_schemas.plans import PlannedRun
from makeway_schemas.topics import DEAD_LETTERS, NODE_PLANS, SCHEDULER_INBOX

from makeway_executor import clock, housekeeping
from makeway_executor.cards import RealCards, SimulatedCards
from makeway_executor.errors import SecondExecutor
from makeway_executor.facts import Teller
from makeway_executor.gpu_watch import GpuWatch, WatchOptions
from makeway_executor.handlers import PlanHandler
from makeway_executor.launch import NodeFolders
from makeway_executor.log_shipping import LogShipping, ShippingOptions
from makeway_executor.node import Node, NodeParts
from makeway_executor.outlet import Outlet
from makeway_executor.plan_number import PlanNumberFile
from makeway_executor.recovery import Recovery
from makeway_executor.report import NodeIdentity, NodeMoment, node_report
from makeway_executor.run_events import RunEvents
from makeway_executor.settings import ExecutorSettings
from makeway_executor.shim import Spawner

_LOG: Final = structlog.get_logger(__name__)

DRAIN_FILE: Final = "drain.json"
ASK_AGAIN_SECONDS: Final = 1.0
INVENTORY_SECONDS: Final = 60.0
EXPIRE_SECONDS: Final = 3600.0
FLUSH_SECONDS: Final = 3.0
_MIB: Final = 1024 * 1024


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
        self._gpus: dict[str, tuple[GpuInfo, bool]] = {}
        self._sequence = 0
        self._asked_ns = 0
        self._draining = False

    async def start(self) -> None:
        """Takes the node's lock, finds the cards and the runs that are there. Raises SecondExecutor, DriverMissing."""
        settings = self._settings
        for folder in (settings.state_dir, settings.run_root, settings.checkpoints, settings.runtime_dir):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _take_lock(settings)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # shims are never waited for: they tell how it went
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._begin_drain)
        self._devices: Devices = await open_devices(
            simulate=settings.simulate, node=settings.node_name, state_dir=settings.state_dir
        )
        await self._read_inventory()
        self._wire()
        self._recovery.adopt_all(settings.run_root)

    async def run(self) -> None:
        """Works until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._loop.run())
            group.create_task(self._outlet.run())
            group.create_task(self._report())
            group.create_task(self._shipping.run())
            group.create_task(self._expire())

    async def stop(self) -> None:
        """Lets go of the runs, which live on."""
        if hasattr(self, "_node"):
            await self._loop.stop()
            self._node.close()
            await self._devices.close()
        await self._publisher.stop()

    def checks(self) -> Sequence[Check]:
        """Health: plans arrive, and the handler of plans is not stuck."""
        return (
            reader_check("plans", self._loop),
            stuck_check("plan_handler", lambda: self._loop.busy_since),
        )

    def _wire(self) -> None:
        settings = self._settings
        teller = Teller(node_id=settings.node_name, session=clock.new_session(), boot_id=clock.boot_id())
        cards = SimulatedCards(settings.state_dir) if self._devices.simulated else RealCards()
        events = RunEvents(teller, self._outlet, cards)
        self._watch = GpuWatch(
            self._devices,
            events.runs,
            WatchOptions(
                quarantine_after_seconds=settings.quarantine_after_seconds,
                probation_seconds=settings.probation_seconds,
            ),
        )
        self._spawner = Spawner()
        self._node = Node(events, self._node_parts())
        self._recovery = Recovery(self._node, events)
        self._shipping = LogShipping(events.runs, self._shipping_options(), self._node.remove)
        self._node.on_ended, self._node.on_booked = self._shipping.ended, self._shipping.booked
        self._identity = self._describe(teller)
        handler = PlanHandler(self._node, node_id=settings.node_name, ask_report=self._ask_report_soon)
        self._loop = HotLoop(
            settings,
            LoopOptions(topic=NODE_PLANS, partitions=(NODE_PLANS.partition_of(settings.node_name),)),
            Delivery(
                handler=handler.handle,
                on_poison=DeadLetters(self._publisher, topic=DEAD_LETTERS.name, source=f"/nodes/{settings.node_name}"),
            ),
            client=self._client,
        )

    def _node_parts(self) -> NodeParts:
        settings = self._settings
        return NodeParts(
            run_root=settings.run_root,
            folders=NodeFolders(
                sockets=settings.runtime_dir,
                checkpoints=settings.checkpoints,
                cgroup=housekeeping.writable_cgroup(settings.node_name) if settings.cgroups else None,
                log_head_bytes=settings.log_head_bytes,
                log_tail_bytes=settings.log_tail_bytes,
            ),
            spawner=self._spawner,
            watch=self._watch,
            plan_number=PlanNumberFile(settings.state_dir / "plan-number"),
            refusal=self._refusal_of,
            start_delay_seconds=settings.test_start_delay_seconds,
        )

    def _shipping_options(self) -> ShippingOptions:
        settings = self._settings
        return ShippingOptions(
            admission_url=settings.admission_url,
            node_id=settings.node_name,
            token=settings.node_token,
            keep_seconds=settings.log_keep_hours * 3600,
        )

    def _describe(self, teller: Teller) -> NodeIdentity:
        return NodeIdentity(
            teller=teller,
            pool=self._settings.pool,
            simulated=self._devices.simulated,
            cpus=len(os.sched_getaffinity(0)),
            memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB,
            labels=self._settings.labels,
            version=metadata.version("makeway-executor"),
        )

    def _refusal(self) -> str:
        if self._draining:
            return "the node is being stopped"
        return housekeeping.disk_refusal(self._settings.state_dir, self._settings.min_free_disk_percent)

    def _refusal_of(self, planned: PlannedRun) -> str:
        for gpu in planned.gpus:
            _, present = self._gpus.get(gpu.gpu_id, (None, False))
            if not present:
                return f"this node has no GPU {gpu.gpu_id} now"
        return self._refusal()

    def _build_report(self) -> NodeReport:
        self._sequence += 1
        moment = NodeMoment(
            sequence=self._sequence,
            applied=self._node.applied,
            wants_plan=self._node.wants_plan,
            refusal=self._refusal(),
        )
        return node_report(self._identity, moment, self._gpus.values(), self._watch, self._node.runs.values())

    def _ask_report_soon(self) -> None:
        """At most once a second: an answer that does not satisfy must not become a storm."""
        if clock.age_seconds(self._asked_ns) >= ASK_AGAIN_SECONDS:
            self._asked_ns = clock.now_ns()
            self._outlet.ask_report()

    async def _report(self) -> None:
        await self._loop.started.wait()  # the plan that answers the first report must not be missed
        inventory_ns = clock.now_ns()
        while True:
            self._outlet.ask_report()
            await asyncio.sleep(self._settings.report_seconds)
            if clock.age_seconds(inventory_ns) >= INVENTORY_SECONDS:
                inventory_ns = clock.now_ns()
                await self._read_inventory()
            await self._watch.look_for_strangers(gpu_id for gpu_id, (_, present) in self._gpus.items() if present)

    async def _read_inventory(self) -> None:
        """A card that is not shown any more stays known, as lost. No answer changes nothing."""
        try:
            found = {info.uuid: (info, True) for info in await self._devices.inventory()}
        except DevicesUnknown as error:
            _LOG.warning("the cards could not be read", error=str(error))
            return
        gone = {gpu_id: (info, False) for gpu_id, (info, _) in self._gpus.items() if gpu_id not in found}
        self._gpus = found | gone

    async def _expire(self) -> None:
        while True:
            in_use = frozenset(job_of(run_id) for run_id in self._node.runs)
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
        if not self._draining:
            self._draining = True
            self._node.spawn_task(self._drain())

    async def _drain(self) -> None:
        grace_seconds = self._settings.down_grace_seconds
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            grace_seconds = float(json.loads((self._settings.runtime_dir / DRAIN_FILE).read_bytes())["grace_seconds"])
        _LOG.info("draining", runs=len(self._node.runs), grace_seconds=grace_seconds)
        await self._node.drain(grace_seconds)
        self._outlet.ask_report()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._outlet.flushed(), FLUSH_SECONDS)
        signal.raise_signal(signal.SIGTERM)


def _take_lock(settings: ExecutorSettings) -> int:
    descriptor = os.open(settings.state_dir / "executor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise SecondExecutor(f"another executor works in {settings.state_dir}") from error
    return descriptor
