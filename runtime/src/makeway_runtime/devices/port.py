"""What the services ask of a node's GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from makeway_runtime.errors import MakewayRuntimeError, TransientError

READINGS: Final = (
    "utilisation_percent",
    "memory_utilisation_percent",
    "vram_used_mib",
    "power_watts",
    "temperature_celsius",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "processes",
)
"""The names of GpuSample's readings."""


class DriverMissing(MakewayRuntimeError):
    """This host has no usable NVIDIA driver; the text says what is missing."""


class DevicesUnknown(TransientError):
    """The driver did not answer, or not in a way that can be trusted. Never to be read as "nothing is there"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInfo:
    """A schedulable device: a whole card, or a MIG instance (then with `mig_profile` and `parent_uuid`)."""

    uuid: str
    index: int
    """The card's index in PCI order; instances of one card share it."""
    name: str
    """As the driver says it, e.g. "NVIDIA A100-SXM4-80GB"."""
    type_name: str
    """As jobs name it, e.g. "A100-80GB"."""
    vram_mib: int
    reserved_mib: int
    """What the driver keeps for itself: the rest can be leased."""
    mig_profile: str | None = None
    parent_uuid: str | None = None
    pci_bus_id: str | None = None
    link_group: int | None = None
    """Cards of one group are joined by NVLink, directly or by switches; None: not linked, or not known."""
    numa_node: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that has a context on a GPU; its VRAM where the driver tells."""

    pid: int
    used_mib: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU's readings. None is "not known", never 0. Names as in READINGS."""

    uuid: str
    index: int
    type_name: str
    vram_total_mib: int | None = None
    utilisation_percent: float | None = None
    memory_utilisation_percent: float | None = None
    vram_used_mib: int | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    processes: int | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the readings that are not known."""
        return tuple(name for name in READINGS if getattr(self, name) is None)


class HealthKind(StrEnum):
    """What a health event is about."""

    XID = "xid"
    ECC = "ecc"
    UNAVAILABLE = "unavailable"
    LOST = "lost"
    RECOVERED = "recovered"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthEvent:
    """Something happened to a card. `fatal`: no new run may be placed on it."""

    uuid: str
    kind: HealthKind
    fatal: bool
    detail: str
    code: int | None = None


class Devices(Protocol):
    """The GPUs of this node. Every method raises DevicesUnknown when the driver gives no trustworthy answer."""

    @property
    def simulated(self) -> bool:
        """Whether these cards are only pretended."""
        ...

    async def inventory(self) -> tuple[GpuInfo, ...]:
        """All devices, by index, then UUID. A card that fell off the bus is not among them."""
        ...

    async def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        """The living processes on one device, by pid; of any owner. Empty is proof that none is there."""
        ...

    async def samples(self) -> tuple[GpuSample, ...]:
        """The readings of all devices, as `inventory` orders them."""
        ...

    async def health_events(self) -> tuple[HealthEvent, ...]:
        """What happened since the last call, oldest first. Does not wait."""
        ...

    async def close(self) -> None:
        """Lets the driver go."""
        ...
