"""The web application: its routes, and every error as a problem document (RFC 9457)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import asyncpg
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from makeway_runtime.errors import MakewayRuntimeError
from makeway_runtime.postgres.transient import is_transient
from makeway_schemas.api import PROBLEM_TYPE, FieldProblem, Problem
from makeway_schemas.refusals import path_of, said, sentence_of
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.responses import Response

from makeway_admission import (
    channel,
    cluster,
    commands,
    events,
    health,
    jobs,
    logs,
    nodes,
    policies,
    preemptions,
    resolve,
    teams,
    tokens,
    why,
)
from makeway_admission.doors import Doors
from makeway_admission.errors import ProblemCode, Refused, problem_of

_LOG: Final = structlog.get_logger(__name__)

ROUTERS: Final = (
    jobs.router,
    resolve.router,
    why.router,
    commands.router,
    events.router,
    logs.router,
    nodes.router,
    cluster.router,
    teams.router,
    tokens.router,
    policies.router,
    preemptions.router,
    channel.router,
    health.router,
)


def create_app(doors: Doors | None) -> FastAPI:
    """The application. Without `doors` it answers nothing, but can be described."""
    # The description is generated at build time and served as a file: making it costs memory and a third of a second.
    app = FastAPI(title="makeway", version="1", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.doors = doors
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(Refused, _on_refused)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    for kind in (asyncpg.PostgresError, asyncpg.InterfaceError, MakewayRuntimeError, OSError):
        app.add_exception_handler(kind, _on_trouble)
    app.add_exception_handler(Exception, _on_crash)
    return app


def problem_response(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    """A problem as an answer."""
    body = problem.model_dump_json(exclude_defaults=False)
    return Response(body, status_code=problem.status, media_type=PROBLEM_TYPE, headers=headers)


async def _on_refused(_request: Request, error: Exception) -> Response:
    if not isinstance(error, Refused):
        raise error
    return problem_response(error.problem, error.headers)


async def _on_invalid(_request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    fields = _fields(error.errors())
    return problem_response(problem_of(ProblemCode.INVALID_FIELD, said(fields), fields))


def _fields(errors: Sequence[ErrorDetails]) -> tuple[FieldProblem, ...]:
    found = []
    for each in errors:
        # The first part says where it was: query, path, header.
        found.append(FieldProblem(field=path_of(each["loc"][1:]), message=sentence_of(each)))
    return tuple(found)


async def _on_http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    code = ProblemCode.METHOD_NOT_ALLOWED if error.status_code == 405 else ProblemCode.NOT_FOUND
    detail = f"{request.method} {request.url.path[:200]}"
    return problem_response(problem_of(code, detail), dict(error.headers or {}))


async def _on_trouble(_request: Request, error: Exception) -> Response:
    if is_transient(error):
        _LOG.warning("not available", error=repr(error))
        detail = "the database or the log store is out of reach or busy; repeat a submit with the same Idempotency-Key"
        return problem_response(problem_of(ProblemCode.UNAVAILABLE, detail), {"Retry-After": "1"})
    if isinstance(error, (asyncpg.CharacterNotInRepertoireError, asyncpg.UntranslatableCharacterError)):
        detail = "a value has a character that no text here can have, such as NUL"
        return problem_response(problem_of(ProblemCode.BAD_REQUEST, detail))
    _LOG.error("a request failed", exc_info=error)
    return problem_response(problem_of(ProblemCode.INTERNAL))


async def _on_crash(_request: Request, _error: Exception) -> Response:
    return problem_response(problem_of(ProblemCode.INTERNAL))
