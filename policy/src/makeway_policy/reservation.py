"""Expected starts, and who may use the GPUs of one meanwhile.

The first job in queue order, per set of competing GPUs, that is within quota and lacks only GPUs reserves the one
placement with the earliest expected start. Order of checks for a later job that wants a GPU of it (the first that holds
lets it pass):
 1. backfill is off: it waits
 2. its time limit, its grace and the time to prove the GPUs empty end before the expected start
 3. backfill is preemptible, and the reserver may preempt it when its turn comes, guards included
 4. no expected start can be given, and the reserver, once aged, could evict it
A job that would run on borrowed GPUs respects in the same way a waiting job that could reclaim them, wherever that is
in the queue. A reservation only shapes backfill; it holds nothing.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping

from makeway_policy import placement, quota
from makeway_policy.card_times import NOW, CardTimes, NodeTimes
from makeway_policy.copies import value
from makeway_policy.costs import grace_of
from makeway_policy.model import Job, Reason, Refusal, Shape
from makeway_policy.moments import moment
from makeway_policy.priority import base, class_of, outranks, preemption_value
from makeway_policy.rooms import NodeRoom
from makeway_policy.rules import Backfill, MayPreempt, Policy
from makeway_policy.state import PoolState

_ENDLESS = float("inf")


@value(frozen=True, kw_only=True, slots=True)
class Reservation:
    """What a waiting job is expected to get. `start` None: no expected start can be given, so `gpus` is empty."""

    job_id: str
    start: float | None
    gpus: frozenset[str]


class ExpectedStarts:
    """When each node could start one member of a shape; `times` is what is known of its cards, for all such shapes."""

    def __init__(self, shape: Shape, times: CardTimes) -> None:
        self.shape = shape
        self.times = times
        self._stale: set[str] = set()
        self._noted: set[str] = set()
        self._filled: set[str] = set()
        self._size = max(1, shape.gpus)
        self._order: list[tuple[float, str]] = []
        self._place: dict[str, tuple[float, str]] = {}
        self._found: tuple[Job, Reservation] | None = None
        self._searched_to = _ENDLESS

    def nodes_changed(self, node_ids: Iterable[str]) -> None:
        """Something on these nodes has changed."""
        self._stale.update(node_ids)

    def node_filled(self, node_id: str) -> None:
        """Runs have come to a node, or have started there: a whole card is empty there no sooner than before."""
        self._noted.add(node_id)

    def earliest(self, job: Job, state: PoolState, policy: Policy, rooms: Mapping[str, NodeRoom]) -> Reservation:
        """The earliest whole placement for the job; the same object as long as nothing that it depends on changes.

        A start that is past means that something has outlived its limit and is expected to be gone any moment.
        """
        for node_id in self._noted:
            self._note_filled(node_id)
        self._noted.clear()
        for node_id in self._stale:
            self._refresh(node_id, state, policy, rooms)
        self._stale.clear()
        if self._found is None or self._found[0] is not job:
            self._found = (job, self._search(job, state, policy, rooms))
        return self._found[1]

    def _note_filled(self, node_id: str) -> None:
        times = self.times.known(node_id)
        if not self.times.whole or (times is not None and times.waits):
            self._stale.add(node_id)
        elif node_id in self._place:
            self._filled.add(node_id)
            if self._place[node_id][0] <= self._searched_to:
                self._found = None

    def _refresh(self, node_id: str, state: PoolState, policy: Policy, rooms: Mapping[str, NodeRoom]) -> None:
        self._filled.discard(node_id)
        times = self.times.look_at(node_id, state, policy, rooms)
        if times is None or len(times.ranked) < self._size:
            self._move(node_id, _ENDLESS)
        else:
            self._move(node_id, times.ranked[self._size - 1])

    def _search(self, job: Job, state: PoolState, policy: Policy, rooms: Mapping[str, NodeRoom]) -> Reservation:
        slots: list[tuple[float, str, int]] = []
        self._searched_to = _ENDLESS
        for start, node_id in self._soonest_first(state, policy, rooms):
            if len(slots) >= job.shape.members:
                last = sorted(slots)[job.shape.members - 1][0]
                if start > last:
                    self._searched_to = last
                    break
            if placement.node_allows(rooms[node_id].node, job):
                slots.extend(self._member_slots(node_id))
        chosen = sorted(slots)[: job.shape.members]
        if len(chosen) < job.shape.members or chosen[-1][0] == _ENDLESS:
            return Reservation(job_id=job.job_id, start=None, gpus=frozenset())
        size = self.shape.gpus
        gpus = [
            gpu_id for _, node_id, number in chosen for gpu_id in self._on(node_id).soonest()[number * size :][:size]
        ]
        return Reservation(job_id=job.job_id, start=chosen[-1][0], gpus=frozenset(gpus))

    def _soonest_first(
        self, state: PoolState, policy: Policy, rooms: Mapping[str, NodeRoom]
    ) -> Iterator[tuple[float, str]]:
        """The nodes by when they could start a member; what was filled is put in its place as it is met."""
        position = 0
        while position < len(self._order):
            start, node_id = self._order[position]
            if node_id in self._filled:
                self._refresh(node_id, state, policy, rooms)
                continue
            yield start, node_id
            position += 1

    def _member_slots(self, node_id: str) -> list[tuple[float, str, int]]:
        ranked, size = self._on(node_id).ranked, self._size
        count = 1 if self.shape.distinct_nodes else max(1, len(ranked) // size)
        count = min(count, self.shape.members)
        return [(ranked[number * size + size - 1], node_id, number) for number in range(count)]

    def _on(self, node_id: str) -> NodeTimes:
        found = self.times.known(node_id)
        if found is None:
            raise LookupError(f"node {node_id} has a place and was never looked at")
        return found

    def _move(self, node_id: str, start: float) -> None:
        """Put a node in its place; where no start can be given it has none."""
        old = self._place.get(node_id)
        if start <= self._searched_to or (old is not None and old[0] <= self._searched_to):
            self._found = None
        if old is not None:
            if old[0] == start:
                return
            del self._order[bisect_left(self._order, old)]
            del self._place[node_id]
        if start < _ENDLESS:
            new = self._place[node_id] = (start, node_id)
            insort(self._order, new)


def competes(one: Shape, other: Shape, policy: Policy) -> bool:
    """Whether two shapes could want the same GPU."""
    if (one.gpus == 0) != (other.gpus == 0) or (one.mig or None) != (other.mig or None):
        return False
    if one.nodes and other.nodes and not one.nodes & other.nodes:
        return False
    names = placement.names_of(one.gpu_type, policy)
    others = placement.names_of(other.gpu_type, policy)
    return names is None or others is None or bool(names & others)


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
    name = held.job_id
    if held.start is None:
        sentence = f"what is free is kept for job {name}, which comes first and could not evict this one later"
    else:
        when = "now" if held.start == NOW else f"at {moment(held.start)}"
        sentence = f"what is free is kept for job {name}, which is expected to start {when}"
    return Refusal(
        reason=Reason.RESERVED_FOR_ANOTHER,
        sentence=sentence,
        detail={"job": name},
        room_on=room_on,
    )


def nobody_knows_when(held: Reservation) -> str:
    """Why whoever comes after a job without an expected start neither uses free GPUs nor takes victims."""
    return (
        f"job {held.job_id} comes first: when it can start is not known, as what it waits for has no time limit, and "
        "it could not evict this one later"
    )


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
