"""The sampler's settings."""

from __future__ import annotations

import socket
from typing import Annotated

from makeway_runtime.settings import ServiceSettings
from makeway_schemas.ids import NodeId
from pydantic import Field


class SamplerSettings(ServiceSettings):
    """Read from `MAKEWAY_*`. `state_dir` is the node's, shared with its executor."""

    node_name: NodeId = Field(default_factory=lambda: socket.gethostname().lower())
    simulate: str | None = None
    """For example 4xA100-80GB; without it the driver is asked."""
    sample_seconds: Annotated[float, Field(ge=0.05, le=60)] = 5.0
    inventory_seconds: Annotated[float, Field(ge=0.05, le=600)] = 30.0
    """How often the list of devices is read anew, and the health of cards that ever failed is repeated."""
