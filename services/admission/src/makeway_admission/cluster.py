"""Figures of the whole pool."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from itertools import groupby
from typing import Final

from fastapi import APIRouter
from makeway_schemas.api import ClusterView, GpuTypeFigures
from makeway_schemas.states import GpuState
from starlette.responses import Response

from makeway_admission.answers import PROBLEMS, answer
from makeway_admission.doors import ServiceDoors, Viewer
from makeway_admission.reads import Record
from makeway_admission.undecided import silence_of
from makeway_admission.views import gpu_state

router: Final = APIRouter(tags=["cluster"], responses=PROBLEMS)

VERSION: Final = version("makeway-admission")


@router.get("/v1/cluster", response_model=ClusterView)
async def cluster(doors: ServiceDoors, _principal: Viewer) -> Response:
    """What there is, what is leased, what is measured, and who decides."""
    nodes = await doors.store.list_nodes()
    gpus = await doors.store.list_gpus()
    owner = await doors.store.pool_owner()
    by_type = sorted(gpus, key=lambda row: str(row["type_name"]))
    return answer(
        ClusterView(
            version=VERSION,
            nodes=len(nodes),
            nodes_ready=sum(row["state"] == "READY" for row in nodes),
            gpus=len(gpus),
            gpus_leased=sum(map(_is_leased, gpus)),
            jobs=await doors.store.job_counts(),
            by_type=tuple(
                figures_of(doors.settings.pool, name, list(rows))
                for name, rows in groupby(by_type, key=lambda row: str(row["type_name"]))
            ),
            scheduler="" if owner is None else owner["owner"],
            scheduler_silent_seconds=None if owner is None else silence_of(owner),
            epoch=0 if owner is None else owner["epoch"],
        )
    )


def figures_of(pool: str, type_name: str, gpus: Sequence[Record]) -> GpuTypeFigures:
    """Sums over the GPUs of one type; a reading that is not known is left out and counted."""
    used = [row["vram_used_mib"] for row in gpus if row["vram_used_mib"] is not None]
    utilisation = [row["utilisation_percent"] for row in gpus if row["utilisation_percent"] is not None]
    ages = [row["reading_age_seconds"] for row in gpus if row["sampled_at"] is not None]
    unusable = (GpuState.LOST, GpuState.QUARANTINED, GpuState.CORDONED)
    return GpuTypeFigures(
        pool=pool,
        type_name=type_name,
        gpus=len(gpus),
        gpus_leased=sum(map(_is_leased, gpus)),
        gpus_unusable=sum(gpu_state(row) in unusable for row in gpus),
        vram_mib=sum(row["capacity_mib"] for row in gpus),
        vram_leased_mib=sum(row["leased_mib"] for row in gpus),
        vram_used_mib=sum(used) if used else None,
        utilisation_percent=sum(utilisation) / len(utilisation) if utilisation else None,
        readings_age_seconds=max(ages, default=None),
        unknown_readings=len(gpus) - min(len(used), len(utilisation)),
        simulated=any(row["simulated"] for row in gpus),
    )


def _is_leased(row: Record) -> bool:
    return bool(row["live_slots"] + row["leaving_slots"])
