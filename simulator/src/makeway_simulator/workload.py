"""Made-up workloads, for measurements and for tuning where no trace is at hand: seeded, the same every time."""

import math
from dataclasses import dataclass
from random import Random

from makeway_simulator.trace import Cluster, Trace, TraceJob


@dataclass(frozen=True, kw_only=True, slots=True)
class Mix:
    """What a made-up workload looks like.

    Jobs arrive at random so that the cluster is asked for `load` of its GPU-seconds; run times are log-normal around
    `median_seconds`; `sizes` and `classes` are (value, weight).
    """

    jobs: int = 300
    load: float = 0.9
    median_seconds: float = 1800.0
    spread: float = 1.0
    sizes: tuple[tuple[int, float], ...] = ((1, 0.6), (2, 0.15), (4, 0.15), (8, 0.1))
    classes: tuple[tuple[str, float], ...] = (("urgent", 0.05), ("high", 0.1), ("normal", 0.55), ("low", 0.3))


def make(mix: Mix, cluster: Cluster, seed: int = 1) -> Trace:
    """Draw a workload for the cluster. Jobs that want more GPUs than a node has get a node."""
    random = Random(seed)  # noqa: S311 - a seeded experiment
    sizes, size_weights = zip(*mix.sizes, strict=True)
    names, class_weights = zip(*mix.classes, strict=True)
    drawn = [
        (
            min(random.choices(sizes, size_weights)[0], cluster.gpus_per_node),
            mix.median_seconds * math.exp(random.gauss(0.0, mix.spread)),
            random.choices(names, class_weights)[0],
        )
        for _ in range(mix.jobs)
    ]
    asked = math.fsum(gpus * seconds for gpus, seconds, _ in drawn)
    gap = asked / (mix.load * cluster.gpus) / max(1, mix.jobs)
    at = 0.0
    jobs = []
    for number, (gpus, seconds, name) in enumerate(drawn, start=1):
        at += random.expovariate(1 / gap)
        jobs.append(
            TraceJob(
                job_id=f"job-{number}", submitted_at=at, gpus=gpus, work_seconds=seconds, class_name=name,
                team=f"team-{number % 4}",
            )
        )  # fmt: skip
    return Trace(jobs=tuple(jobs))
