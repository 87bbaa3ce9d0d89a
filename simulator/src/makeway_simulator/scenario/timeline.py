"""A history as a list of what happened, for people."""

from collections.abc import Iterator
from dataclasses import dataclass

from makeway_simulator.scenario.history import REJECTED, History, Snapshot


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One thing that happened."""

    at: float
    what: str
    job: str
    where: str = ""


def timeline(history: History) -> list[Entry]:
    """Starts, notices and ends of runs, and jobs that came, wait or have ended; in order of time."""
    found = [*_of_runs(history), *_of_jobs(history.snapshots)]
    return sorted(found, key=lambda each: each.at)


def _of_runs(history: History) -> Iterator[Entry]:
    for run in history.runs:
        where = " ".join(run.gpus)
        again = f" (run {run.number})" if run.number > 1 else ""
        yield Entry(at=run.started_at, what=f"starts{again}", job=run.job, where=where)
        if run.noticed_at is not None:
            yield Entry(at=run.noticed_at, what="has to make way" if run.evicted else "has to stop", job=run.job)
        if run.ended_at is not None:
            yield Entry(at=run.ended_at, what="is killed" if run.forced else "leaves", job=run.job)


def _of_jobs(snapshots: tuple[Snapshot, ...]) -> Iterator[Entry]:
    before: dict[str, str] = {}
    for seen in snapshots:
        for name, job in seen.jobs.items():
            quiet = job.state in ("RUNNING", "STOPPING", "STARTING")
            told = f"{job.state}: {job.reason}" if job.reason and not quiet else job.state
            if job.state != before.get(name) and not quiet:
                yield Entry(at=seen.at, what=f"is {told}" if job.state != REJECTED else f"was {told}", job=name)
            before[name] = job.state
