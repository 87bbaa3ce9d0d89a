"""Reading the logs of a job: every byte of its runs once and in order, to the last one."""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query
from makeway_policy.quantities import quantity, verb
from makeway_schemas.ids import job_of
from starlette.responses import Response

from makeway_admission.answers import PROBLEMS, Responses
from makeway_admission.doors import Doors, ServiceDoors, Viewer, visible_job
from makeway_admission.errors import ProblemCode, not_found, refused
from makeway_admission.feed import Subscription
from makeway_admission.log_store import LogStore
from makeway_admission.streams import EVENT_STREAM, KeepAlive, StreamResponse, server_sent

router: Final = APIRouter(tags=["logs"], responses=PROBLEMS)

CHUNK_BYTES: Final = 128 * 1024
LAST_BYTES_SECONDS: Final = 10.0
"""How long the rest of an ended run's log is waited for, counted from the last byte that came."""
_MOST_TAIL_LINES: Final = 1_000_000
_STREAM: Final[Responses] = {
    200: {
        "content": {"application/octet-stream": {}, EVENT_STREAM: {}},
        "description": "The bytes; or events `log` (run, offset, data in base64), `note` and `end`.",
    }
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Bytes of one run's log, and where they begin."""

    run: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a reader should know that no run wrote."""

    run: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run's log as the database knows it. `expected`: its bytes, known once it has ended."""

    number: int
    run_id: str
    ended: bool
    expected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a reader wants. `run` None: all runs. `tail`: only that many last lines of what is there at the start."""

    job_id: str
    run: int | None
    follow: bool
    tail: int | None
    start: tuple[int, int] | None = None


@router.get("/v1/jobs/{job_id}/logs", response_class=Response, responses=_STREAM)
async def job_logs(
    doors: ServiceDoors,
    principal: Viewer,
    job_id: str,
    follow: bool = False,
    run: Annotated[str, Query(description="A run's number, or `all`.")] = "all",
    tail: Annotated[int | None, Query(ge=0, le=_MOST_TAIL_LINES, description="Only the last lines.")] = None,
    accept: Annotated[str, Header()] = "",
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> Response:
    """A job's output, runs in order. With `follow` it ends by itself after the last byte of the last run."""
    await visible_job(doors, principal, job_id)
    selection = Selection(
        job_id=job_id, run=_run_number(run), follow=follow, tail=tail, start=_log_cursor(last_event_id)
    )
    if selection.run is not None and not follow:
        numbers = [row["run_number"] for row in await doors.store.logs_of_runs(job_id)]
        if selection.run not in numbers:
            raise not_found(f"run {selection.run} of job {job_id}")
    if EVENT_STREAM in accept:
        return StreamResponse(
            _as_events(doors, selection), doors.streams, doors.access.until_refused, media_type=EVENT_STREAM
        )
    return StreamResponse(
        _as_bytes(doors, selection), doors.streams, doors.access.until_refused, media_type="application/octet-stream"
    )


async def _as_bytes(doors: Doors, selection: Selection) -> AsyncGenerator[bytes, None]:
    async for part in follow_log(doors, selection):
        if isinstance(part, Chunk):
            yield part.data


async def _as_events(doors: Doors, selection: Selection) -> AsyncGenerator[bytes, None]:
    keep_alive = KeepAlive()
    async for part in follow_log(doors, selection):
        if isinstance(part, Chunk):
            data = {"run": part.run, "offset": part.offset, "data": base64.b64encode(part.data).decode()}
            yield server_sent("log", data, event_id=f"{part.run}:{part.offset + len(part.data)}")
        elif isinstance(part, Note):
            yield server_sent("note", {"run": part.run, "message": part.message})
        if keep_alive.is_due(sent=part is not None):
            yield keep_alive.TEXT
    if not doors.feed.closing:
        # Else it is not the end: the reader is to come back with its cursor.
        yield server_sent("end", {})


async def follow_log(doors: Doors, selection: Selection) -> AsyncGenerator[Chunk | Note | None, None]:
    """The chosen runs' bytes. None now and then while nothing comes, so that the caller can say it is alive."""
    with doors.feed.subscribe(selection.job_id) as subscription:
        number, offset = await _start(doors, selection, subscription)
        while not subscription.closing:
            runs, job_ended = await _look(doors, selection.job_id)
            run = _current(runs, number, selection)
            if run is None:
                if job_ended or not selection.follow or _is_past(number, selection):
                    return
                await subscription.wait()
                yield None
                continue
            offset = offset if run.number == number else 0
            number = run.number
            async for part in _follow_run(doors, run, offset, selection, subscription):
                yield part
            number, offset = number + 1, 0


async def _follow_run(
    doors: Doors, run: Run, offset: int, selection: Selection, subscription: Subscription
) -> AsyncGenerator[Chunk | Note | None, None]:
    """One run's bytes from `offset` to its last, or to what is there where nobody follows a run that goes on."""
    progress_at = time.monotonic()
    with doors.logs.watch(run.run_id, subscription.bell):
        while not subscription.closing:
            data = doors.logs.read(run.run_id, offset, CHUNK_BYTES)
            if data:
                yield Chunk(run=run.number, offset=offset, data=data)
                offset += len(data)
                progress_at = time.monotonic()
                continue
            if run.ended and offset >= run.expected:
                return
            if not run.ended and not selection.follow:
                return
            if run.ended and time.monotonic() - progress_at > LAST_BYTES_SECONDS:
                missing = run.expected - offset
                said = f"{quantity(missing, 'byte')} of run {run.number} {verb(missing, 'has', 'have')} not come"
                yield Note(run=run.number, message=f"{said} from its node")
                return
            await subscription.wait()
            if subscription.moved and not run.ended:
                subscription.moved = False
                run = await _again(doors, run)
            yield None


async def _start(doors: Doors, selection: Selection, subscription: Subscription) -> tuple[int, int]:
    """Where to begin: run number and offset."""
    if selection.start is not None:
        return selection.start
    if selection.tail is None:
        return selection.run or 1, 0
    runs, _ = await _look(doors, selection.job_id)
    chosen = [run for run in runs if selection.run in (None, run.number)]
    if not chosen:
        return selection.run or 1, 0
    await _settle(doors, chosen[-1], subscription)
    return _tail_start(doors.logs, chosen, selection.tail)


async def _settle(doors: Doors, run: Run, subscription: Subscription) -> None:
    """Waits for the last bytes of an ended run, so that its last lines are its last lines."""
    until = time.monotonic() + LAST_BYTES_SECONDS
    with doors.logs.watch(run.run_id, subscription.bell):
        while run.ended and doors.logs.size(run.run_id) < run.expected and time.monotonic() < until:
            await subscription.wait()


def _tail_start(logs: LogStore, runs: list[Run], lines: int) -> tuple[int, int]:
    """Where the last `lines` lines of the runs together begin. A last line need not end in a newline."""
    wanted = lines
    for run in reversed(runs):
        end = logs.size(run.run_id)
        if wanted == 0:
            return run.number, end
        place = end
        first_block = True
        while place > 0:
            begin = max(0, place - CHUNK_BYTES)
            block = logs.read(run.run_id, begin, place - begin)
            if first_block and not block.endswith(b"\n"):
                wanted -= 1
            first_block = False
            found = block.count(b"\n")
            if found > wanted:
                position = len(block)
                for _ in range(wanted + 1):
                    position = block.rfind(b"\n", 0, position)
                return run.number, begin + position + 1
            wanted -= found
            place = begin
    return runs[0].number, 0


async def _look(doors: Doors, job_id: str) -> tuple[list[Run], bool]:
    # The state first: a job that had ended then has no run that the second answer lacks.
    head = await doors.store.job_head(job_id)
    rows = await doors.store.logs_of_runs(job_id)
    runs = [
        Run(
            number=row["run_number"],
            run_id=row["run_id"],
            ended=row["ended_at"] is not None,
            expected=row["log_bytes"] or 0,
        )
        for row in rows
    ]
    return runs, head is None or head["ended_at"] is not None


async def _again(doors: Doors, run: Run) -> Run:
    runs, _ = await _look(doors, job_of(run.run_id))
    return next((each for each in runs if each.number == run.number), run)


def _current(runs: list[Run], number: int, selection: Selection) -> Run | None:
    if _is_past(number, selection):
        return None
    return next((run for run in runs if run.number >= number and selection.run in (None, run.number)), None)


def _is_past(number: int, selection: Selection) -> bool:
    return selection.run is not None and number > selection.run


def _run_number(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isdecimal() or not 1 <= len(text) <= 9 or int(text) == 0:
        raise refused(ProblemCode.INVALID_FIELD, "must be a run's number, or all", field="run")
    return int(text)


def _log_cursor(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    number, _, offset = text.partition(":")
    if not (number.isdecimal() and offset.isdecimal() and len(text) <= 40):
        raise refused(ProblemCode.INVALID_FIELD, "is no id of an earlier event of this stream", field="Last-Event-ID")
    return max(1, int(number)), int(offset)
