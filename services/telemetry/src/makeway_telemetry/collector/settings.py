"""The collector's settings."""

from __future__ import annotations

from typing import Annotated

from makeway_runtime.settings import DatabaseServiceSettings
from pydantic import Field, PositiveFloat


class CollectorSettings(DatabaseServiceSettings):
    """Read from `MAKEWAY_*`."""

    group: str = "makeway-collector"
    batch_timeout_ms: Annotated[int, Field(ge=10, le=5_000)] = 500
    """The pause after an empty poll; readings are seconds old anyway."""
    stale_seconds: PositiveFloat = 30.0
    """Older readings are not shown."""
    history_hours: PositiveFloat = 24.0
    dcgm_names: bool = False
    """Shows the series under the names of NVIDIA's exporter too. Off where that exporter is scraped as well."""
