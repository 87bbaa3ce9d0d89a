"""NVML's answers as values: shared by inventory and readings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pynvml

from makeway_runtime.devices.port import GpuInfo

ResultT = TypeVar("ResultT")

MIB: Final = 1024 * 1024
_NOT_AVAILABLE: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """A device with the handle that the library knows it by; `parent` is the card's, for a MIG instance."""

    info: GpuInfo
    handle: Any
    parent: Any = None


def reading(ask: Callable[[], ResultT]) -> ResultT | None:
    """A reading, or None where this card or driver has none."""
    try:
        return ask()
    except pynvml.NVMLError:
        return None


def memory_mib(handle: Any) -> tuple[int, int]:
    """Total and reserved. Version 2 tells the reserved part apart; older drivers count it as used."""
    memory = reading(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2))
    if memory is not None:
        return memory.total // MIB, memory.reserved // MIB
    return pynvml.nvmlDeviceGetMemoryInfo(handle).total // MIB, 0


def used_mib_of(handle: Any) -> int | None:
    memory = reading(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2))
    if memory is None:
        memory = reading(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    return None if memory is None or memory.used == _NOT_AVAILABLE else memory.used // MIB


def text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
