"""What a policy is tuned for: one number from utilisation, wait and preemptions, each made comparable first.

objective = alpha x utilisation - beta x wait - gamma x preemptions, where utilisation is the part of all GPU-seconds
that brought jobs on (0 to 1), wait is the mean wait over the mean run time of the same jobs (1: as long as they run),
and preemptions are notices per job. All three are plain numbers; the weights say what one of each is worth.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from makeway_simulator.outcome import EndKind, summarise
from makeway_simulator.record import Record
from makeway_simulator.trace import TraceJob


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """What one of each term is worth."""

    alpha: float = 1.0
    beta: float = 0.5
    gamma: float = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """The three terms, without a unit."""

    utilisation: float
    wait: float
    preemptions: float

    def weighed(self, weights: Weights) -> float:
        """The objective; higher is better."""
        return weights.alpha * self.utilisation - weights.beta * self.wait - weights.gamma * self.preemptions

    def beats(self, other: "Terms") -> bool:
        """At least as good in every term, and better in one."""
        mine = (self.utilisation, -self.wait, -self.preemptions)
        theirs = (other.utilisation, -other.wait, -other.preemptions)
        return mine != theirs and all(a >= b for a, b in zip(mine, theirs, strict=True))


def terms_of(record: Record, jobs: Sequence[TraceJob]) -> Terms:
    """The terms of one replay of these jobs; jobs that did not finish count as having waited to the end."""
    finished = [each for each in record.outcomes if each.kind is EndKind.FINISHED]
    figures = summarise(finished, record.cluster.gpus, record.refused)
    run_seconds = sum(job.work_seconds for job in jobs) / max(1, len(jobs))
    end = max((outcome.finished_at for outcome in record.outcomes), default=0.0)
    missing = {job.job_id: job for job in jobs}
    for outcome in finished:
        missing.pop(outcome.job_id, None)
    waited = sum(each.waited_seconds for each in finished) + sum(
        max(0.0, end - job.submitted_at) for job in missing.values()
    )
    return Terms(
        utilisation=figures.gpu_goodput,
        wait=waited / max(1, len(jobs)) / run_seconds if run_seconds else 0.0,
        preemptions=len(record.preemptions) / max(1, len(jobs)),
    )
