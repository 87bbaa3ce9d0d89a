"""Which part of an executor stands on which: everything is made here, once, and nothing is started."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Final

from makeway_runtime.devices.port import Devices
from makeway_runtime.kafka.dead_letters import DeadLetters
from makeway_runtime.kafka.delivery import Delivery
from makeway_runtime.kafka.loop import HotLoop, LoopOptions
from makeway_runtime.kafka.publisher import Publisher
from makeway_schemas.plans import PlannedRun
from makeway_schemas.topics import DEAD_LETTERS, NODE_PLANS

from makeway_executor import clock, housekeeping
from makeway_executor.cards import RealCards, SimulatedCards
from makeway_executor.facts import Teller
from makeway_executor.gpu_status import GpuStatusFile
from makeway_executor.gpu_watch import GpuWatch, WatchOptions
from makeway_executor.handlers import PlanHandler
from makeway_executor.launch import NodeFolders
from makeway_executor.log_shipping import LogShipping, ShippingOptions
from makeway_executor.node import Node, NodeParts
from makeway_executor.outlet import Outlet
from makeway_executor.plan_number import PlanNumberFile
from makeway_executor.recovery import Recovery
from makeway_executor.report import NodeIdentity
from makeway_executor.run_events import RunEvents
from makeway_executor.settings import ExecutorSettings
from makeway_executor.shim import Spawner

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What an executor's parts reach beyond the node with, and what they ask of it."""

    devices: Devices
    publisher: Publisher
    outlet: Outlet
    client: str
    refusal: Callable[[PlannedRun], str]
    ask_report: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a running executor."""

    identity: NodeIdentity
    node: Node
    watch: GpuWatch
    recovery: Recovery
    shipping: LogShipping
    plans: HotLoop


def wire(settings: ExecutorSettings, outside: Outside) -> Parts:
    """Makes all parts. Raises OSError where the state folder cannot be used."""
    teller = Teller(node_id=settings.node_name, session=clock.new_session(), boot_id=clock.boot_id())
    cards = SimulatedCards(settings.state_dir) if outside.devices.simulated else RealCards()
    events = RunEvents(teller, outside.outlet, cards)
    options = WatchOptions(
        quarantine_after_seconds=settings.quarantine_after_seconds, probation_seconds=settings.probation_seconds
    )
    file = GpuStatusFile(settings.state_dir / "gpus.json", boot_id=teller.boot_id)
    watch = GpuWatch(outside.devices, events.runs, options, file)
    node = Node(events, _node_parts(settings, watch, outside.refusal))
    shipping = LogShipping(events.runs, _shipping_options(settings), node.remove)
    node.on_ended, node.on_booked = shipping.ended, shipping.booked
    return Parts(
        identity=_identity(settings, teller, simulated=outside.devices.simulated),
        node=node,
        watch=watch,
        recovery=Recovery(node, events),
        shipping=shipping,
        plans=_plan_loop(settings, outside, node),
    )


def _node_parts(settings: ExecutorSettings, watch: GpuWatch, refusal: Callable[[PlannedRun], str]) -> NodeParts:
    return NodeParts(
        run_root=settings.run_root,
        folders=NodeFolders(
            sockets=settings.runtime_dir,
            checkpoints=settings.checkpoints,
            cgroup=housekeeping.writable_cgroup(settings.node_name, settings.state_dir) if settings.cgroups else None,
            log_head_bytes=settings.log_head_bytes,
            log_tail_bytes=settings.log_tail_bytes,
        ),
        spawner=Spawner(),
        watch=watch,
        plan_number=PlanNumberFile(settings.state_dir / "plan-number"),
        refusal=refusal,
        start_delay_seconds=settings.test_start_delay_seconds,
    )


def _shipping_options(settings: ExecutorSettings) -> ShippingOptions:
    return ShippingOptions(
        admission_url=settings.admission_url,
        node_id=settings.node_name,
        token=settings.node_token,
        keep_seconds=settings.log_keep_hours * 3600,
    )


def _identity(settings: ExecutorSettings, teller: Teller, *, simulated: bool) -> NodeIdentity:
    return NodeIdentity(
        teller=teller,
        pool=settings.pool,
        simulated=simulated,
        cpus=len(os.sched_getaffinity(0)),
        memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB,
        labels=settings.labels,
        version=metadata.version("makeway-executor"),
    )


def _plan_loop(settings: ExecutorSettings, outside: Outside, node: Node) -> HotLoop:
    handler = PlanHandler(node, node_id=settings.node_name, ask_report=outside.ask_report)
    poison = DeadLetters(outside.publisher, topic=DEAD_LETTERS.name, source=f"/nodes/{settings.node_name}")
    options = LoopOptions(topic=NODE_PLANS, partitions=(NODE_PLANS.partition_of(settings.node_name),))
    return HotLoop(settings, options, Delivery(handler=handler.handle, on_poison=poison), client=outside.client)
