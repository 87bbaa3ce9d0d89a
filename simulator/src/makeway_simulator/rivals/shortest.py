"""SRTF and SRSF: shortest remaining time, or time x GPUs, first; what does not fit is skipped."""

from collections.abc import Callable
from math import inf

from makeway_simulator.rivals.loop import Active, Assignment
from makeway_simulator.trace import Cluster


class ShortestFirst:
    """Jobs stand in their last sorted order and are sorted stably anew at every event.

    Placement: up to a node's GPUs on the first node with room, never split; more take whole free nodes, rounded down.
    """

    def __init__(self, cluster: Cluster, key: Callable[[Active], float]) -> None:
        self._cluster = cluster
        self._key = key
        self._jobs: list[Active] = []

    def submitted(self, active: Active) -> None:
        """Joins at the end."""
        self._jobs.append(active)

    def ended(self, active: Active) -> None:
        """Leaves."""
        self._jobs.remove(active)

    def progressed(self) -> None:
        """Sorts by what remains."""
        self._jobs.sort(key=self._key)

    def assign(self, now: float) -> Assignment:
        """Walks down the order from an empty cluster."""
        free = [self._cluster.gpus_per_node] * self._cluster.nodes
        runs = []
        for active in self._jobs:
            nodes = self._place(active.job.gpus, free)
            if nodes:
                runs.append((active, nodes))
        return Assignment(runs=runs)

    def next_change(self, now: float) -> float:
        """Never by itself."""
        return inf

    def _place(self, gpus: int, free: list[int]) -> tuple[int, ...]:
        whole = self._cluster.gpus_per_node
        if gpus <= whole:
            for node, left in enumerate(free):
                if left >= gpus:
                    free[node] = left - gpus
                    return (node,)
            return ()
        idle = [node for node, left in enumerate(free) if left == whole][: gpus // whole]
        if len(idle) < gpus // whole:
            return ()
        for node in idle:
            free[node] = 0
        return tuple(idle)


def srtf(cluster: Cluster) -> ShortestFirst:
    """Shortest remaining time first."""
    return ShortestFirst(cluster, lambda active: active.remaining)


def srsf(cluster: Cluster) -> ShortestFirst:
    """Shortest remaining service (time x GPUs) first."""
    return ShortestFirst(cluster, lambda active: active.remaining * active.job.gpus)
