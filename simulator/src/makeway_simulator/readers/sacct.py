"""Slurm's accounting: the output of `sacct --parsable2 --allocations --format=...` (cells divided by `|`).

Needed columns: JobID, Submit, Elapsed or ElapsedRaw, and AllocTRES (or ReqTRES) with `gres/gpu=N`; used where present:
User or Account (the team), Timelimit or TimelimitRaw (minutes), QOS, Priority is not. Times are local as Slurm prints
them, read as UTC. Steps (`123.batch`), jobs without GPUs and jobs that never ran are left out.
"""

import re
from datetime import datetime
from pathlib import Path
from typing import Final

from makeway_schemas.whole_numbers import read_whole

from makeway_simulator.limits import GPUS_MOST, SECONDS_MOST
from makeway_simulator.readers.table import Row, Skipping, clipped, read_rows, seconds_of, shown
from makeway_simulator.trace import Trace, TraceJob

COLUMNS: Final = ("JobID", "Submit")

_DURATION: Final = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?", re.ASCII)
_DIGITS_MOST: Final = 9
_GPUS: Final = re.compile(r"(?:^|,)gres/gpu=([^,]*)")
_NO_LIMITS: Final = frozenset({"", "unlimited", "partition_limit", "invalid"})
"""What Slurm prints where a job has no time limit of its own."""


def read_sacct(path: Path, skipping: Skipping) -> Trace:
    """Read one listing. Times count from the first submission. Raises TraceError."""
    found = [job for job in read_rows(path, COLUMNS, _job, skipping, delimiter="|") if job is not None]
    start = min((at for at, _ in found), default=0.0)
    jobs = sorted((_from(start, at, job) for at, job in found), key=lambda job: job.submitted_at)
    return Trace(jobs=tuple(jobs), skipped=skipping.skipped)


def _from(start: float, at: float, job: TraceJob) -> TraceJob:
    return TraceJob(
        job_id=job.job_id,
        submitted_at=at - start,
        gpus=job.gpus,
        work_seconds=job.work_seconds,
        team=job.team,
        time_limit_seconds=job.time_limit_seconds,
    )


def _job(row: Row) -> tuple[float, TraceJob] | None:
    job_id = row.name_of("JobID")
    gpus = _gpus(row)
    if "." in job_id or not gpus:
        return None
    run_seconds = row.number("ElapsedRaw") if row.has("ElapsedRaw") else _duration(row, "Elapsed")
    if not run_seconds:
        return None
    limit = None
    if row.text_of("TimelimitRaw").lower() not in _NO_LIMITS:
        limit = row.number("TimelimitRaw", most=SECONDS_MOST / 60) * 60
    elif row.text_of("Timelimit").lower() not in _NO_LIMITS:
        limit = _duration(row, "Timelimit")
    return _submitted(row), TraceJob(
        job_id=job_id,
        submitted_at=0.0,
        gpus=gpus,
        work_seconds=run_seconds,
        team=row.text_of("Account") or row.text_of("User") or "default",
        time_limit_seconds=limit,
    )


def _gpus(row: Row) -> int:
    for column in ("AllocTRES", "ReqTRES"):
        found = _GPUS.search(row.text_of(column))
        if found is None:
            continue
        if not (found[1].isascii() and found[1].isdecimal()):
            raise row.refuse(column, f"gres/gpu={clipped(found[1])} is no whole number")
        if read_whole(found[1]) > GPUS_MOST:
            raise row.refuse(column, f"gres/gpu is more than {GPUS_MOST}")
        return int(found[1])
    return 0


def _submitted(row: Row) -> float:
    text = row.name_of("Submit")
    if text.isdecimal():
        return row.number("Submit")
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise row.refuse("Submit", f"{shown(text)} is no date and time") from error
    try:
        return seconds_of(at)
    except ValueError as error:
        raise row.refuse("Submit", str(error)) from error


def _duration(row: Row, column: str) -> float:
    text = row.name_of(column)
    found = _DURATION.fullmatch(text)
    if found is None or any(len(part or "") > _DIGITS_MOST for part in found.groups()):
        raise row.refuse(column, f"{shown(text)} is no duration like 1-02:03:04")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    whole = float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    if whole > SECONDS_MOST:
        raise row.refuse(column, f"{text} is more than {SECONDS_MOST:g} seconds")
    return whole
