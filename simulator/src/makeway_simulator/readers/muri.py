"""The traces of Muri (SIGCOMM'22), which descend from Microsoft's Philly trace.

Columns: job_id, num_gpu, submit_time (ms), iterations, model_name, iteration_time (ms); the rest is for packing.
Work is iterations x iteration time x 1.015, as the authors' simulator counts it; `duration` is not used.
"""

from functools import partial
from pathlib import Path
from typing import Final

from makeway_simulator.limits import GPUS_MOST, SECONDS_MOST
from makeway_simulator.readers.table import Row, Skipping, read_rows
from makeway_simulator.trace import Trace, TraceJob

COLUMNS: Final = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "iteration_time")

_OVERHEAD: Final = 1.015
_STARTUP_SECONDS: Final = {
    "vgg16": (7, 7, 8, 9, 9, 10),
    "vgg19": (7, 7, 8, 9, 10, 10),
    "resnet18": (4, 5, 5, 7, 7, 7),
    "shufflenet_v2_x1_0": (4, 4, 5, 5, 7, 8),
    "a2c": (38, 39, 39, 46, 46, 46),
    "dqn": (5, 5, 6, 6, 8, 8),
}
"""Measured seconds of a start by model, on 1, 2, 4, 8, 16 and 32 GPUs; other models take 10."""
_OTHER_STARTUP_SECONDS: Final = 10


def read_muri(path: Path, skipping: Skipping) -> Trace:
    """Read one trace. Raises TraceError."""
    jobs = read_rows(path, COLUMNS, partial(_job, known=set()), skipping)
    return Trace(jobs=tuple(sorted(jobs, key=lambda job: job.submitted_at)), skipped=skipping.skipped)


def _job(row: Row, known: set[str]) -> TraceJob:
    gpus = row.whole("num_gpu", least=1, most=GPUS_MOST)
    work_seconds = row.number("iterations") * row.number("iteration_time") * _OVERHEAD / 1000
    if work_seconds > SECONDS_MOST:
        raise row.refuse("iterations", f"with their time they are more than {SECONDS_MOST:g} seconds")
    return TraceJob(
        job_id=row.new_name_of("job_id", known),
        submitted_at=row.number("submit_time", most=SECONDS_MOST * 1000) / 1000,
        gpus=gpus,
        work_seconds=work_seconds,
        startup_seconds=_startup_seconds(row.text_of("model_name"), gpus),
    )


def _startup_seconds(model: str, gpus: int) -> float:
    by_size = _STARTUP_SECONDS.get(model)
    if by_size is None:
        return _OTHER_STARTUP_SECONDS
    return by_size[min(len(by_size) - 1, (gpus - 1).bit_length())]
