"""Reading JSON bodies: within a size, without duplicate keys, every number in a form that its field can refuse."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from makeway_schemas.whole_numbers import read_whole
from starlette.requests import Request

from makeway_admission.errors import ProblemCode, refused
from makeway_admission.settings import MAX_BODY_BYTES

_DEEPEST: Final = 32
_BODY_SECONDS: Final = 30.0
_MOST_DISCARDED_BYTES: Final = 16 * MAX_BODY_BYTES
"""A body that is too large is read and thrown away up to here: a client still writing would not see the answer."""


class _DuplicateKey(ValueError):
    """Two members of one object have the same name: which one was meant is not known."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name[:100]


async def read_document(request: Request) -> dict[str, Any]:
    """The request's JSON object, whatever its Content-Type says: no other kind of body means anything here.

    Raises Refused: too large, not JSON, not an object, a key twice, nested too deep.
    """
    return parse_document(await _read(request))


def parse_document(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. NaN, infinities and huge integers come through, for the field to refuse."""
    try:
        document = json.loads(body, object_pairs_hook=_without_duplicates, parse_int=read_whole)
    except _DuplicateKey as error:
        raise refused(ProblemCode.BAD_REQUEST, "is given twice", field=error.name) from error
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise refused(ProblemCode.BAD_REQUEST, f"the body is not JSON: {reason}") from error
    if not isinstance(document, dict):
        raise refused(ProblemCode.BAD_REQUEST, "the body must be a JSON object")
    if _is_deeper(document, _DEEPEST):
        raise refused(ProblemCode.BAD_REQUEST, f"the body is nested deeper than {_DEEPEST} levels")
    return document


async def _read(request: Request) -> bytes:
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            return await _read_all(request)
    except TimeoutError as error:
        detail = f"the body took more than {_BODY_SECONDS:.0f} s to come"
        raise refused(ProblemCode.BAD_REQUEST, detail, headers={"Connection": "close"}) from error


async def _read_all(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > _MOST_DISCARDED_BYTES:
            break
        if size <= MAX_BODY_BYTES:
            parts.append(part)
    if size > MAX_BODY_BYTES:
        # What may be left of the body is not read: the connection ends with the answer.
        detail = f"the body may have {MAX_BODY_BYTES} bytes at most"
        raise refused(ProblemCode.TOO_LARGE, detail, headers={"Connection": "close"})
    return b"".join(parts)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _DuplicateKey(twice)
    return members


def _is_deeper(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    if levels == 0:
        return True
    return any(_is_deeper(inner, levels - 1) for inner in (value.values() if isinstance(value, dict) else value))
