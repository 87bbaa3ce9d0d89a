"""The metrics page: what Prometheus reads.

Built anew at each scrape from the newest readings and the database, so that a series ends with what it speaks of: a
GPU that is gone, a reading that became unknown, a job that ended. A reading that is not known has no sample; how many
are missing is a series of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from makeway_schemas.samples import GpuSample
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from makeway_telemetry.collector.readings import Reading
from makeway_telemetry.collector.store import GpuCapacity, Lease

_MIB: Final = 1024 * 1024
_GPU_LABELS: Final = ("gpu_id", "node", "gpu", "type")
_DCGM_LABELS: Final = ("gpu", "UUID", "device", "modelName", "Hostname", "GPU_I_ID", "GPU_I_PROFILE")

# Field, series, help, factor to the series' unit.
_READINGS: Final = (
    ("utilisation_percent", "makeway_gpu_utilisation_ratio", "Share of time in which the GPU was busy.", 0.01),
    ("memory_utilisation_percent", "makeway_gpu_memory_busy_ratio", "Share of time in which its memory was.", 0.01),
    ("vram_used_mib", "makeway_gpu_vram_used_bytes", "VRAM in use, by anyone.", _MIB),
    ("power_watts", "makeway_gpu_power_watts", "Power drawn.", 1),
    ("temperature_celsius", "makeway_gpu_temperature_celsius", "Temperature of the chip.", 1),
    ("sm_clock_mhz", "makeway_gpu_sm_clock_hertz", "Clock of the multiprocessors.", 1_000_000),
    ("memory_clock_mhz", "makeway_gpu_memory_clock_hertz", "Clock of the memory.", 1_000_000),
    ("processes", "makeway_gpu_processes", "Processes with a context on the GPU.", 1),
)
_DCGM_READINGS: Final = (
    ("utilisation_percent", "DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %)."),
    ("memory_utilisation_percent", "DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %)."),
    ("vram_used_mib", "DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB)."),
    ("power_watts", "DCGM_FI_DEV_POWER_USAGE", "Power draw (in W)."),
    ("temperature_celsius", "DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C)."),
    ("sm_clock_mhz", "DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz)."),
    ("memory_clock_mhz", "DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz)."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the page shows: fresh readings, and what the database says; `database_up` False when it did not answer."""

    readings: Sequence[Reading] = ()
    capacity: Sequence[GpuCapacity] = ()
    leases: Sequence[Lease] = ()
    database_up: bool = True


class ViewCollector(Collector):
    """Turns the present view into series."""

    def __init__(self, *, dcgm_names: bool) -> None:
        """Shows nothing until a view is set."""
        self.view = View()
        self._dcgm_names = dcgm_names

    def describe(self) -> Iterable[Metric]:
        """Nothing fixed: series come and go with the view."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The series of the present view."""
        yield _single("makeway_collector_database_up", "Whether the database answered.", float(self.view.database_up))
        yield from _capacity(self.view.capacity)
        yield from _readings(self.view.readings)
        yield _missing(self.view.readings)
        yield _leases(self.view.leases)
        if self._dcgm_names:
            profiles = {gpu.gpu_id: gpu.mig_profile for gpu in self.view.capacity}
            yield from _dcgm(self.view.readings, profiles)


def _single(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, text)
    family.add_metric((), value)
    return family


def _capacity(capacity: Sequence[GpuCapacity]) -> Iterator[Metric]:
    total = GaugeMetricFamily("makeway_gpu_vram_bytes", "VRAM of each GPU.", labels=_GPU_LABELS)
    leased = GaugeMetricFamily("makeway_gpu_vram_leased_bytes", "VRAM leased to runs.", labels=_GPU_LABELS)
    condition = GaugeMetricFamily(
        "makeway_gpu_condition", "1 for the condition it is in.", labels=("gpu_id", "condition")
    )
    for gpu in capacity:
        labels = (gpu.gpu_id, gpu.node_id, str(gpu.gpu_index), gpu.type_name)
        total.add_metric(labels, gpu.capacity_mib * _MIB)
        leased.add_metric(labels, gpu.leased_mib * _MIB)
        condition.add_metric((gpu.gpu_id, gpu.condition), 1)
    yield from (total, leased, condition)


def _readings(readings: Sequence[Reading]) -> Iterator[Metric]:
    for field, name, text, factor in _READINGS:
        family = GaugeMetricFamily(name, text, labels=_GPU_LABELS)
        for reading in readings:
            value = getattr(reading.gpu, field)
            if value is not None:
                family.add_metric(_labels(reading), value * factor)
        yield family
    healthy = GaugeMetricFamily("makeway_gpu_healthy", "0 when the driver reported a fault.", labels=_GPU_LABELS)
    for reading in readings:
        healthy.add_metric(_labels(reading), float(reading.gpu.healthy))
    yield healthy


def _missing(readings: Sequence[Reading]) -> Metric:
    family = GaugeMetricFamily("makeway_gpu_readings_missing", "GPUs without this reading.", labels=("node", "reading"))
    nodes = {reading.node_id for reading in readings}
    counts = Counter(
        (reading.node_id, field)
        for reading in readings
        for field, *_ in _READINGS
        if getattr(reading.gpu, field) is None
    )
    for node in sorted(nodes):
        for field, *_ in _READINGS:
            family.add_metric((node, field), counts[(node, field)])
    return family


def _leases(leases: Sequence[Lease]) -> Metric:
    family = GaugeMetricFamily(
        "makeway_gpu_lease_info",
        "1 for each run that has a GPU.",
        labels=("gpu_id", "node", "job_id", "run_id", "team"),
    )
    for lease in leases:
        family.add_metric((lease.gpu_id, lease.node_id, lease.job_id, lease.run_id, lease.team), 1)
    return family


def _labels(reading: Reading) -> tuple[str, ...]:
    return (reading.gpu.gpu_id, reading.node_id, str(reading.gpu.index), reading.gpu.type_name)


def _dcgm(readings: Sequence[Reading], profiles: dict[str, str]) -> Iterator[Metric]:
    for field, name, text in _DCGM_READINGS:
        family = GaugeMetricFamily(name, text, labels=_DCGM_LABELS)
        for reading in readings:
            value = getattr(reading.gpu, field)
            if value is not None:
                family.add_metric(_dcgm_labels(reading, profiles), value)
        yield family
    free = GaugeMetricFamily("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", labels=_DCGM_LABELS)
    for reading in readings:
        free_mib = _free_mib(reading.gpu)
        if free_mib is not None:
            free.add_metric(_dcgm_labels(reading, profiles), free_mib)
    yield free


def _free_mib(gpu: GpuSample) -> int | None:
    if gpu.vram_total_mib is None or gpu.vram_used_mib is None:
        return None
    return max(0, gpu.vram_total_mib - gpu.vram_used_mib)


def _dcgm_labels(reading: Reading, profiles: dict[str, str]) -> tuple[str, ...]:
    gpu = reading.gpu
    profile = profiles.get(gpu.gpu_id, "")
    return (str(gpu.index), gpu.gpu_id, f"nvidia{gpu.index}", gpu.type_name, reading.node_id, "", profile)
