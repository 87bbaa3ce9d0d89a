"""What a device shows: its processes and its readings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pynvml

from makeway_runtime.devices.nvml_calls import MIB, Handle, reading, used_mib_of
from makeway_runtime.devices.port import DevicesUnknown, GpuProcess, GpuSample
from makeway_runtime.devices.proc import is_alive

UNEXPLAINED_MIB: Final = 300
"""More VRAM in use than an idle driver needs, though no process that lives is listed."""


def processes_of(device: Handle) -> tuple[GpuProcess, ...]:
    listed = {process.pid: process for process in [*_graphics(device.handle), *_compute(device.handle)]}
    living = {pid: process for pid, process in listed.items() if is_alive(pid)}
    if len(living) < len(listed) and not living:
        # Just ended, or numbers that mean nothing here (another PID namespace, a driver with another layout): the
        # card's memory tells which.
        used_mib = used_mib_of(device.handle)
        if used_mib is None or used_mib > UNEXPLAINED_MIB:
            raise DevicesUnknown(f"NVML lists processes on {device.info.uuid} that this host does not have")
    return tuple(
        GpuProcess(pid=pid, used_mib=None if process.usedGpuMemory is None else process.usedGpuMemory // MIB)
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


def sample_of(device: Handle) -> GpuSample:
    handle = device.handle
    # An instance has no rates, power or temperature of its own; its card's would be counted once for each of them.
    whole = device.parent is None
    rates = reading(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle)) if whole else None
    return GpuSample(
        uuid=device.info.uuid,
        index=device.info.index,
        type_name=device.info.type_name,
        vram_total_mib=device.info.vram_mib,
        utilisation_percent=_percent(rates.gpu) if rates is not None else None,
        memory_utilisation_percent=_percent(rates.memory) if rates is not None else None,
        vram_used_mib=used_mib_of(handle),
        power_watts=reading(lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000) if whole else None,
        temperature_celsius=reading(lambda: float(_temperature(handle))) if whole else None,
        sm_clock_mhz=reading(lambda: _clock(handle, pynvml.NVML_CLOCK_SM)) if whole else None,
        memory_clock_mhz=reading(lambda: _clock(handle, pynvml.NVML_CLOCK_MEM)) if whole else None,
        processes=_count(device),
    )


def _temperature(handle: Any) -> int:
    return int(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))


def _clock(handle: Any, kind: int) -> int:
    return int(pynvml.nvmlDeviceGetClockInfo(handle, kind))


def _count(device: Handle) -> int | None:
    try:
        return len(processes_of(device))
    except (pynvml.NVMLError, DevicesUnknown):
        return None


def _percent(value: int) -> float | None:
    # Drivers fill a rate that they do not know with all ones.
    return float(value) if 0 <= value <= 100 else None
