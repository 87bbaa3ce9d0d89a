"""Which waiting jobs reserve, kept from call to call: the blocked jobs in queue order, and their expected starts.

Two kinds of jobs reserve: the first of each set of competing GPUs that is within quota and lacks only GPUs, against
whoever is behind it; and whoever could reclaim, against borrowers.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from makeway_policy import placement, priority, quota
from makeway_policy.card_times import CardTimes
from makeway_policy.competing import Cards, Competing
from makeway_policy.model import Job, Reason, Refusal, Shape
from makeway_policy.queue import Bucket, Entry, Key, Lane, Turns, WaitingQueue
from makeway_policy.reservation import ExpectedStarts, Reservation
from makeway_policy.rooms import NodeRoom
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState

_LACKS_ROOM = frozenset({Reason.NO_ROOM, Reason.BACKING_OFF})
_SHAPES_KEPT = 32
_RESERVERS = _SHAPES_KEPT
"""So many jobs reserve at once, first in queue order first: of each the expected start has to be kept up to date."""
_KEPT_LACKING = 1024
_LOOKED_AT = 64
_RECLAIMERS = 8
"""A borrower looks at the waiting jobs that could reclaim of so many shapes, first in queue order first."""

_Wanted = tuple[object, ...]

_Claim = tuple[Key, str, int, bool, Reservation]
"""What decides who passes a reservation: the reserver's place, class and base, whether it would borrow, and what it is
expected to get."""


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """Who reserves what: against whoever is behind, in queue order, and against borrowers.

    Not `complete` where there are too many who could reclaim to keep them all in sight.
    """

    reserving: tuple[_Claim, ...] = ()
    reclaiming: tuple[_Claim, ...] = ()
    complete: bool = True

    def ahead_of(self, key: Key) -> list[_Claim]:
        """The reservations that hold against a job at this place in the queue."""
        return [claim for claim in self.reserving if claim[0] < key]


@dataclass(slots=True, eq=False)
class _Line:
    """Blocked jobs of one lane that want the same GPUs, in queue order.

    `first` is the place of the first that is within its quota, as long as that is `known`; `asked` are the teams that
    say so.
    """

    lane: Lane
    entries: list[Entry] = field(default_factory=list)
    first: int | None = None
    known: bool = False
    asked: set[str] = field(default_factory=set)


class Reservers:
    """The jobs that reserve.

    `guaranteed` are the teams with a guarantee; `dispossessed` the jobs whose hold was taken: each is decided again
    once its node has let go, and reserves until then against whoever is behind it.
    """

    def __init__(
        self,
        state: PoolState,
        policy: Policy,
        rooms: dict[str, NodeRoom],
        waiting: tuple[WaitingQueue, Turns],
        never_fits: Callable[[Shape], Refusal | None],
    ) -> None:
        self.guaranteed: tuple[str, ...] = ()
        self.dispossessed: dict[str, None] = {}
        self.never_fits = never_fits
        self._state = state
        self._policy = policy
        self._rooms = rooms
        self._queue, self._turns = waiting
        self._competing = Competing(rooms, policy)
        self._lines: dict[tuple[_Wanted, Lane], _Line] = {}
        self._place: dict[Bucket, tuple[_Wanted, Entry, _Line]] = {}
        self._starts: dict[Shape, ExpectedStarts] = {}
        self._times: dict[placement.OfCard, CardTimes] = {}
        self._newest: ExpectedStarts | None = None
        self._first: list[tuple[Key, str, Cards | None]] | None = None
        self._lacking: dict[tuple[object, ...], bool] = {}
        self._firsts: dict[str, tuple[tuple[int, bool], list[Bucket]]] = {}
        self._view = View()
        self._viewed: list[tuple[Key, str, Cards | None]] | None = None

    def block(self, bucket: Bucket) -> None:
        """A bucket was refused: its first job reserves if it lacks only GPUs."""
        self.unblock(bucket)
        if bucket.blocked is not None and bucket.blocked.reason in _LACKS_ROOM:
            entry, lane = bucket.entries[0], self._turns.lane(bucket)
            wanted = _wanted(self._state.jobs[bucket.head].shape)
            line = self._lines.setdefault((wanted, lane), _Line(lane))
            insort(line.entries, entry)
            line.known = False
            self._place[bucket] = (wanted, entry, line)
            self._first = None

    def unblock(self, bucket: Bucket) -> None:
        """A bucket is judged again, or is gone."""
        place = self._place.pop(bucket, None)
        if place is not None:
            wanted, entry, line = place
            del line.entries[bisect_left(line.entries, entry)]
            line.known = False
            if not line.entries:
                del self._lines[wanted, line.lane]
            self._first = None

    def view(self) -> View:
        """Who reserves what, as things are; the same object as long as it is the same."""
        able, complete = self._able_to_reclaim()
        behind = [*self._reservers(), *self._dispossessed()]
        reserving = tuple([self._claim(key, job, among) for key, job, among in behind])
        reclaiming = tuple([self._claim(key, job, None) for key, job in able])
        seen, self._viewed = self._view, self._first
        if (reserving, reclaiming, complete) != (seen.reserving, seen.reclaiming, seen.complete):
            self._view = View(reserving=reserving, reclaiming=reclaiming, complete=complete)
        return self._view

    def are_others(self) -> bool:
        """Whether other jobs reserve than when the view was taken last."""
        self._reservers()
        return self._first != self._viewed

    def _claim(self, key: Key, job: Job, among: Cards | None) -> _Claim:
        return (key, job.class_name, priority.base(job, self._policy), self._would_borrow(job), self.of(job, among))

    def _would_borrow(self, job: Job) -> bool:
        return bool(self.guaranteed) and not quota.within_guarantee(self._state, job, _units(self._state, job))

    def _able_to_reclaim(self) -> tuple[list[tuple[Key, Job]], bool]:
        """Who any borrower could have to respect; and whether these are all that could ever matter."""
        teams: dict[Shape, set[str]] = {}
        able: list[tuple[Key, Job]] = []
        for key, job in self._reclaimers(None):
            known = teams.setdefault(job.shape, set())
            if len(teams) > _RECLAIMERS:
                return able, False
            # For the first one's own team the second counts.
            if len(known) < 2 and job.team not in known:
                known.add(job.team)
                able.append((key, job))
        return able, True

    def reclaimers(self, job: Job) -> Iterator[Reservation]:
        """Against a borrower: what waiting jobs of other teams, within their guarantee, are expected to get."""
        shapes: set[Shape] = set()
        for _, waiting in self._reclaimers(job.team):
            if waiting.shape in shapes or not self._compete(waiting, job):
                continue
            yield self.of(waiting)
            shapes.add(waiting.shape)
            if len(shapes) == _RECLAIMERS:
                return

    def _reclaimers(self, but: str | None) -> list[tuple[Key, Job]]:
        """The first waiting job of each shape and team that is within its guarantee with it, in queue order."""
        found: list[tuple[Key, Job]] = []
        for team in self.guaranteed:
            left = quota.guarantee_left(self._state, team)
            if team == but or left < 0:
                continue
            for bucket in self._first_of_each_shape(team):
                job = self._state.jobs[bucket.head]
                if _units(self._state, job) <= left and self.never_fits(job.shape) is None:
                    found.append((self._turns.of(bucket), job))
        return sorted(found, key=lambda each: each[0])

    def _first_of_each_shape(self, team: str) -> list[Bucket]:
        """The buckets of a team's first jobs; its fair share says nothing of their order."""
        version = (self._queue.moves_of(team), self._turns.fair)
        known = self._firsts.get(team)
        if known is None or known[0] != version:
            first: dict[Shape, tuple[Key, Bucket]] = {}
            for bucket in self._queue.buckets_of(team):
                shape, key = self._state.jobs[bucket.head].shape, self._turns.of(bucket)
                if shape not in first or key < first[shape][0]:
                    first[shape] = (key, bucket)
            known = self._firsts[team] = (version, [bucket for _, bucket in first.values()])
        return known[1]

    def usage_changed(self, teams: Collection[str] | None = None) -> None:
        """These teams (None: any) use more or less or may use something else: others may be within their quota."""
        for line in self._lines.values():
            if line.known and (teams is None or not line.asked.isdisjoint(teams)):
                line.known = False
                self._first = None

    def hardware_changed(self, node_id: str) -> None:
        """A node or its cards have come, gone, or take placements again or no more."""
        self._competing.hardware_changed(node_id)
        self._first = None
        self._lacking.clear()

    def node_changed(self, node_id: str) -> None:
        """Something on a node has changed: it is looked at when asked for."""
        for starts in self._starts.values():
            starts.nodes_changed((node_id,))

    def node_filled(self, node_id: str, started: Collection[str] = ()) -> None:
        """Runs have only come to a node, or have started there, these on the GPUs in `started`."""
        for starts in self._starts.values():
            starts.node_filled(node_id)
        if started:
            for times in self._times.values():
                times.started_on(node_id, started)

    def against(self, job: Job, key: Key) -> Iterator[Reservation]:
        """The reservations of jobs before `key` in the queue that want the same GPUs as the job.

        Whoever is within its guarantee respects none of another team's job that would borrow: that one waits for it.
        """
        owns = bool(self.guaranteed) and quota.within_guarantee(self._state, job, _units(self._state, job))
        for their_key, other, among in (*self._reservers(), *self._dispossessed()):
            if their_key >= key or other.job_id == job.job_id:
                continue
            if owns and other.team != job.team and self._would_borrow(other):
                continue
            if self._compete(other, job):
                yield self.of(other, among)

    def _compete(self, one: Job, other: Job) -> bool:
        return bool(self._competing.wanted_by(one.shape) & self._competing.wanted_by(other.shape))

    def _dispossessed(self) -> list[tuple[Key, Job, None]]:
        jobs = [self._state.jobs[job_id] for job_id in self.dispossessed]
        return [(self._turns.of_job(job, self._turns.now), job, None) for job in jobs]

    def of(self, job: Job, among: Cards | None = None) -> Reservation:
        """What the job is expected to get, and when; of some cards only, if given."""
        if self._newest is None or self._newest.shape is not job.shape:
            self._newest = self._starts.pop(job.shape, None) or self._starts_of(job.shape)
            self._starts[job.shape] = self._newest
        return self._newest.earliest(job, self._state, self._policy, self._rooms, among)

    def _starts_of(self, shape: Shape) -> ExpectedStarts:
        """A shape that is not kept yet, in the place of the one that nobody has asked about for longest."""
        if len(self._starts) >= _SHAPES_KEPT:
            del self._starts[next(iter(self._starts))]
            kept = [starts.times for starts in self._starts.values()]
            self._times = {wanted: times for wanted, times in self._times.items() if times in kept}
        times = self._times.setdefault(placement.of_card(shape), CardTimes(shape))
        starts = ExpectedStarts(shape, times, self._competing.is_among)
        starts.nodes_changed(self._rooms)
        return starts

    def _reservers(self) -> list[tuple[Key, Job, Cards | None]]:
        """The first job for some set of GPUs, each with those for which others come before it left out.

        Who lacks a node, and not only GPUs, leaves them to the next.
        """
        if self._first is None:
            self._first = []
            firsts = [(*first, line) for line in self._lines.values() if (first := self._first_of(line)) is not None]
            heapify(firsts)
            taken: Cards = 0
            while firsts and len(self._first) < _RESERVERS:
                key, position, line = heappop(firsts)
                job = self._state.jobs[line.entries[position][3]]
                wanted = self._competing.wanted_by(job.shape)
                left = wanted & ~taken
                among = None if left == wanted else left
                if left and not self._lacks_a_node(job, among):
                    self._first.append((key, job.job_id, among))
                    taken |= wanted
                elif (left or not wanted) and (behind := self._within_quota(line, position + 1)) is not None:
                    heappush(firsts, (self._turns.key(line.lane, line.entries[behind]), behind, line))
        return [(key, self._state.jobs[job_id], among) for key, job_id, among in self._first]

    def _lacks_a_node(self, job: Job, among: Cards | None) -> bool:
        wanted = (job.shape, job.avoid_nodes, job.resume_node, among)
        if wanted not in self._lacking:
            if len(self._lacking) >= _KEPT_LACKING:
                self._lacking.clear()
            self._lacking[wanted] = not self.of(job, among).exists
        return self._lacking[wanted]

    def _first_of(self, line: _Line) -> tuple[Key, int] | None:
        if not line.known:
            line.known, line.first = True, self._within_quota(line, 0)
        return None if line.first is None else (self._turns.key(line.lane, line.entries[line.first]), line.first)

    def _within_quota(self, line: _Line, position: int) -> int | None:
        """The first place in a line from a position on whose job is within its quota."""
        if position == 0:
            line.asked.clear()
        for place in range(position, min(len(line.entries), _LOOKED_AT)):
            job = self._state.jobs[line.entries[place][3]]
            line.asked.add(job.team)
            units = quota.needed_units(job, None, self._state)
            if quota.refusal_of(self._state, self._policy, job, units) is None:
                return place
        return None


def _units(state: PoolState, job: Job) -> int:
    return max(1, quota.needed_units(job, None, state))


def _wanted(shape: Shape) -> _Wanted:
    """What decides which GPUs a shape competes for."""
    return (
        shape.gpu_type, shape.mig, shape.min_vram_mib, shape.vram_mib, shape.gpus, shape.nodes, shape.exclude_nodes,
        shape.labels,
    )  # fmt: skip
