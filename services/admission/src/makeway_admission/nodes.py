"""Nodes and their GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter, Request
from makeway_schemas.api import GpuView, NodeClosing, NodeCommandAccepted, NodeDeath, NodeView
from makeway_schemas.id_patterns import NODE_ID_PATTERN
from starlette.responses import Response

from makeway_admission.access import Principal, require_all
from makeway_admission.answers import PROBLEMS, answer, answer_list, json_body
from makeway_admission.bodies import read_document
from makeway_admission.doors import Admin, Doors, ServiceDoors, Viewer
from makeway_admission.errors import not_found
from makeway_admission.facts import fact_row
from makeway_admission.jobs import traceparent_of
from makeway_admission.requests import parse_model
from makeway_admission.views import gpu_view, node_view

router: Final = APIRouter(tags=["nodes"], responses=PROBLEMS)

_NODE_ID: Final = re.compile(NODE_ID_PATTERN)


@router.get("/v1/nodes", response_model=list[NodeView])
async def list_nodes(doors: ServiceDoors, _principal: Viewer) -> Response:
    """The pool's nodes, by name."""
    return answer_list([node_view(row) for row in await doors.store.list_nodes()])


@router.post(
    "/v1/nodes/{node_id}/cordon",
    status_code=202,
    response_model=NodeCommandAccepted,
    openapi_extra=json_body(NodeClosing),
)
async def cordon_node(request: Request, doors: ServiceDoors, principal: Admin, node_id: str) -> Response:
    """Place nothing new on a node; what runs there goes on."""
    body = parse_model(NodeClosing, await read_document(request))
    return await _command(request, doors, principal, node_id, "cordon", {"reason": body.reason})


@router.post(
    "/v1/nodes/{node_id}/drain",
    status_code=202,
    response_model=NodeCommandAccepted,
    openapi_extra=json_body(NodeClosing),
)
async def drain_node(request: Request, doors: ServiceDoors, principal: Admin, node_id: str) -> Response:
    """Place nothing new on a node and have its runs leave, each as soon as nothing protects it, or forced at once."""
    body = parse_model(NodeClosing, await read_document(request))
    return await _command(request, doors, principal, node_id, "drain", {"reason": body.reason, "force": body.force})


@router.post("/v1/nodes/{node_id}/uncordon", status_code=202, response_model=NodeCommandAccepted)
async def uncordon_node(request: Request, doors: ServiceDoors, principal: Admin, node_id: str) -> Response:
    """Let a node take runs again; this ends a drain too."""
    return await _command(request, doors, principal, node_id, "uncordon", {})


@router.post(
    "/v1/nodes/{node_id}/dead",
    status_code=202,
    response_model=NodeCommandAccepted,
    openapi_extra=json_body(NodeDeath),
)
async def declare_node_dead(request: Request, doors: ServiceDoors, principal: Admin, node_id: str) -> Response:
    """Give up a silent node: what ran there is lost and its jobs go back to the queue."""
    body = parse_model(NodeDeath, await read_document(request))
    return await _command(request, doors, principal, node_id, "dead", {"reason": body.reason})


async def _command(
    request: Request, doors: Doors, principal: Principal, node_id: str, command: str, arguments: Mapping[str, Any]
) -> Response:
    require_all(principal, "operating nodes")
    if _NODE_ID.fullmatch(node_id) is None:
        raise not_found(f"node {node_id[:100]}")
    kept = await doors.store.issue_node_command(
        node_id, command, arguments, issued_by=principal.name, traceparent=traceparent_of(request)
    )
    if kept.command_id is None or kept.outbox_id is None:
        raise not_found(f"node {node_id}")
    doors.outbox.committed([fact_row(kept.outbox_id, doors.settings.pool, kept.fact)])
    return answer(NodeCommandAccepted(command_id=kept.command_id, node_id=node_id), 202)


@router.get("/v1/gpus", response_model=list[GpuView])
async def list_gpus(doors: ServiceDoors, _principal: Viewer, node: str | None = None) -> Response:
    """The pool's GPUs, by node and index. Jobs are public by their id alone; the rest of a job is its team's."""
    rows = await doors.store.list_gpus()
    return answer_list([gpu_view(row) for row in rows if node in (None, row["node_id"])])
