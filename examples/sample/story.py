"""Tells what happens to a few jobs as it happens, from what the API says about them.

The state is read a few times a second and everything new in it becomes a line, with the time at which it happened: the
times are the cluster's own, so a line that is printed a moment late still has the right time.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from makeway_schemas.api import JobDetail, PreemptionView, RunView

Moment = tuple[datetime, str, str]
"""When, which job, what."""


@dataclass
class Story:
    """What was told already; ``began`` is where the clock of the lines starts."""

    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    told: set[tuple[str, str]] = field(default_factory=set)

    def tell(self, jobs: Iterable[JobDetail], preemptions: Iterable[PreemptionView]) -> None:
        """Prints what is new, in the order in which it happened."""
        names = {job.job_id: job.name for job in jobs}
        moments = [moment for job in jobs for moment in _of_job(job)]
        moments += [moment for record in preemptions for moment in _of_preemption(record, names)]
        for at, name, what in sorted(moments):
            if (name, what) not in self.told:
                self.told.add((name, what))
                print(f"{(at - self.began).total_seconds():7.2f} s  {name:<12} {what}")
        sys.stdout.flush()


def _of_job(job: JobDetail) -> Iterator[Moment]:
    yield job.submitted_at, job.name, f"submitted, class {job.class_name}"
    for run in job.runs:
        for at, what in _of_run(job, run):
            yield at, job.name, what
    if job.ended_at is not None:
        yield job.ended_at, job.name, f"{job.state}" + (f": {job.message}" if job.message else "")


def _of_run(job: JobDetail, run: RunView) -> Iterator[tuple[datetime, str]]:
    where = f"{run.node}, GPU {', '.join(map(str, run.gpu_indexes))} (simulated)"
    if run.started_at is not None:
        waited = "" if run.number > 1 else f", {(run.started_at - job.submitted_at).total_seconds():.3f} s after submit"
        yield run.started_at, f"RUNNING on {where}: run {run.number}{waited}"
    if run.acked_at is not None and run.ack_step is not None and run.noticed_at is None:
        yield run.acked_at, f"acked: saved up to step {run.ack_step}"
    if run.ended_at is not None and run.end_cause == "preempted":
        left = (run.ended_at - (run.noticed_at or run.ended_at)).total_seconds()
        yield run.ended_at, f"left its GPU {left:.3f} s after the notice; queued again"


def _of_preemption(record: PreemptionView, names: dict[str, str]) -> Iterator[Moment]:
    name = names.get(record.victim_job, record.victim_job)
    preemptor = names.get(record.preemptor_job or "", record.preemptor_job or "?")
    cost = f"expected cost {record.expected_cost_gpu_seconds:.1f} GPU-seconds"
    yield record.decided_at, name, f"chosen to make way for {preemptor}: {cost}"
    if record.noticed_at is not None:
        yield record.noticed_at, name, "NOTICED: asked to save and leave"
    if record.acked_at is not None:
        yield record.acked_at, name, f"acked after the notice: saved up to step {record.acked_step}"
    if record.resumed_at is not None:
        load = "" if record.load_seconds is None else f", loaded in {record.load_seconds:.3f} s"
        yield record.resumed_at, name, f"RESUMED at step {record.resumed_step}{load}"


def table(jobs: Iterable[JobDetail], same: dict[str, str]) -> Iterator[str]:
    """The lines of the table at the end; ``same`` says of each job whether its model is the undisturbed one."""
    form = "{:<12} {:<8} {:<10} {:>5} {:>10} {:>11} {:>10}  {}"
    yield form.format("JOB", "CLASS", "STATE", "RUNS", "PREEMPTED", "RESUMED AT", "WAITED", "MODEL")
    for job in jobs:
        resumed = [str(run.resumed_step) for run in job.runs if run.resumed_step is not None]
        waited = "-" if job.started_at is None else f"{(job.started_at - job.submitted_at).total_seconds():.3f} s"
        row = (job.name, job.class_name, job.state, len(job.runs), job.preemptions, ", ".join(resumed) or "-", waited)
        yield form.format(*map(str, row), same.get(job.name, "-"))
