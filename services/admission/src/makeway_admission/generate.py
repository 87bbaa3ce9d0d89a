"""Writes the description of the HTTP API: `python -m makeway_admission.generate [--check]`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from fastapi.openapi.utils import get_openapi
from makeway_schemas.api import (
    LimitsChange,
    NodeClosing,
    NodeDeath,
    PreemptBody,
    PriorityChange,
    TeamBody,
    TokenRequest,
)
from makeway_schemas.generate import render, write_or_check
from makeway_schemas.job_spec import JobSpec
from makeway_schemas.policy_file import PolicyFile
from pydantic.json_schema import models_json_schema

from makeway_admission.web import create_app

FILE: Final = Path(__file__).parent / "generated" / "openapi.json"
_BODIES: Final = (
    JobSpec,
    TeamBody,
    TokenRequest,
    PriorityChange,
    LimitsChange,
    PreemptBody,
    NodeClosing,
    NodeDeath,
    PolicyFile,
)


def document() -> dict[str, Any]:
    """The OpenAPI document: routes by FastAPI, request bodies by their models, the bearer token on all but a few."""
    app = create_app(None)
    described = get_openapi(
        title="makeway",
        version="1",
        summary="Submit jobs to a preemptive GPU scheduler and see what becomes of them.",
        routes=app.routes,
    )
    _, bodies = models_json_schema(
        [(model, "validation") for model in _BODIES], ref_template="#/components/schemas/{model}"
    )
    components = described.setdefault("components", {})
    components.setdefault("schemas", {}).update(bodies["$defs"])
    components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    described["security"] = [{"bearer": []}]
    for path in ("/healthz", "/openapi.json"):
        described["paths"][path]["get"]["security"] = []
    for path in described["paths"].values():
        for operation in path.values():
            _forget_authorization(operation)
    return described


def _forget_authorization(operation: dict[str, Any]) -> None:
    """The bearer scheme says it; OpenAPI has a header parameter of that name ignored."""
    if "parameters" in operation:
        operation["parameters"] = [each for each in operation["parameters"] if each["name"] != "authorization"]


if __name__ == "__main__":
    sys.exit(write_or_check({FILE: render(document())}, sys.argv[1:]))
