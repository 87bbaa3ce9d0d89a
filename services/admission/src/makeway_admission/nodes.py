"""Nodes and their GPUs."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from makeway_schemas.api import GpuView, NodeView
from starlette.responses import Response

from makeway_admission.answers import PROBLEMS, answer_list
from makeway_admission.doors import ServiceDoors, Viewer
from makeway_admission.views import gpu_view, node_view

router: Final = APIRouter(tags=["nodes"], responses=PROBLEMS)


@router.get("/v1/nodes", response_model=list[NodeView])
async def list_nodes(doors: ServiceDoors, _principal: Viewer) -> Response:
    """The pool's nodes, by name."""
    return answer_list([node_view(row) for row in await doors.store.list_nodes()])


@router.get("/v1/gpus", response_model=list[GpuView])
async def list_gpus(doors: ServiceDoors, _principal: Viewer, node: str | None = None) -> Response:
    """The pool's GPUs, by node and index. Jobs are public by their id alone; the rest of a job is its team's."""
    rows = await doors.store.list_gpus()
    return answer_list([gpu_view(row) for row in rows if node in (None, row["node_id"])])
