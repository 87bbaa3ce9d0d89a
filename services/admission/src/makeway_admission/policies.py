"""The policy in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from makeway_admission.answers import PROBLEMS
from makeway_admission.doors import ServiceDoors, Viewer

router: Final = APIRouter(tags=["policy"], responses=PROBLEMS)


@router.get("/v1/policy", response_model=dict[str, Any])
async def effective_policy(doors: ServiceDoors, _principal: Viewer) -> Response:
    """Every value of the policy; durations in seconds."""
    return JSONResponse(plain(doors.policy))


def plain(value: object) -> object:
    """Frozen values as JSON knows them."""
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return [plain(inner) for inner in value]
    if isinstance(value, set | frozenset):
        return sorted(str(inner) for inner in value)
    return value
