"""Expected starts, and who may use the GPUs of one meanwhile.

The first job in queue order, per set of competing GPUs, that is within quota and lacks only GPUs reserves the one
placement with the earliest expected start. Where no expected start can be given, that is the placement with the fewest
GPUs in its way of which nobody knows when they are free: first those that nothing but their run's own end frees, then
those whose run may have to leave. Order of checks for a later job that wants a GPU of it (the first that holds lets it
pass):
 1. backfill is off: it waits
 2. its time limit, its grace and the time to prove the GPUs empty end before the expected start
 3. backfill is preemptible, and the reserver may preempt it when its turn comes, guards included
 4. no expected start can be given, and the reserver, once aged, could evict it
A job that would run on borrowed GPUs respects in the same way a waiting job that could reclaim them, wherever that is
in the queue, unless that one is kept from them itself. Whoever is within its guarantee respects no other team's job
that would borrow. A reservation only shapes backfill; it holds nothing.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from makeway_policy import placement, quota
from makeway_policy.card_times import ENDLESS, NOW, UNLIMITED, CardTimes, NodeTimes
from makeway_policy.competing import Cards
from makeway_policy.copies import value
from makeway_policy.costs import grace_of
from makeway_policy.host_times import host_ready
from makeway_policy.model import Job, Reason, Refusal, Shape
from makeway_policy.moments import moment
from makeway_policy.priority import base, class_of, outranks, preemption_value
from makeway_policy.rooms import NodeRoom
from makeway_policy.rules import Backfill, MayPreempt, Policy
from makeway_policy.state import PoolState

_NOBODY_KNOWS = 1e20
"""Starts beyond this are none, but ranks: the smaller, the fewer GPUs are in the way (see `_start`)."""

_FOUND_KEPT = 8
_Place = tuple[float, str]
_LAST: _Place = (ENDLESS, "")


@value(frozen=True, kw_only=True, slots=True)
class Reservation:
    """What a waiting job is expected to get.

    `start` None: no expected start can be given, and `gpus` are those that it is most likely to get; `nodes` is set
    instead for whoever asks for none. Both are empty where no node that takes placements suits.
    """

    job_id: str
    start: float | None
    gpus: frozenset[str]
    nodes: frozenset[str] = frozenset()

    @property
    def exists(self) -> bool:
        """Whether anything is reserved."""
        return bool(self.gpus or self.nodes)

    def meets(self, other: "Reservation") -> bool:
        """Whether both want something of the same."""
        return not (self.gpus.isdisjoint(other.gpus) and self.nodes.isdisjoint(other.nodes))


class ExpectedStarts:
    """When each node could start one member of a shape; `times` is what is known of its cards, for all such shapes."""

    def __init__(
        self, shape: Shape, times: CardTimes, is_among: Callable[[str, Cards], bool] = lambda _node_id, _cards: True
    ) -> None:
        self.shape = shape
        self.times = times
        self._is_among = is_among
        self._stale: set[str] = set()
        self._noted: set[str] = set()
        self._filled: set[str] = set()
        self._size = shape.gpus
        self._slots: dict[str, list[float]] = {}
        self._order: list[_Place] = []
        self._place: dict[str, _Place] = {}
        self._found: dict[Cards | None, tuple[Job, Reservation]] = {}
        self._searched_to = _LAST

    def nodes_changed(self, node_ids: Iterable[str]) -> None:
        """Something on these nodes has changed."""
        self._stale.update(node_ids)

    def node_filled(self, node_id: str) -> None:
        """Runs have come to a node, or have started there: a whole card is empty there no sooner than before."""
        self._noted.add(node_id)

    def earliest(
        self, job: Job, state: PoolState, policy: Policy, rooms: Mapping[str, NodeRoom], among: Cards | None = None
    ) -> Reservation:
        """The earliest whole placement for the job, on nodes with some of these cards; the same object as long as
        nothing that it depends on changes.

        A start that is past means that something has outlived its limit and is expected to be gone any moment.
        """
        for node_id in self._noted:
            self._note_filled(node_id)
        self._noted.clear()
        for node_id in self._stale:
            self._refresh(node_id, state, policy, rooms)
        self._stale.clear()
        found = self._found.get(among)
        if found is None or found[0] is not job:
            if len(self._found) >= _FOUND_KEPT:
                self._found.clear()
            found = self._found[among] = (job, self._search(job, state, policy, rooms, among))
        return found[1]

    def _note_filled(self, node_id: str) -> None:
        times = self.times.known(node_id)
        if not self.times.whole or (times is not None and times.waits):
            self._stale.add(node_id)
        elif node_id in self._place:
            self._filled.add(node_id)
            if self._place[node_id] <= self._searched_to:
                self._found.clear()

    def _refresh(self, node_id: str, state: PoolState, policy: Policy, rooms: Mapping[str, NodeRoom]) -> None:
        self._filled.discard(node_id)
        times = self.times.look_at(node_id, state, policy, rooms)
        if times is None or len(times.ranked) < self._size:
            self._move(node_id, None)
            return
        if self.shape.members > 1:
            starts = self._slots[node_id] = self._starts_of_members(times, (state, policy, rooms[node_id]))
            self._move(node_id, starts[0])
        else:
            self._move(node_id, self._start_of(times, 0, (state, policy, rooms[node_id])))

    def _starts_of_members(self, times: NodeTimes, where: tuple[PoolState, Policy, NodeRoom]) -> list[float]:
        members = self.shape.members
        if self.shape.distinct_nodes:
            count = 1
        else:
            count = min(members, max(1, len(times.ranked) // self._size)) if self._size else members
        return [self._start_of(times, number, where) for number in range(count)]

    def _start_of(self, times: NodeTimes, number: int, where: tuple[PoolState, Policy, NodeRoom]) -> float:
        """When so many members have started on a node and one more can."""
        state, policy, room = where
        cards = _start(times.ranked, number * self._size, self._size)
        if not (room.node.cpus or room.node.memory_mib):
            return cards
        host = host_ready(state, policy, room, self.shape, number + 1)
        return _together(cards, host, len(times.ranked))

    def _search(
        self, job: Job, state: PoolState, policy: Policy, rooms: Mapping[str, NodeRoom], among: Cards | None
    ) -> Reservation:
        members = job.shape.members
        chosen: list[tuple[float, str, int]] = []
        searched_to = _LAST
        for place in self._soonest_first(state, policy, rooms):
            if len(chosen) == members and place > chosen[-1][:2]:
                searched_to = chosen[-1][:2]
                break
            if among is not None and not self._is_among(place[1], among):
                continue
            if placement.node_allows(rooms[place[1]].node, job):
                for number, start in enumerate(self._slots.get(place[1], place[:1])):
                    insort(chosen, (start, place[1], number))
                del chosen[members:]
        self._searched_to = max(self._searched_to, searched_to) if self._found else searched_to
        if len(chosen) < members:
            return Reservation(job_id=job.job_id, start=None, gpus=frozenset())
        last = chosen[-1][0]
        expected = last if last < _NOBODY_KNOWS else None
        if not self._size:
            nodes = frozenset(node_id for _, node_id, _ in chosen)
            return Reservation(job_id=job.job_id, start=expected, gpus=frozenset(), nodes=nodes)
        gpus = [
            gpu_id
            for _, node_id, number in chosen
            for gpu_id in self._on(node_id).soonest()[number * self._size :][: self._size]
        ]
        return Reservation(job_id=job.job_id, start=expected, gpus=frozenset(gpus))

    def _soonest_first(self, state: PoolState, policy: Policy, rooms: Mapping[str, NodeRoom]) -> Iterator[_Place]:
        """The nodes by when they could start a member; what was filled is put in its place as it is met."""
        position = 0
        while position < len(self._order):
            place = self._order[position]
            if place[1] in self._filled:
                self._refresh(place[1], state, policy, rooms)
                continue
            yield place
            position += 1

    def _on(self, node_id: str) -> NodeTimes:
        found = self.times.known(node_id)
        if found is None:
            raise LookupError(f"node {node_id} has a place and was never looked at")
        return found

    def _move(self, node_id: str, start: float | None) -> None:
        """Put a node in its place; None: it has none, as too few cards there suit."""
        old = self._place.get(node_id)
        new = None if start is None else (start, node_id)
        if (new is not None and new <= self._searched_to) or (old is not None and old <= self._searched_to):
            self._found.clear()
        if old == new:
            return
        if old is not None:
            del self._order[bisect_left(self._order, old)]
            del self._place[node_id]
        if new is not None:
            self._place[node_id] = new
            insort(self._order, new)


def _start(ranked: Sequence[float], first: int, size: int) -> float:
    """When `size` cards of a node are free, from the `first` on; `ranked` says it of each card, the soonest first.

    Where nobody knows: how much is in the way, first the cards that are ENDLESS, then those that are UNLIMITED.
    """
    last = ranked[first + size - 1] if size else NOW
    if last < UNLIMITED:
        return last
    limited, preemptible = bisect_left(ranked, UNLIMITED, first), bisect_left(ranked, ENDLESS, first)
    end = first + size
    endless, unlimited = max(0, end - preemptible), max(0, min(preemptible, end) - limited)
    return _NOBODY_KNOWS * (1 + (endless * len(ranked) + unlimited))


def _together(cards: float, host: float, count: int) -> float:
    """The start where cards are free then and CPU and memory there then; `count` cards are on the node."""
    if host < UNLIMITED:
        return max(cards, host)
    blocked = _NOBODY_KNOWS * (count + 1 if host == ENDLESS else 1)
    return cards + blocked if cards >= _NOBODY_KNOWS else _NOBODY_KNOWS + blocked


def passes(state: PoolState, policy: Policy, job: Job, held: Reservation, now: float) -> bool:
    """Whether the job may use GPUs that are reserved for another, in the order of checks above."""
    if policy.backfill is Backfill.OFF:
        return False
    reserver = state.jobs[held.job_id]
    if held.start is None:
        return _could_evict_once_aged(reserver, job, policy, now)
    if job.time_limit_seconds is not None:
        left = max(0.0, job.time_limit_seconds - job.used_seconds)
        if now + left + grace_of(job, policy) + policy.empty_seconds <= held.start:
            return True
    return policy.backfill is Backfill.PREEMPTIBLE and _may_preempt_then(reserver, job, policy, held.start, now)


def refusal_for(held: Reservation, room_on: tuple[str, ...]) -> Refusal:
    """Why a job does not use the free GPUs on these nodes, for which another waits."""
    return Refusal(
        reason=Reason.RESERVED_FOR_ANOTHER,
        sentence=f"what is free is kept for job {held.job_id}, which {_comes_first(held)}",
        detail={"job": held.job_id},
        room_on=room_on,
    )


def kept_for(held: Reservation) -> str:
    """That not all GPUs may be looked at, for whoever finds none."""
    return f"some GPUs are kept for job {held.job_id}, which {_comes_first(held)}"


def _comes_first(held: Reservation) -> str:
    if held.start is None:
        return "comes first and could not evict this one later; what it waits for has no time limit"
    return f"is expected to start {'now' if held.start == NOW else f'at {moment(held.start)}'}"


def _could_evict_once_aged(reserver: Job, job: Job, policy: Policy, now: float) -> bool:
    if class_of(reserver, policy).may_preempt is MayPreempt.NEVER or not policy.preemption:
        return False
    if not quota.is_preemptible(job, policy):
        return False
    return outranks(reserver, base(reserver, policy) + policy.delta, job, preemption_value(job, policy, now), policy)


def _may_preempt_then(reserver: Job, job: Job, policy: Policy, start: float, now: float) -> bool:
    rules = class_of(job, policy)
    if not quota.is_preemptible(job, policy) or not policy.preemption:
        return False
    if class_of(reserver, policy).may_preempt is not MayPreempt.YES:
        return False
    guarded = rules.minimum_run_seconds if not class_of(reserver, policy).overrides_minimum_run else 0.0
    if now + guarded + grace_of(job, policy) + policy.empty_seconds > start:
        return False
    limit = rules.preemptions_per_day
    if limit is not None and len(job.preempted_at) >= limit:
        return False
    return outranks(reserver, base(reserver, policy), job, preemption_value(job, policy, now), policy)
