"""The traces of Microsoft's ITP clusters (ElasticFlow, ASPLOS'23).

Columns: job_id, submission_time (s), duration (s), num_gpu.
"""

from functools import partial
from pathlib import Path
from typing import Final

from makeway_simulator.limits import GPUS_MOST
from makeway_simulator.readers.table import Row, Skipping, read_rows
from makeway_simulator.trace import Trace, TraceJob

COLUMNS: Final = ("job_id", "submission_time", "duration", "num_gpu")


def read_itp(path: Path, skipping: Skipping) -> Trace:
    """Read one trace. It names no users, priorities or cluster. Raises TraceError."""
    jobs = read_rows(path, COLUMNS, partial(_job, known=set()), skipping)
    return Trace(jobs=tuple(sorted(jobs, key=lambda job: job.submitted_at)), skipped=skipping.skipped)


def _job(row: Row, known: set[str]) -> TraceJob:
    return TraceJob(
        job_id=row.new_name_of("job_id", known),
        submitted_at=row.number("submission_time"),
        gpus=row.whole("num_gpu", least=1, most=GPUS_MOST),
        work_seconds=row.number("duration"),
    )
