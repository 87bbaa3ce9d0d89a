"""The GPUs of this host through NVIDIA's management library.

Every call may block for seconds when the driver is busy, and for ever when it is broken; drivers lack functions that
newer ones have, and some answer nonsense (the process list of version 3 changed its layout without a new name in
R535). So: one thread with a time limit, a reading that fails is not known, and only what agrees with /proc is believed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import pynvml
import structlog

from makeway_runtime.devices.port import (
    DevicesUnknown,
    DriverMissing,
    GpuInfo,
    GpuProcess,
    GpuSample,
    HealthEvent,
    HealthKind,
)
from makeway_runtime.devices.proc import is_alive
from makeway_runtime.devices.types import type_name_of
from makeway_runtime.devices.worker import BoundedWorker

_LOG: Final = structlog.get_logger(__name__)

ResultT = TypeVar("ResultT")

CALL_LIMIT_SECONDS: Final = 5.0
EVENT_WAIT_MS: Final = 1_000
MAX_EVENTS: Final = 1_000
MAX_NVLINKS: Final = 18
_MIB: Final = 1024 * 1024
_NOT_AVAILABLE: Final = (1 << 64) - 1
UNEXPLAINED_MIB: Final = 300
"""More VRAM in use than an idle driver needs, though no process that lives is listed."""

APPLICATION_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""XIDs that a faulty application causes; the card itself is well. Source: NVIDIA's XID catalogue."""

