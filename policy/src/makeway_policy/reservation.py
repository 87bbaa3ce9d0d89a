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
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from makeway_policy import placement, quota
from makeway_policy.card_room import CardRoom
from makeway_policy.copies import value
from makeway_policy.costs import grace_of
from makeway_policy.model import Job, LeaseKind, Reason, Refusal, Run, Shape
from makeway_policy.moments import moment
from makeway_policy.priority import base, class_of, outranks, preemption_value
from makeway_policy.rooms import NodeRoom, takes_placements
from makeway_policy.rules import Backfill, MayPreempt, Policy
from makeway_policy.state import PoolState, is_leaving

_WHOLE = LeaseKind.WHOLE
_ENDLESS = float("inf")
_NOW = 0.0  # the expected start on cards that have room already


@value(frozen=True, kw_only=True, slots=True)
class Reservation:
    """What a waiting job is expected to get. `start` None: no expected start can be given, so `gpus` is empty."""

    job_id: str
    start: float | None
    gpus: frozenset[str]


@dataclass(kw_only=True, slots=True)
class _NodeTimes:
    """When each card of a node that suits can serve one GPU, and the same soonest first.

    `lasting` are the cards for which that holds until they change: a hold waits for others, and when they go is not
    seen on its cards. `waits`: there is such a hold.
    """

    cards: Sequence[CardRoom]
    lasting: list[CardRoom | None]
    ends: list[float]
    ranked: list[float] = field(default_factory=list)
    waits: bool = False


