"""Nodes, GPUs and what they come to."""

from datetime import datetime

from pydantic import ConfigDict, Field

from makeway_schemas.api.base import ApiModel


class NodeClosing(ApiModel):
    """``POST /v1/nodes/{id}/cordon`` and ``/drain``: why; and for a drain, whether to overrule what protects runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: str = Field(default="", max_length=500)
    force: bool = Field(default=False, strict=True)


class NodeDeath(ApiModel):
    """``POST /v1/nodes/{id}/dead``: why a silent node is given up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: str = Field(default="", max_length=500)


class NodeCommandAccepted(ApiModel):
    """202: the request is kept; it has taken effect once ``GET /v1/commands/{id}`` has an outcome."""

    command_id: int
    node_id: str


class GpuView(ApiModel):
    """A GPU with its leases and its newest readings; an unknown reading is null."""

    gpu_id: str
    node: str
    index: int
    type_name: str
    vram_mib: int
    state: str
    reason: str = Field(default="", description="Why it takes no new runs; empty where it does.")
    failed: bool = Field(
        default=False,
        description="Its driver has told of a fault; until it is listed anew, or its node boots, it is not used.",
    )
    simulated: bool = False
    leased_mib: int = 0
    jobs: tuple[str, ...] = ()
    next_jobs: tuple[str, ...] = ()
    utilisation_percent: float | None = None
    vram_used_mib: int | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    sampled_at: datetime | None = None
    reading_age_seconds: float | None = Field(default=None, description="How old the readings are.")


class NodeView(ApiModel):
    """A node and what it carries."""

    node_id: str
    pool: str
    state: str
    accepts_runs: bool
    refusal: str = ""
    cordoned: bool = False
    draining: bool = False
    note: str = Field(
        default="", description="Who cordoned or drains it, or declared it dead, and why; the newest reason first."
    )
    simulated: bool
    gpus: int
    gpus_leased: int
    cpus: int
    memory_mib: int
    labels: dict[str, str] = Field(default_factory=dict)
    version: str = ""
    state_since: datetime


class GpuTypeFigures(ApiModel):
    """Figures of one GPU type in one pool; sums skip unknown readings, whose number is said."""

    pool: str
    type_name: str
    gpus: int
    gpus_leased: int
    gpus_unusable: int
    vram_mib: int
    vram_leased_mib: int
    vram_used_mib: int | None = None
    utilisation_percent: float | None = None
    readings_age_seconds: float | None = Field(
        default=None,
        description="How old the oldest reading is that is counted; what was measured then may have ended.",
    )
    unknown_readings: int = 0
    simulated: bool = False


class ClusterView(ApiModel):
    """``GET /v1/cluster``."""

    version: str
    nodes: int
    nodes_ready: int
    gpus: int
    gpus_leased: int
    jobs: dict[str, int]
    by_type: tuple[GpuTypeFigures, ...]
    scheduler: str = Field(description="The pool's owner, or empty while it has none.")
    scheduler_silent_seconds: float | None = Field(
        default=None, description="For how long the owner has not answered, though it is there; null while it does."
    )
    epoch: int
