"""Readings of a node's GPUs (topic ``gpu.samples``). A reading that is not known is left out, never 0."""

from typing import Literal

from pydantic import Field

from makeway_schemas.ids import GpuId, NodeId
from makeway_schemas.messages import Message

SAMPLES_TYPE = "makeway.gpu.samples.v1"


class GpuSample(Message):
    """One card's readings; None is "not known"."""

    gpu_id: GpuId
    index: int
    type_name: str = ""
    utilisation_percent: float | None = Field(default=None, ge=0, le=100)
    memory_utilisation_percent: float | None = Field(default=None, ge=0, le=100)
    vram_used_mib: int | None = Field(default=None, ge=0)
    vram_total_mib: int | None = Field(default=None, ge=0)
    power_watts: float | None = None
    temperature_celsius: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    processes: int | None = None
    healthy: bool = True
    reason: str = ""


class GpuSamples(Message):
    """One round over all cards of a node."""

    version: Literal[1] = 1
    node_id: NodeId
    simulated: bool = False
    gpus: tuple[GpuSample, ...]