class ExpectedStarts:
    """When each node could start one member of a shape, from the declared time limits of what is on it."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._stale: set[str] = set()
        self._noted: set[str] = set()
        self._filled: set[str] = set()
        self._started: dict[str, set[str]] = {}
        self._size = max(1, shape.gpus)
        self._whole = placement.kind_of(shape) is _WHOLE
        self._times: dict[str, _NodeTimes] = {}
        self._order: list[tuple[float, str]] = []
        self._place: dict[str, tuple[float, str]] = {}
        self._found: tuple[Job, Reservation] | None = None
        self._searched_to = _ENDLESS

    def nodes_changed(self, node_ids: Iterable[str]) -> None:
        """Something on these nodes has changed."""
        self._stale.update(node_ids)

    def node_filled(self, node_id: str, started: Iterable[str]) -> None:
        """Runs have come to a node, or have started there: a whole card is empty there no sooner than before.

        `started` are the GPUs of those that have started.
        """
        self._noted.add(node_id)
        if started:
            self._started.setdefault(node_id, set()).update(started)

    def earliest(self, job: Job, state: PoolState, policy: Policy, rooms: dict[str, NodeRoom]) -> Reservation:
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
        times = self._times.get(node_id)
        if not self._whole or (times is not None and times.waits):
            self._stale.add(node_id)
        elif node_id in self._place:
            self._filled.add(node_id)
            if self._place[node_id][0] <= self._searched_to:
                self._found = None

    def _refresh(self, node_id: str, state: PoolState, policy: Policy, rooms: dict[str, NodeRoom]) -> None:
        self._filled.discard(node_id)
        started = self._started.pop(node_id, ())
        room = rooms.get(node_id)
        if room is None or not takes_placements(room.node):
            self._times.pop(node_id, None)
            self._move(node_id, _ENDLESS)
            return
        times = self._times[node_id] = self._times_on(state, policy, room, started)
        self._move(node_id, times.ranked[self._size - 1] if len(times.ranked) >= self._size else _ENDLESS)

    def _search(self, job: Job, state: PoolState, policy: Policy, rooms: dict[str, NodeRoom]) -> Reservation:
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
        gpus = [gpu_id for _, node_id, number in chosen for gpu_id in self._soonest(node_id)[number * size :][:size]]
        return Reservation(job_id=job.job_id, start=chosen[-1][0], gpus=frozenset(gpus))

    def _soonest_first(
        self, state: PoolState, policy: Policy, rooms: dict[str, NodeRoom]
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
        ranked, size = self._times[node_id].ranked, self._size
        count = 1 if self.shape.distinct_nodes else max(1, len(ranked) // size)
        count = min(count, self.shape.members)
        return [(ranked[number * size + size - 1], node_id, number) for number in range(count)]

    def _soonest(self, node_id: str) -> list[str]:
        """The GPUs of a node that suit, the soonest first."""
        times = self._times[node_id]
        ranked = sorted(zip(times.ends, times.cards, strict=True), key=lambda each: (each[0], each[1].gpu.index))
        return [card.gpu.gpu_id for _, card in ranked]

    def _times_on(self, state: PoolState, policy: Policy, room: NodeRoom, started: Collection[str]) -> _NodeTimes:
        """What holds of a node now; cards that have not changed, nor `started`, are as they were."""
        cards = placement.suitable(room, self.shape, policy)
        known = self._times.get(room.node.node_id)
        if known is None or len(known.cards) != len(cards):
            known = _NodeTimes(cards=cards, lasting=[None] * len(cards), ends=[0.0] * len(cards))
        known.waits = False
        alone: Run | None = None
        end, waits = 0.0, False
        for place, (card, old) in enumerate(zip(cards, known.lasting, strict=True)):
            if card is not old or (started and card.gpu.gpu_id in started):
                runs = card.runs
                if not self._whole or len(runs) != 1:
                    end, waits = _card_time(state, card, self.shape), any(run.after for run in runs)
                    alone = None
                elif runs[0] is not alone:
                    # A run that has several whole cards leaves them all at once.
                    alone = runs[0]
                    end, waits = expected_end(state, state.runs[alone.run_id]), bool(alone.after)
                known.ends[place] = end
                known.lasting[place] = None if waits else card
                known.waits = known.waits or waits
        known.cards, known.ranked = cards, sorted(known.ends)
        return known

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
        when = "now" if held.start == _NOW else f"at {moment(held.start)}"
        sentence = f"what is free is kept for job {name}, which is expected to start {when}"
    return Refusal(
        reason=Reason.RESERVED_FOR_ANOTHER,
        sentence=sentence,
        detail={"job": name},
        room_on=room_on,
    )


def expected_end(state: PoolState, run: Run) -> float:
    """When the run has to be gone by its declared time limit (or its notice); infinite where it has none."""
    if is_leaving(run):
        if run.leaves_by is not None:
            return run.leaves_by
        return _ENDLESS if run.noticed_at is None else run.noticed_at + run.grace_seconds
    job = state.jobs[run.job_id]
    if job.time_limit_seconds is None:
        return _ENDLESS
    left = max(0.0, job.time_limit_seconds - job.used_seconds)
    if run.started_at is not None:
        return run.started_at + left
    begins = max((expected_end(state, state.runs[each]) for each in run.after), default=run.decided_at)
    return begins + left


def _card_time(state: PoolState, card: CardRoom, shape: Shape) -> float:
    """When the card can serve one GPU of the shape."""
    if not card.runs:
        return _NOW
    kind = placement.kind_of(shape)
    if kind is _WHOLE or card.kinds_later - {kind}:
        return max([expected_end(state, state.runs[run.run_id]) for run in card.runs])
    vram, slots = card.vram_now, card.slots_now
    wanted = (shape.vram_mib or 0, shape.shares or 1)
    if vram >= wanted[0] and slots >= wanted[1]:
        return _NOW
    ends = sorted((expected_end(state, state.runs[run.run_id]), run.run_id) for run in card.runs)
    for end, run_id in ends:
        for lease in state.runs[run_id].leases:
            if lease.gpu_id == card.gpu.gpu_id:
                vram, slots = vram + lease.vram_mib, slots + lease.slots
        if vram >= wanted[0] and slots >= wanted[1]:
            return end
    return ends[-1][0]


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
