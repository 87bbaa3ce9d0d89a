"""What the collector reads and writes in Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg
from asyncpg.pool import Pool
from makeway_runtime.postgres.pool import transaction
from makeway_runtime.postgres.queries import load_queries

from makeway_telemetry.collector.readings import Reading

_QUERIES: Final = load_queries("makeway_telemetry.collector")
_SAMPLE_COLUMNS: Final = (
    "sampled_at",
    "gpu_id",
    "node_id",
    "utilisation_percent",
    "vram_used_mib",
    "power_watts",
    "temperature_celsius",
)
DELETE_ROWS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCapacity:
    """A GPU as the scheduler knows it. `leased_mib` counts runs that are there or leaving."""

    gpu_id: str
    node_id: str
    gpu_index: int
    type_name: str
    capacity_mib: int
    leased_mib: int
    condition: str
    mig_profile: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A run on a GPU."""

    gpu_id: str
    node_id: str
    job_id: str
    run_id: str
    team: str


class Store:
    """The collector's statements. Every method raises what asyncpg raises."""

    def __init__(self, pool: Pool[asyncpg.Record]) -> None:
        """Borrows connections of `pool`."""
        self._pool = pool

    async def write(self, readings: Sequence[Reading]) -> None:
        """Adds readings to the history and keeps the newest of each GPU, in one transaction."""
        newest = {reading.gpu.gpu_id: reading for reading in readings}
        rows = [newest[gpu_id] for gpu_id in sorted(newest)]
        async with transaction(self._pool) as connection:
            await connection.copy_records_to_table(
                "samples", records=[_sample_row(reading) for reading in readings], columns=_SAMPLE_COLUMNS
            )
            await _QUERIES.upsert_readings(
                connection,
                gpu_ids=[row.gpu.gpu_id for row in rows],
                node_ids=[row.node_id for row in rows],
                sampled_at=[row.at for row in rows],
                utilisation_percent=[row.gpu.utilisation_percent for row in rows],
                memory_utilisation_percent=[row.gpu.memory_utilisation_percent for row in rows],
                vram_used_mib=[row.gpu.vram_used_mib for row in rows],
                vram_total_mib=[row.gpu.vram_total_mib for row in rows],
                power_watts=[row.gpu.power_watts for row in rows],
                temperature_celsius=[row.gpu.temperature_celsius for row in rows],
                processes=[row.gpu.processes for row in rows],
                healthy=[row.gpu.healthy for row in rows],
                reasons=[row.gpu.reason for row in rows],
                simulated=[row.simulated for row in rows],
            )

    async def forget(self, *, samples_before: datetime, readings_before: datetime) -> None:
        """Removes what is too old, in small transactions."""
        while True:
            async with transaction(self._pool) as connection:
                status = await _QUERIES.delete_old_samples(connection, before=samples_before, row_limit=DELETE_ROWS)
            if _count(status) < DELETE_ROWS:
                break
        async with transaction(self._pool) as connection:
            await _QUERIES.delete_old_readings(connection, before=readings_before)

    async def capacity(self) -> list[GpuCapacity]:
        """All GPUs, by id."""
        async with self._pool.acquire() as connection:
            return [GpuCapacity(**row) async for row in _QUERIES.capacity(connection)]

    async def leases(self) -> list[Lease]:
        """All leases whose run may be alive, by GPU, then run."""
        async with self._pool.acquire() as connection:
            return [Lease(**row) async for row in _QUERIES.leases_now(connection)]


def _sample_row(reading: Reading) -> tuple[object, ...]:
    gpu = reading.gpu
    return (
        reading.at,
        gpu.gpu_id,
        reading.node_id,
        gpu.utilisation_percent,
        gpu.vram_used_mib,
        gpu.power_watts,
        gpu.temperature_celsius,
    )


def _count(status: str) -> int:
    return int(status.rpartition(" ")[2])
