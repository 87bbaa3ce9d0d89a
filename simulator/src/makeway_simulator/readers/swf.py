"""The Standard Workload Format of the Parallel Workloads Archive: 18 numbers a line, `;` begins a comment.

Fields used: 1 job number, 2 submit time (s), 4 run time (s), 5 allocated processors, 8 requested processors,
9 requested time (s), 11 status, 12 user, 15 queue; -1 is unknown. Processors are taken as GPUs. A job without a run
time or without processors was cancelled before it ran and is left out, and so are lines for parts of a job (status 2 to
4), which has a line for the whole as well. Of the header comments `MaxNodes` and `MaxProcs` are read, in any case: the
cluster it ran on. Where one is missing, or they do not divide, each processor is a node of its own.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from makeway_policy.quantities import quantity

from makeway_simulator.errors import TraceError
from makeway_simulator.limits import GPUS_MOST
from makeway_simulator.readers.table import Row, Skipping, lines_of, refuse_control
from makeway_simulator.trace import Trace, TraceJob

_NAMES: Final = (
    "job_number", "submit_time", "wait_time", "run_time", "allocated_processors", "average_cpu_time", "used_memory",
    "requested_processors", "requested_time", "requested_memory", "status", "user", "group", "executable", "queue",
    "partition", "preceding_job", "think_time",
)  # fmt: skip
_UNKNOWN: Final = -1
_PARTS: Final = frozenset({"2", "3", "4"})
"""Lines that tell of a part of a job, which has one more line for the whole."""
_HEADER: Final = re.compile(r"\s*;\s*(MaxNodes|MaxProcs)\s*:\s*(\d{1,9})\b", re.ASCII | re.IGNORECASE)


def read_swf(path: Path, skipping: Skipping) -> Trace:
    """Read one trace. Raises TraceError."""
    jobs: list[TraceJob] = []
    header: dict[str, int] = {}
    known: set[str] = set()
    for number, text in lines_of(path):
        if not text.strip() or text.lstrip().startswith(";"):
            if said := _HEADER.match(text):
                header.setdefault(said[1].lower(), int(said[2]))
            continue
        try:
            job = _job(_row(str(path), number, text), known)
        except TraceError as error:
            skipping.note(error)
            continue
        if job is not None:
            jobs.append(job)
    ordered = tuple(sorted(jobs, key=lambda job: job.submitted_at))
    return Trace(jobs=ordered, skipped=skipping.skipped, cluster=_cluster(header))


def _cluster(header: Mapping[str, int]) -> str | None:
    nodes, processors = header.get("maxnodes", 0), header.get("maxprocs", 0)
    if nodes and processors and processors % nodes == 0:
        return f"{nodes}x{processors // nodes}"
    return f"{processors or nodes}x1" if processors or nodes else None


def _row(path: str, number: int, text: str) -> Row:
    refuse_control(path, number, text)
    cells: dict[str, tuple[str, int]] = {}
    end = 0
    words = text.split()
    for name, word in zip(_NAMES, words, strict=False):
        start = text.index(word, end)
        end = start + len(word)
        cells[name] = (word, start + 1)
    if len(words) != len(_NAMES):
        raise TraceError(path, number, max(1, end), f"{quantity(len(words), 'field')} where {len(_NAMES)} belong")
    return Row(path, number, text, cells)


def _job(row: Row, known: set[str]) -> TraceJob | None:
    if row.text_of("status") in _PARTS:
        return None
    allocated = row.whole("allocated_processors", least=_UNKNOWN, most=GPUS_MOST)
    gpus = allocated if allocated > 0 else row.whole("requested_processors", least=_UNKNOWN, most=GPUS_MOST)
    run_time = row.number("run_time", least=_UNKNOWN)
    if gpus <= 0 or run_time <= 0:
        return None
    limit = row.number("requested_time", least=_UNKNOWN)
    return TraceJob(
        job_id=row.new_name_of("job_number", known),
        submitted_at=row.number("submit_time"),
        gpus=gpus,
        work_seconds=run_time,
        team=f"user-{row.text_of('user')}",
        time_limit_seconds=limit if limit > 0 else None,
    )
