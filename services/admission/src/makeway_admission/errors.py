"""What admission says no with: one table of codes, and the exceptions that carry them to the border."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from makeway_schemas import refusals
from makeway_schemas.api import FieldProblem, Problem


class ProblemCode(StrEnum):
    """Stable words for programs; docs/api.md explains each."""

    BAD_REQUEST = "bad_request"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    AMBIGUOUS = "ambiguous"
    TOO_LARGE = "too_large"
    INVALID_FIELD = refusals.INVALID_FIELD
    UNKNOWN_FIELD = refusals.UNKNOWN_FIELD
    NOT_ALLOWED = "not_allowed"
    UNKNOWN_TEAM = "unknown_team"
    OVER_LIMIT = "over_limit"
    QUEUE_FULL = "queue_full"
    IDEMPOTENCY_KEY_REUSED = "idempotency_key_reused"
    TOO_MANY_STREAMS = "too_many_streams"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"


_STATUS: Final[Mapping[ProblemCode, tuple[int, str]]] = MappingProxyType(
    {
        ProblemCode.BAD_REQUEST: (400, "The request cannot be read"),
        ProblemCode.UNAUTHENTICATED: (401, "No valid token"),
        ProblemCode.FORBIDDEN: (403, "The token may not do this"),
        ProblemCode.NOT_FOUND: (404, "Not found"),
        ProblemCode.METHOD_NOT_ALLOWED: (405, "Method not allowed"),
        ProblemCode.AMBIGUOUS: (409, "More than one job fits"),
        ProblemCode.TOO_LARGE: (413, "The request is too large"),
        ProblemCode.INVALID_FIELD: (refusals.FIELD_STATUS, refusals.FIELD_TITLES[refusals.INVALID_FIELD]),
        ProblemCode.UNKNOWN_FIELD: (refusals.FIELD_STATUS, refusals.FIELD_TITLES[refusals.UNKNOWN_FIELD]),
        ProblemCode.NOT_ALLOWED: (422, "The team is not allowed this"),
        ProblemCode.UNKNOWN_TEAM: (422, "The team is not known"),
        ProblemCode.OVER_LIMIT: (422, "The job can never fit the team's limit"),
        ProblemCode.QUEUE_FULL: (429, "The team's queue is full"),
        ProblemCode.IDEMPOTENCY_KEY_REUSED: (422, "The idempotency key belongs to another request"),
        ProblemCode.TOO_MANY_STREAMS: (429, "Too many streams are open"),
        ProblemCode.UNAVAILABLE: (503, "Not available just now"),
        ProblemCode.INTERNAL: (500, "Something went wrong here"),
    }
)


class AdmissionError(Exception):
    """Base of all errors raised here."""


class Refused(AdmissionError):
    """A request that is answered with a problem; `headers` go with it."""

    def __init__(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        """`problem` is the whole answer."""
        super().__init__(problem.detail or problem.title)
        self.problem = problem
        self.headers = dict(headers or {})


class SettingsRefused(AdmissionError):
    """A setting that cannot be used, such as a bootstrap token of another form."""


def problem_of(code: ProblemCode, detail: str = "", fields: tuple[FieldProblem, ...] = ()) -> Problem:
    """The problem of a code, with its status and title."""
    status, title = _STATUS[code]
    return Problem(
        type=f"urn:makeway:problem:{code.value}",
        title=title,
        status=status,
        detail=detail,
        code=code.value,
        fields=fields,
    )


def refused(
    code: ProblemCode, detail: str = "", *, field: str | None = None, headers: Mapping[str, str] | None = None
) -> Refused:
    """The exception to raise for a code; with `field`, the detail is that field's message too."""
    fields = () if field is None else (FieldProblem(field=field, message=detail),)
    return Refused(problem_of(code, detail, fields), headers)


def not_found(what: str) -> Refused:
    """What does not exist, or is another team's, which must look the same."""
    return refused(ProblemCode.NOT_FOUND, f"there is no {what}")
