"""Query parameters: those of the route, each of them once unless it is a list. Others are refused by name.

A filter that is misspelt would show everything otherwise, and a misspelt dry run would change what it is to spare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import get_args, get_origin

from fastapi.routing import APIRoute, APIWebSocketRoute
from makeway_schemas.api import FieldProblem
from makeway_schemas.refusals import MAX_FIELDS, said, unknown_name
from starlette.requests import HTTPConnection

from makeway_admission.errors import ProblemCode, Refused, problem_of


def require_known_parameters(connection: HTTPConnection) -> None:
    """Raises Refused (422) with each query parameter that the route has not, or that is given twice and is no list."""
    # Most requests have none, and submitting is the path whose milliseconds count.
    if not connection.scope["query_string"]:
        return
    known = _parameters_of(connection.scope["route"])
    given = Counter(name for name, _ in connection.query_params.multi_items())
    unknown = [_problem(name, unknown_name("parameter", name, tuple(known))) for name in given.keys() - known.keys()]
    twice = [_problem(name, "is given twice") for name, is_list in known.items() if given[name] > 1 and not is_list]
    if unknown or twice:
        fields = tuple(sorted((*unknown, *twice), key=lambda each: each.field)[:MAX_FIELDS])
        code = ProblemCode.INVALID_FIELD if twice else ProblemCode.UNKNOWN_FIELD
        raise Refused(problem_of(code, said(fields), fields))


def _parameters_of(route: APIRoute | APIWebSocketRoute) -> Mapping[str, bool]:
    """The names of a route's query parameters, each with whether it is a list, which may be given more than once."""
    return {each.alias: _is_list(each.field_info.annotation) for each in route.dependant.query_params}


def _is_list(annotation: object) -> bool:
    return any(get_origin(each) is list for each in (annotation, *get_args(annotation)))


def _problem(name: str, message: str) -> FieldProblem:
    return FieldProblem(field=name[:300], message=message)
