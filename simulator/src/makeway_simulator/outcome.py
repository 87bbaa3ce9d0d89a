"""What came of a replay: one record a job, and the figures over all of them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean


class EndKind(StrEnum):
    """How a run, or a job, ended. `MOVED` is a run alone: its job went on at once on other GPUs."""

    FINISHED = "finished"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    EXPIRED = "expired"
    MOVED = "moved"
    FAILED = "failed"
    LOST = "lost"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobOutcome:
    """One job that came to an end. Times are seconds since the trace began; waits are seconds.

    `waited_seconds` runs from submission to the first start; `lost_gpu_seconds` is held but did not bring the job on:
    start-ups, and work that was done again.
    """

    job_id: str
    class_name: str
    gpus: int
    submitted_at: float
    started_at: float
    finished_at: float
    preemptions: int
    held_gpu_seconds: float
    lost_gpu_seconds: float
    kind: EndKind = EndKind.FINISHED

    @property
    def jct_seconds(self) -> float:
        """Job completion time: from submission to the end."""
        return self.finished_at - self.submitted_at

    @property
    def waited_seconds(self) -> float:
        """From submission to the first start."""
        return self.started_at - self.submitted_at


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Figures over all finished jobs, in seconds, GPU-seconds and parts of 1. Keys of the JSON output are these names.

    `makespan_seconds` runs from the first submission to the last end; `gpu_utilisation` is the part of all
    GPU-seconds until then that jobs held, `gpu_goodput` the part that brought jobs on.
    """

    jobs: int
    average_jct_seconds: float
    p99_jct_seconds: float
    makespan_seconds: float
    preemptions: int
    gpu_utilisation: float
    gpu_goodput: float
    average_wait_seconds: float
    p95_wait_seconds: float
    lost_gpu_seconds: float
    refused: int


def summarise(outcomes: Sequence[JobOutcome], gpus: int, refused: int) -> Summary:
    """The figures; all 0 where nothing finished. `refused` jobs could never have fitted."""
    if not outcomes:
        return Summary(
            jobs=0, average_jct_seconds=0.0, p99_jct_seconds=0.0, makespan_seconds=0.0, preemptions=0,
            gpu_utilisation=0.0, gpu_goodput=0.0, average_wait_seconds=0.0, p95_wait_seconds=0.0,
            lost_gpu_seconds=0.0, refused=refused,
        )  # fmt: skip
    waits = [outcome.waited_seconds for outcome in outcomes]
    makespan = max(outcome.finished_at for outcome in outcomes) - min(outcome.submitted_at for outcome in outcomes)
    held = math.fsum(outcome.held_gpu_seconds for outcome in outcomes)
    lost = math.fsum(outcome.lost_gpu_seconds for outcome in outcomes)
    room = makespan * gpus
    return Summary(
        jobs=len(outcomes),
        average_jct_seconds=fmean(outcome.jct_seconds for outcome in outcomes),
        p99_jct_seconds=quantile([outcome.jct_seconds for outcome in outcomes], 0.99),
        makespan_seconds=makespan,
        preemptions=sum(outcome.preemptions for outcome in outcomes),
        gpu_utilisation=held / room if room else 0.0,
        gpu_goodput=(held - lost) / room if room else 0.0,
        average_wait_seconds=fmean(waits),
        p95_wait_seconds=quantile(waits, 0.95),
        lost_gpu_seconds=lost,
        refused=refused,
    )


def waits_by_class(outcomes: Iterable[JobOutcome]) -> Mapping[str, Mapping[str, float]]:
    """Per class: how many jobs, and the mean, median, 95th percentile and longest wait, in seconds."""
    waits: dict[str, list[float]] = {}
    for outcome in outcomes:
        waits.setdefault(outcome.class_name, []).append(outcome.waited_seconds)
    return {
        name: {
            "jobs": len(found),
            "mean_seconds": fmean(found),
            "p50_seconds": quantile(found, 0.5),
            "p95_seconds": quantile(found, 0.95),
            "max_seconds": max(found),
        }
        for name, found in sorted(waits.items())
    }


def quantile(values: Sequence[float], part: float) -> float:
    """The value at index int(part x n) of the sorted values, as the published tables count it."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0
