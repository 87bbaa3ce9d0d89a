"""Answers from models: serialised once, by pydantic itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from makeway_schemas.api import Problem
from pydantic import BaseModel
from starlette.responses import Response

Responses = dict[int | str, dict[str, Any]]

PROBLEMS: Final[Responses] = {
    "4XX": {"model": Problem, "description": "A problem document; docs/api.md lists the codes."},
    "5XX": {"model": Problem, "description": "A problem document."},
}
"""What every route can answer too."""


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """What FastAPI should say of a body that the handler reads itself; the model's schema is added by `generate`."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def answer(model: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """One model as JSON."""
    return Response(model.model_dump_json(by_alias=True), status, headers, media_type="application/json")


def answer_list(models: Sequence[BaseModel]) -> Response:
    """Models as a JSON array."""
    body = ",".join(model.model_dump_json(by_alias=True) for model in models)
    return Response(f"[{body}]", media_type="application/json")
