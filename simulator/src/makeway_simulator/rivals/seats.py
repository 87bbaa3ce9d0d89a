"""Which GPUs a rival's jobs sit on, for pictures.

A rival names nodes at most, and Tiresias only counts GPUs. Those of a named node are taken in order; where no node is
named, the node is taken that fits most tightly, else those with most room. What is decided does not depend on it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from makeway_simulator.outcome import EndKind
from makeway_simulator.record import Moment, Segment
from makeway_simulator.rivals.loop import Active
from makeway_simulator.trace import Cluster


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seat:
    nodes: tuple[int, ...]
    gpus: tuple[tuple[int, int], ...]
    run: int
    started_at: float
    ready_at: float


class Seats:
    """Follows a rival from event to event; `segments` and `moments` are what a report is drawn from."""

    def __init__(self, cluster: Cluster) -> None:
        self.segments: list[Segment] = []
        self.moments: list[Moment] = []
        self._free = [list(range(cluster.gpus_per_node)) for _ in range(cluster.nodes)]
        self._seats: dict[str, _Seat] = {}
        self._runs: dict[str, int] = {}

    def follow(self, now: float, running: Sequence[Active], unfinished: Collection[str]) -> None:
        """What runs from now on, of all jobs that have come and have not ended."""
        staying = {active.job.job_id: active.nodes for active in running}
        for job_id, seat in list(self._seats.items()):
            if staying.get(job_id) != seat.nodes:
                moved = EndKind.MOVED if job_id in staying else EndKind.PREEMPTED
                self._leave(job_id, now, moved if job_id in unfinished else EndKind.FINISHED)
        for active in running:
            if active.job.job_id not in self._seats:
                self._take(active, now)
        busy = sum(len(seat.gpus) for seat in self._seats.values())
        moment = Moment(at=now, waiting=len(unfinished) - len(running), busy_gpus=busy)
        if not self.moments or (self.moments[-1].waiting, self.moments[-1].busy_gpus) != (moment.waiting, busy):
            self.moments.append(moment)

    def _take(self, active: Active, now: float) -> None:
        job_id = active.job.job_id
        gpus = [(node, gpu) for node in active.nodes for gpu in self._free[node]][: active.job.gpus]
        if not active.nodes:
            gpus = self._anywhere(active.job.gpus)
        for node, gpu in gpus:
            self._free[node].remove(gpu)
        self._runs[job_id] = self._runs.get(job_id, 0) + 1
        self._seats[job_id] = _Seat(
            nodes=active.nodes, gpus=tuple(gpus), run=self._runs[job_id], started_at=now, ready_at=now + active.debt
        )

    def _anywhere(self, wanted: int) -> list[tuple[int, int]]:
        fitting = [node for node, free in enumerate(self._free) if len(free) >= wanted]
        if fitting:
            nodes = [min(fitting, key=lambda node: (len(self._free[node]), node))]
        else:
            nodes = sorted(range(len(self._free)), key=lambda node: (-len(self._free[node]), node))
        return [(node, gpu) for node in nodes for gpu in self._free[node]][:wanted]

    def _leave(self, job_id: str, now: float, kind: EndKind) -> None:
        seat = self._seats.pop(job_id)
        for node, gpu in seat.gpus:
            self._free[node] = sorted([*self._free[node], gpu])
        if now > seat.started_at:
            self.segments.append(
                Segment(
                    job_id=job_id,
                    run=seat.run,
                    gpus=tuple(f"node-{node:04d}/{gpu}" for node, gpu in seat.gpus),
                    started_at=seat.started_at,
                    ready_at=min(seat.ready_at, now),
                    ended_at=now,
                    kind=kind,
                )
            )
