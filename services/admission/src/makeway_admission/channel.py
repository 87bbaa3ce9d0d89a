"""The connection that a node opens for the logs of all its runs.

The node sends a text frame `{"type": "log", "run_id", "offset", "size"}` followed by one binary frame of `size` bytes,
and at the end of a run `{"type": "log_end", "run_id", "size"}`. Each is answered `{"type": "stored", "run_id",
"offset"}` with the bytes held now: where that is not what the node expected, it goes on from there. A run that is not
this node's, or whose log is full, is answered `{"type": "refused", "run_id", "reason"}`; the others go on.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Annotated, Final, Literal

import structlog
from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from makeway_runtime.postgres.transient import is_transient
from makeway_schemas.ids import RunId
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from makeway_admission import measures
from makeway_admission.access import Role
from makeway_admission.doors import Doors
from makeway_admission.errors import ProblemCode, Refused, refused
from makeway_admission.log_store import LogTooLarge
from makeway_admission.parameters import require_known_parameters

_LOG: Final = structlog.get_logger(__name__)

router: Final = APIRouter()

FRAME_BYTES: Final = 256 * 1024
_HEAD_BYTES: Final = 4096
_RUNS_REMEMBERED: Final = 4096
_CLOSE_BAD_FRAME: Final = 1002
_CLOSE_REVOKED: Final = 1008
_CLOSE_REPLACED: Final = 4000
_CLOSE_TRY_LATER: Final = 1013


class LogHead(BaseModel):
    """What the next binary frame is."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: Literal["log"]
    run_id: RunId
    offset: int = Field(ge=0, lt=2**63, strict=True)
    size: int = Field(ge=0, le=FRAME_BYTES, strict=True)


class LogEnd(BaseModel):
    """The run's log is complete with `size` bytes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: Literal["log_end"]
    run_id: RunId
    size: int = Field(ge=0, lt=2**63, strict=True)


_HEAD: Final[TypeAdapter[LogHead | LogEnd]] = TypeAdapter(Annotated[LogHead | LogEnd, Field(discriminator="type")])


class _BadFrame(Exception):
    """The node does not keep to the protocol; the text says where."""


class _CannotStore(Exception):
    """The log store cannot be written; the text says why."""


class _Channel:
    """One node's connection."""

    def __init__(self, socket: WebSocket, doors: Doors, node: str) -> None:
        self._socket = socket
        self._doors = doors
        self._node = node
        self._own: OrderedDict[str, bool] = OrderedDict()

    async def serve(self, authorization: str | None) -> None:
        """Stores until the node goes, or is told to come back later."""
        while True:
            text = await self._socket.receive_text()
            # The token may have been revoked since; asking costs nothing within its remembered second.
            await self._doors.access.principal(authorization)
            head = _head(text)
            data = await self._socket.receive_bytes() if isinstance(head, LogHead) else b""
            if isinstance(head, LogHead) and len(data) != head.size:
                raise _BadFrame(f"{len(data)} bytes follow a head that says {head.size}")
            offset = head.offset if isinstance(head, LogHead) else head.size
            await self._answer(head.run_id, offset, data)

    async def _answer(self, run_id: str, offset: int, data: bytes) -> None:
        if not await self._is_own(run_id):
            await self._send(type="refused", run_id=run_id, reason="the run is not this node's")
            return
        try:
            held = self._doors.logs.append(run_id, offset, data) if data else self._doors.logs.size(run_id)
        except LogTooLarge as error:
            await self._send(type="refused", run_id=run_id, reason=str(error))
            return
        except OSError as error:
            raise _CannotStore(repr(error)) from error
        measures.LOG_BYTES.inc(len(data))
        await self._send(type="stored", run_id=run_id, offset=held)

    async def _is_own(self, run_id: str) -> bool:
        if run_id not in self._own:
            if await self._doors.store.node_of_run(run_id) != self._node:
                return False
            self._own[run_id] = True
            if len(self._own) > _RUNS_REMEMBERED:
                self._own.popitem(last=False)
        return True

    async def _send(self, **message: str | int) -> None:
        await self._socket.send_text(json.dumps(message, separators=(",", ":")))


@router.websocket("/v1/nodes/{node}/channel")
async def node_channel(socket: WebSocket, node: str) -> None:
    """Takes the logs of a node's runs, as the module says. The token must be that node's."""
    doors: Doors = socket.app.state.doors
    authorization = socket.headers.get("authorization")
    principal = await doors.access.principal(authorization)
    if principal.role is not Role.NODE or principal.node != node:
        raise refused(ProblemCode.FORBIDDEN, f"the token is not that of node {node[:64]}")
    require_known_parameters(socket)
    await socket.accept()
    older = doors.channels.pop(node, None)
    if older is not None:
        await _close(older, _CLOSE_REPLACED, "the node has opened another channel")
    doors.channels[node] = socket
    measures.NODE_CHANNELS.set(len(doors.channels))
    try:
        await _Channel(socket, doors, node).serve(authorization)
    except WebSocketDisconnect:
        return
    except Exception as error:  # noqa: BLE001 - what nobody expected is raised again
        await _end_with(error, socket, node)
    finally:
        if doors.channels.get(node) is socket:
            del doors.channels[node]
        measures.NODE_CHANNELS.set(len(doors.channels))


async def _end_with(error: Exception, socket: WebSocket, node: str) -> None:
    """Close the channel and tell the node why; raises again what nobody expected."""
    if isinstance(error, _BadFrame | KeyError):
        _LOG.warning("a node does not keep to the protocol", node=node, error=str(error))
        await _close(socket, _CLOSE_BAD_FRAME, str(error))
    elif isinstance(error, Refused):
        await _close(socket, _CLOSE_REVOKED, str(error))
    elif isinstance(error, _CannotStore):
        _LOG.error("a log cannot be stored", node=node, error=str(error))
        await _close(socket, _CLOSE_TRY_LATER, "the log store cannot be written just now")
    elif is_transient(error):
        _LOG.warning("the logs of a node wait for the database", node=node, error=repr(error))
        await _close(socket, _CLOSE_TRY_LATER, "the database is out of reach or busy")
    else:
        raise error


def _head(text: str) -> LogHead | LogEnd:
    if len(text) > _HEAD_BYTES:
        raise _BadFrame(f"a text frame has {len(text)} characters")
    try:
        return _HEAD.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _BadFrame(f"a text frame is not valid: {first['loc']}: {first['msg']}") from error


async def _close(socket: WebSocket, code: int, reason: str) -> None:
    try:
        await socket.close(code, reason[:100])
    except (RuntimeError, OSError, WebSocketDisconnect):
        # It has gone already, which is what was wanted.
        return
