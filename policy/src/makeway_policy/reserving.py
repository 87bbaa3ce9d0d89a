"""Which waiting jobs reserve, kept from call to call: the blocked jobs in queue order, and their expected starts."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from makeway_policy import quota, reservation
from makeway_policy.model import Job, Reason, Shape
from makeway_policy.queue import Bucket
from makeway_policy.reservation import ExpectedStarts, Reservation
from makeway_policy.rooms import NodeRoom
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState

_LACKS_ROOM = frozenset({Reason.NO_ROOM, Reason.BACKING_OFF})
_SHAPES_KEPT = 16
_LOOKED_AT = 64

_Entry = tuple[tuple[float, ...], str]
_Wanted = tuple[str | None, str | None, frozenset[str], bool]


class Reservers:
    """The jobs that are within quota and lack only GPUs, first in queue order first."""

    def __init__(self, state: PoolState, policy: Policy, rooms: dict[str, NodeRoom]) -> None:
        self._state = state
        self._policy = policy
        self._rooms = rooms
        self._waiting: dict[_Wanted, list[_Entry]] = {}
        self._place: dict[tuple[object, ...], tuple[_Wanted, _Entry]] = {}
        self._starts: dict[Shape, ExpectedStarts] = {}
        self._first: list[_Entry] | None = None
        self._seen: list[tuple[tuple[float, ...], Reservation]] = []

    def block(self, bucket: Bucket, key: tuple[float, ...]) -> None:
        """A bucket was refused: its first job reserves if it lacks only GPUs."""
        self.unblock(bucket)
        if bucket.blocked is not None and bucket.blocked.reason in _LACKS_ROOM:
            entry = (key, bucket.head)
            wanted = _wanted(self._state.jobs[bucket.head].shape)
            insort(self._waiting.setdefault(wanted, []), entry)
            self._place[bucket.key] = (wanted, entry)
            self._first = None

    def unblock(self, bucket: Bucket) -> None:
        """A bucket is judged again, or is gone."""
        place = self._place.pop(bucket.key, None)
        if place is not None:
            entries = self._waiting[place[0]]
            del entries[bisect_left(entries, place[1])]
            self._first = None

    def moved(self) -> bool:
        """Whether other jobs reserve than when this was last asked, or are expected to start elsewhere or otherwise."""
        seen = self._seen
        self._seen = [(key, self.of(self._state.jobs[job_id])) for key, job_id in self._reservers()]
        return seen != self._seen

    def usage_changed(self) -> None:
        """Some team uses more or less: others may be within their quota."""
        self._first = None

    def node_changed(self, node_id: str) -> None:
        """Something on a node has changed: expected starts there are computed anew when asked for."""
        for starts in self._starts.values():
            starts.stale.add(node_id)

    def against(self, job: Job, key: tuple[float, ...]) -> Iterator[Reservation]:
        """The reservations of jobs before `key` in the queue that want the same GPUs as the job."""
        for their_key, job_id in self._reservers():
            if their_key >= key:
                return
            reserver = self._state.jobs[job_id]
            if job_id != job.job_id and reservation.competes(reserver.shape, job.shape, self._policy):
                yield self.of(reserver)

    def of(self, job: Job) -> Reservation:
        """What the job is expected to get, and when."""
        starts = self._starts.pop(job.shape, None)
        if starts is None:
            starts = ExpectedStarts(job.shape)
            starts.stale.update(self._rooms)
        self._starts[job.shape] = starts
        while len(self._starts) > _SHAPES_KEPT:
            del self._starts[next(iter(self._starts))]
        starts.refresh(self._state, self._policy, self._rooms)
        found = starts.earliest(job, self._rooms)
        if found is None:
            return Reservation(job_id=job.job_id, start=None, gpus=frozenset())
        return Reservation(job_id=job.job_id, start=found[0], gpus=found[1])

    def _reservers(self) -> list[_Entry]:
        """The first of each set of competing GPUs."""
        if self._first is None:
            found = (self._first_within_quota(entries) for entries in self._waiting.values())
            firsts = sorted(entry for entry in found if entry is not None)
            self._first = []
            shapes: list[Shape] = []
            for entry in firsts:
                shape = self._state.jobs[entry[1]].shape
                if not any(reservation.competes(shape, other, self._policy) for other in shapes):
                    self._first.append(entry)
                shapes.append(shape)
        return self._first

    def _first_within_quota(self, entries: list[_Entry]) -> _Entry | None:
        for entry in entries[:_LOOKED_AT]:
            job = self._state.jobs[entry[1]]
            units = quota.needed_units(job, None, self._state)
            if quota.refusal_of(self._state, self._policy, job, units) is None:
                return entry
        return None


def _wanted(shape: Shape) -> _Wanted:
    """What decides which GPUs a shape competes for."""
    return (shape.gpu_type, shape.mig, shape.nodes, shape.gpus == 0)
