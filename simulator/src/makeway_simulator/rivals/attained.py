"""Tiresias-L (NSDI'19): three queues by attained service (time x GPUs), demoted at thresholds, never promoted."""

from math import ceil, inf, nextafter
from typing import Final

from makeway_simulator.rivals.loop import Active, Assignment
from makeway_simulator.trace import Cluster

LIMITS: Final = (3250.0, 7200.0)
"""Attained GPU-seconds at which a job leaves the first and the second queue."""


class LeastAttained:
    """Admission by the count of GPUs alone. Inside a queue what runs comes first, the rest in order of arrival."""

    def __init__(self, cluster: Cluster) -> None:
        self._gpus = cluster.gpus
        self._jobs: dict[str, Active] = {}
        self._queues: list[list[Active]] = [[] for _ in range(len(LIMITS) + 1)]
        self._level: dict[str, int] = {}

    def submitted(self, active: Active) -> None:
        """Joins the first queue."""
        self._jobs[active.job.job_id] = active
        self._level[active.job.job_id] = 0
        self._queues[0].append(active)

    def ended(self, active: Active) -> None:
        """Leaves."""
        del self._jobs[active.job.job_id]
        self._queues[self._level.pop(active.job.job_id)].remove(active)

    def progressed(self) -> None:
        """Demotes, by at most one queue an event."""
        for active in self._jobs.values():
            level = self._level[active.job.job_id]
            if active.running and level < len(LIMITS) and active.attained * active.job.gpus >= LIMITS[level]:
                self._queues[level].remove(active)
                self._queues[level + 1].append(active)
                self._level[active.job.job_id] = level + 1

    def assign(self, now: float) -> Assignment:
        """Walks down the queues, skipping what does not fit."""
        free = self._gpus
        chosen: dict[str, Active] = {}
        for queue in self._queues:
            for active in queue:
                if active.job.gpus <= free:
                    free -= active.job.gpus
                    chosen[active.job.job_id] = active
        for level, queue in enumerate(self._queues):
            ahead = [active for active in queue if active.job.job_id in chosen]
            self._queues[level] = ahead + [active for active in queue if active.job.job_id not in chosen]
        return Assignment(runs=[(active, ()) for active in chosen.values()])

    def next_change(self, now: float) -> float:
        """The next demotion."""
        return min((self._demotion(active, now) for active in self._jobs.values() if active.running), default=inf)

    def _demotion(self, active: Active, now: float) -> float:
        level = self._level[active.job.job_id]
        if level == len(LIMITS):
            return inf
        # A demotion that rounding puts at or before now must still move the clock.
        return max(ceil(LIMITS[level] / active.job.gpus) - active.attained + now, nextafter(now, inf))
