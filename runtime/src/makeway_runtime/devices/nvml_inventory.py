"""Finding the devices: cards, MIG instances, and which cards NVLink joins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pynvml
import structlog

from makeway_runtime.devices.nvml_calls import Handle, memory_mib, reading, text
from makeway_runtime.devices.port import GpuInfo
from makeway_runtime.devices.types import type_name_of

_LOG: Final = structlog.get_logger(__name__)

MAX_NVLINKS: Final = 18


def find_devices() -> tuple[Handle, ...]:
    found: list[Handle] = []
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
        found.extend(instances or [Handle(info=card, handle=handle)])
    groups = _link_groups(buses)
    linked = [_with_group(device, groups.get(device.info.index)) for device in found]
    return tuple(sorted(linked, key=lambda device: (device.info.index, device.info.uuid)))


def _card(handle: Any, index: int) -> GpuInfo:
    name = text(pynvml.nvmlDeviceGetName(handle))
    total_mib, reserved_mib = memory_mib(handle)
    return GpuInfo(
        uuid=text(pynvml.nvmlDeviceGetUUID(handle)),
        index=index,
        name=name,
        type_name=type_name_of(name, total_mib),
        vram_mib=total_mib,
        reserved_mib=reserved_mib,
        pci_bus_id=reading(lambda: text(pynvml.nvmlDeviceGetPciInfo(handle).busId)),
        numa_node=reading(lambda: _natural(pynvml.nvmlDeviceGetNumaNodeId(handle))),
    )


def _instances(handle: Any, card: GpuInfo) -> list[Handle]:
    """The MIG instances of a card; empty when it is whole."""
    mode = reading(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
    if not mode:
        return []
    found: list[Handle] = []
    for number in range(reading(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0):
        try:
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            found.append(Handle(info=_instance(instance, card), handle=instance, parent=handle))
        except pynvml.NVMLError as error:
            # Gaps in the numbers are normal: instances come and go.
            if error.value not in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT):
                _LOG.warning("a MIG instance is left out", card=card.uuid, number=number, error=str(error))
    return found


def _instance(handle: Any, card: GpuInfo) -> GpuInfo:
    name = text(pynvml.nvmlDeviceGetName(handle))
    total_mib, reserved_mib = memory_mib(handle)
    profile = name.rpartition("MIG ")[2] if "MIG " in name else f"{max(1, round(total_mib / 1024))}gb"
    return GpuInfo(
        uuid=text(pynvml.nvmlDeviceGetUUID(handle)),
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
        bus = reading(lambda handle=handle: text(pynvml.nvmlDeviceGetPciInfo(handle).busId))  # type: ignore[misc]
        for remote in _remotes(handle):
            if bus is not None:
                leader[find(remote)] = find(bus)
                own[index] = bus
    numbers: dict[str, int] = {}
    return {index: numbers.setdefault(find(bus), len(numbers)) for index, bus in sorted(own.items())}


def _remotes(handle: Any) -> set[str]:
    remotes: set[str] = set()
    for link in range(MAX_NVLINKS):
        state = reading(lambda link=link: pynvml.nvmlDeviceGetNvLinkState(handle, link))  # type: ignore[misc]
        if state is None:
            break
        if state:
            remote = reading(
                lambda link=link: text(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)  # type: ignore[misc]
            )
            if remote is not None:
                remotes.add(remote)
    return remotes


def _with_group(device: Handle, group: int | None) -> Handle:
    if group is None or device.parent is not None:
        return device
    return Handle(info=replace(device.info, link_group=group), handle=device.handle)


def _natural(value: int) -> int | None:
    return value if value >= 0 else None