_EVENT_KINDS: Final = (
    (0x8, HealthKind.XID),  # nvmlEventTypeXidCriticalError
    (0x2, HealthKind.ECC),  # nvmlEventTypeDoubleBitEccError
    (0x2000, HealthKind.ECC),  # nvmlEventTypeGpuFatalPoison
    (0x4000, HealthKind.UNAVAILABLE),  # nvmlEventTypeGpuUnavailable
    (0x8000, HealthKind.UNAVAILABLE),  # nvmlEventTypeGpuRecoveryAction
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Handle:
    """A device with the handle that the library knows it by."""

    info: GpuInfo
    handle: Any
    parent: Any = None


class NvmlDevices:
    """`Devices` by NVML."""

    simulated = False

    def __init__(self, *, call_limit_seconds: float = CALL_LIMIT_SECONDS) -> None:
        """Use `open`."""
        self._worker = BoundedWorker(limit_seconds=call_limit_seconds)
        self._handles: dict[str, _Handle] = {}
        self._events: deque[HealthEvent] = deque(maxlen=MAX_EVENTS)
        self._closing = threading.Event()

    @classmethod
    async def open(cls, *, call_limit_seconds: float = CALL_LIMIT_SECONDS) -> NvmlDevices:
        """Loads the library and finds the devices. Raises DriverMissing or DevicesUnknown."""
        devices = cls(call_limit_seconds=call_limit_seconds)
        try:
            await devices._worker.call(pynvml.nvmlInit)
        except pynvml.NVMLError as error:
            devices._worker.close()
            raise DriverMissing(f"NVML cannot be used: {error}") from error
        await devices.inventory()
        threading.Thread(target=devices._listen, name="gpu-events", daemon=True).start()
        return devices

    async def inventory(self) -> tuple[GpuInfo, ...]:
        """Looks again: instances come and go."""
        found = await self._ask(_find_devices)
        for uuid in sorted(self._handles.keys() - {device.info.uuid for device in found}):
            self._events.append(
                HealthEvent(uuid=uuid, kind=HealthKind.LOST, fatal=True, detail="the driver no longer lists it")
            )
        self._handles = {device.info.uuid: device for device in found}
        return tuple(device.info for device in found)

    async def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        """Compute and graphics processes that live here."""
        device = self._handles.get(uuid)
        if device is None:
            raise DevicesUnknown(f"there is no device {uuid}")
        return await self._ask(lambda: _processes(device))

    async def samples(self) -> tuple[GpuSample, ...]:
        """One round over all devices, in one call to the thread."""
        devices = tuple(self._handles.values())
        return await self._ask(lambda: tuple(_sample(device) for device in devices))

    async def health_events(self) -> tuple[HealthEvent, ...]:
        """What the listening thread heard."""
        events: list[HealthEvent] = []
        while self._events:
            events.append(self._events.popleft())
        return tuple(events)

    async def close(self) -> None:
        """Ends both threads; the library stays loaded."""
        self._closing.set()
        try:
            await self._worker.call(pynvml.nvmlShutdown)
        except (pynvml.NVMLError, DevicesUnknown) as error:
            _LOG.info("NVML was not shut down", error=str(error))
        self._worker.close()

    async def _ask(self, question: Callable[[], ResultT]) -> ResultT:
        try:
            return await self._worker.call(question)
        except pynvml.NVMLError as error:
            raise DevicesUnknown(f"NVML: {error}") from error

    def _listen(self) -> None:
        """A thread of its own: waiting for events blocks."""
        try:
            events = pynvml.nvmlEventSetCreate()
            registered = [_register(device, events) for device in self._handles.values() if device.parent is None]
            if not any(registered):
                return
            while not self._closing.is_set():
                self._hear(events)
            pynvml.nvmlEventSetFree(events)
        except pynvml.NVMLError as error:
            _LOG.warning("no health events from NVML", error=str(error))

    def _hear(self, events: Any) -> None:
        try:
            data = pynvml.nvmlEventSetWait_v2(events, EVENT_WAIT_MS)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_TIMEOUT:
                return
            if error.value != pynvml.NVML_ERROR_GPU_IS_LOST:
                raise
            # The library does not say which; the next inventory does.
            self._closing.wait(EVENT_WAIT_MS / 1000)
            return
        self._events.append(_event(_text(pynvml.nvmlDeviceGetUUID(data.device)), data.eventType, data.eventData))


def _find_devices() -> tuple[_Handle, ...]:
    found: list[_Handle] = []
    buses: dict[int, Any] = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            card = _card(handle, index)
        except pynvml.NVMLError as error:
            # One card that fell off the bus must not hide the others.
            _LOG.warning("a GPU is left out", index=index, error=str(error))
            continue
        buses[index] = handle
        instances = _instances(handle, card)
        found.extend(instances or [_Handle(info=card, handle=handle)])
    groups = _link_groups(buses)
    linked = [_with_group(device, groups.get(device.info.index)) for device in found]
    return tuple(sorted(linked, key=lambda device: (device.info.index, device.info.uuid)))


def _card(handle: Any, index: int) -> GpuInfo:
    name = _text(pynvml.nvmlDeviceGetName(handle))
    total_mib, reserved_mib = _memory_mib(handle)
    return GpuInfo(
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        index=index,
        name=name,
        type_name=type_name_of(name, total_mib),
        vram_mib=total_mib,
        reserved_mib=reserved_mib,
        pci_bus_id=_reading(lambda: _text(pynvml.nvmlDeviceGetPciInfo(handle).busId)),
        numa_node=_reading(lambda: _natural(pynvml.nvmlDeviceGetNumaNodeId(handle))),
    )


def _instances(handle: Any, card: GpuInfo) -> list[_Handle]:
    """The MIG instances of a card; empty when it is whole."""
    mode = _reading(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
    if not mode:
        return []
    found: list[_Handle] = []
    for number in range(_reading(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0):
        try:
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            found.append(_Handle(info=_instance(instance, card), handle=instance, parent=handle))
        except pynvml.NVMLError as error:
            # Gaps in the numbers are normal: instances come and go.
            if error.value not in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT):
                _LOG.warning("a MIG instance is left out", card=card.uuid, number=number, error=str(error))
    return found


def _instance(handle: Any, card: GpuInfo) -> GpuInfo:
    name = _text(pynvml.nvmlDeviceGetName(handle))
    total_mib, reserved_mib = _memory_mib(handle)
    profile = name.rpartition("MIG ")[2] if "MIG " in name else f"{max(1, round(total_mib / 1024))}gb"
    return GpuInfo(
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        index=card.index,
        name=name,
        type_name=card.type_name,
        vram_mib=total_mib,
        reserved_mib=reserved_mib,
        mig_profile=profile,
        parent_uuid=card.uuid,
        pci_bus_id=card.pci_bus_id,
        numa_node=card.numa_node,
    )


def _memory_mib(handle: Any) -> tuple[int, int]:
    """Total and reserved. Version 2 tells the reserved part apart; older drivers count it as used."""
    memory = _reading(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2))
    if memory is not None:
        return memory.total // _MIB, memory.reserved // _MIB
    return pynvml.nvmlDeviceGetMemoryInfo(handle).total // _MIB, 0


def _used_mib(handle: Any) -> int | None:
    memory = _reading(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2))
    if memory is None:
        memory = _reading(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    return None if memory is None or memory.used == _NOT_AVAILABLE else memory.used // _MIB


def _link_groups(handles: dict[int, Any]) -> dict[int, int]:
    """Index to group: cards whose NVLinks lead to each other or to the same switches. Unlinked cards have none."""
    leader: dict[str, str] = {}

    def find(bus: str) -> str:
        leader.setdefault(bus, bus)
        while leader[bus] != bus:
            bus = leader[bus]
        return bus

    own: dict[int, str] = {}
    for index, handle in handles.items():
        bus = _reading(lambda handle=handle: _text(pynvml.nvmlDeviceGetPciInfo(handle).busId))  # type: ignore[misc]
        for remote in _remotes(handle):
            if bus is not None:
                leader[find(remote)] = find(bus)
                own[index] = bus
    numbers: dict[str, int] = {}
    return {index: numbers.setdefault(find(bus), len(numbers)) for index, bus in sorted(own.items())}


def _remotes(handle: Any) -> set[str]:
    remotes: set[str] = set()
    for link in range(MAX_NVLINKS):
        state = _reading(lambda link=link: pynvml.nvmlDeviceGetNvLinkState(handle, link))  # type: ignore[misc]
        if state is None:
            break
        if state:
            remote = _reading(
                lambda link=link: _text(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)  # type: ignore[misc]
            )
            if remote is not None:
                remotes.add(remote)
    return remotes


def _with_group(device: _Handle, group: int | None) -> _Handle:
    if group is None or device.parent is not None:
        return device
    return _Handle(info=replace(device.info, link_group=group), handle=device.handle)


def _processes(device: _Handle) -> tuple[GpuProcess, ...]:
    listed = {process.pid: process for process in [*_graphics(device.handle), *_compute(device.handle)]}
    living = {pid: process for pid, process in listed.items() if is_alive(pid)}
    if len(living) < len(listed) and not living:
        # Just ended, or numbers that mean nothing here (another PID namespace, a driver with another layout): the
        # card's memory tells which.
        used_mib = _used_mib(device.handle)
        if used_mib is None or used_mib > UNEXPLAINED_MIB:
            raise DevicesUnknown(f"NVML lists processes on {device.info.uuid} that this host does not have")
    return tuple(
        GpuProcess(pid=pid, used_mib=None if process.usedGpuMemory is None else process.usedGpuMemory // _MIB)
        for pid, process in sorted(living.items())
    )


def _compute(handle: Any) -> list[Any]:
    return _listed(
        pynvml.nvmlDeviceGetComputeRunningProcesses_v3, pynvml.nvmlDeviceGetComputeRunningProcesses_v2, handle
    )


def _graphics(handle: Any) -> list[Any]:
    try:
        return _listed(
            pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3, pynvml.nvmlDeviceGetGraphicsRunningProcesses_v2, handle
        )
    except pynvml.NVMLError as error:
        # Compute cards and MIG instances have no graphics; the compute list is what must be known.
        if error.value in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            return []
        raise


def _listed(newest: Callable[[Any], list[Any]], older: Callable[[Any], list[Any]], handle: Any) -> list[Any]:
    try:
        return newest(handle)
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        return older(handle)


def _sample(device: _Handle) -> GpuSample:
    handle = device.handle
    # An instance has no rates, power or temperature of its own; its card's would be counted once for each of them.
    whole = device.parent is None
    rates = _reading(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle)) if whole else None
    return GpuSample(
        uuid=device.info.uuid,
        index=device.info.index,
        type_name=device.info.type_name,
        vram_total_mib=device.info.vram_mib,
        utilisation_percent=_percent(rates.gpu) if rates is not None else None,
        memory_utilisation_percent=_percent(rates.memory) if rates is not None else None,
        vram_used_mib=_used_mib(handle),
        power_watts=_reading(lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000) if whole else None,
        temperature_celsius=_reading(lambda: float(_temperature(handle))) if whole else None,
        sm_clock_mhz=_reading(lambda: _clock(handle, pynvml.NVML_CLOCK_SM)) if whole else None,
        memory_clock_mhz=_reading(lambda: _clock(handle, pynvml.NVML_CLOCK_MEM)) if whole else None,
        processes=_count(device),
    )


def _temperature(handle: Any) -> int:
    return int(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))


