"""How the service is, for machines, and the description of its API."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from fastapi import APIRouter, Depends
from makeway_runtime import metrics
from makeway_runtime.health import ask
from makeway_schemas.api import Health
from starlette.responses import Response

from makeway_admission import measures
from makeway_admission.answers import answer
from makeway_admission.doors import ServiceDoors, Viewer
from makeway_admission.parameters import require_known_parameters

router: Final = APIRouter(tags=["service"])

_KNOWN_PARAMETERS: Final = (Depends(require_known_parameters),)
"""Of the routes without a token; the others check them once they know who asks."""


@router.get("/healthz", response_model=Health, responses={503: {"model": Health}}, dependencies=_KNOWN_PARAMETERS)
async def healthz(doors: ServiceDoors) -> Response:
    """Whether the service can do its work. Needs no token."""
    answers = await ask(doors.checks())
    healthy = all(wrong is None for wrong in answers.values())
    checks = {name: wrong or "ok" for name, wrong in answers.items()}
    return answer(Health(healthy=healthy, checks=checks), 200 if healthy else 503)


@router.get("/metrics", response_class=Response)
async def prometheus(doors: ServiceDoors, _principal: Viewer) -> Response:
    """The process's series in Prometheus's text format."""
    measures.STREAMS.set(doors.streams.open)
    return Response(await metrics.page(), headers={"Content-Type": metrics.CONTENT_TYPE})


@router.get("/openapi.json", response_class=Response, dependencies=_KNOWN_PARAMETERS)
async def openapi() -> Response:
    """The description of this API, as generated and committed. Needs no token."""
    text = files("makeway_admission").joinpath("generated", "openapi.json").read_text(encoding="utf-8")
    return Response(text, media_type="application/json")