def _clock(handle: Any, kind: int) -> int:
    return int(pynvml.nvmlDeviceGetClockInfo(handle, kind))


def _count(device: _Handle) -> int | None:
    try:
        return len(_processes(device))
    except (pynvml.NVMLError, DevicesUnknown):
        return None


def _percent(value: int) -> float | None:
    # Drivers fill a rate that they do not know with all ones.
    return float(value) if 0 <= value <= 100 else None


def _natural(value: int) -> int | None:
    return value if value >= 0 else None


def _reading(ask: Callable[[], ResultT]) -> ResultT | None:
    """A reading, or None where this card or driver has none."""
    try:
        return ask()
    except pynvml.NVMLError:
        return None


def _register(device: _Handle, events: Any) -> bool:
    supported = _reading(lambda: pynvml.nvmlDeviceGetSupportedEventTypes(device.handle)) or 0
    wanted = supported & sum(bit for bit, _ in _EVENT_KINDS)
    if not wanted:
        return False
    pynvml.nvmlDeviceRegisterEvents(device.handle, wanted, events)
    return True


def _event(uuid: str, event_type: int, data: int) -> HealthEvent:
    kind = next((kind for bit, kind in _EVENT_KINDS if event_type & bit), HealthKind.UNAVAILABLE)
    if kind is HealthKind.XID:
        return HealthEvent(uuid=uuid, kind=kind, fatal=data not in APPLICATION_XIDS, detail=f"XID {data}", code=data)
    return HealthEvent(uuid=uuid, kind=kind, fatal=True, detail=f"NVML event {event_type:#x}")


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
