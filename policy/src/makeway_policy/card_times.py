"""When each card of a node could serve one GPU of a request, from the declared time limits of what is on it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from makeway_policy import placement, quota
from makeway_policy.card_room import CardRoom
from makeway_policy.model import LeaseKind, Run, Shape
from makeway_policy.rooms import NodeRoom, takes_placements
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState, is_leaving

_WHOLE = LeaseKind.WHOLE
ENDLESS = float("inf")
"""Nobody knows when: what is there has no time limit, and is not preemptible either."""
UNLIMITED = 1e300
"""Nobody knows when: what is there has no time limit. It is preemptible, so it may have to leave before."""
NOW = 0.0
"""The expected start on cards that have room already."""


@dataclass(kw_only=True, slots=True)
class NodeTimes:
    """When each card of a node that suits can serve one GPU, and the same soonest first.

    `lasting` are the cards for which that holds until they change: a hold waits for others, and when they go is not
    seen on its cards. `waits`: there is such a hold.
    """

    cards: Sequence[CardRoom]
    lasting: list[CardRoom | None]
    ends: list[float]
    ranked: list[float] = field(default_factory=list)
    waits: bool = False

    def soonest(self) -> list[str]:
        """The GPUs, the soonest first."""
        ranked = sorted(zip(self.ends, self.cards, strict=True), key=lambda each: (each[0], each[1].gpu.index))
        return [card.gpu.gpu_id for _, card in ranked]


class CardTimes:
    """What is known of all nodes for requests that ask the same of a card, however many of them (`placement.of_card`).

    `whole`: they ask for whole cards.
    """

    def __init__(self, shape: Shape) -> None:
        self.whole = placement.kind_of(shape) is _WHOLE
        self._shape = shape
        self._times: dict[str, NodeTimes] = {}
        self._started: dict[str, set[str]] = {}

    def started_on(self, node_id: str, gpu_ids: Iterable[str]) -> None:
        """Runs on these GPUs of a node have started."""
        self._started.setdefault(node_id, set()).update(gpu_ids)

    def known(self, node_id: str) -> NodeTimes | None:
        """What was found when a node was looked at last."""
        return self._times.get(node_id)

    def look_at(
        self, node_id: str, state: PoolState, policy: Policy, rooms: Mapping[str, NodeRoom]
    ) -> NodeTimes | None:
        """What holds of a node now; None where nothing may be placed on it."""
        started = self._started.pop(node_id, ())
        room = rooms.get(node_id)
        if room is None or not takes_placements(room.node):
            self._times.pop(node_id, None)
            return None
        cards = placement.suitable(room, self._shape, policy)
        known = self._times.get(node_id)
        if known is None or len(known.cards) != len(cards):
            known = NodeTimes(cards=(), lasting=[None] * len(cards), ends=[0.0] * len(cards))
            self._times[node_id] = known
        # Another shape may have asked already.
        if known.cards is not cards or known.waits or started:
            self._renew(known, cards, (state, policy), started)
        return known

    def _renew(
        self, known: NodeTimes, cards: Sequence[CardRoom], where: tuple[PoolState, Policy], started: Collection[str]
    ) -> None:
        """Cards that have not changed, nor `started`, are as they were."""
        state, policy = where
        known.waits = False
        alone: Run | None = None
        end, waits = 0.0, False
        for place, (card, old) in enumerate(zip(cards, known.lasting, strict=True)):
            if card is not old or (started and card.gpu.gpu_id in started):
                runs = card.runs
                if not self.whole or len(runs) != 1:
                    end, waits = _card_time(state, policy, card, self._shape), any(run.after for run in runs)
                    alone = None
                elif runs[0] is not alone:
                    # A run that has several whole cards leaves them all at once.
                    alone = runs[0]
                    end, waits = expected_end(state, policy, state.runs[alone.run_id]), bool(alone.after)
                known.ends[place] = end
                known.lasting[place] = None if waits else card
                known.waits = known.waits or waits
        known.cards, known.ranked = cards, sorted(known.ends)


def expected_end(state: PoolState, policy: Policy, run: Run) -> float:
    """When the run has to be gone by its declared time limit (or its notice); UNLIMITED or ENDLESS without one."""
    if is_leaving(run):
        if run.leaves_by is not None:
            return run.leaves_by
        return UNLIMITED if run.noticed_at is None else run.noticed_at + run.grace_seconds
    job = state.jobs[run.job_id]
    if job.time_limit_seconds is None:
        return UNLIMITED if quota.is_preemptible(job, policy) else ENDLESS
    left = max(0.0, job.time_limit_seconds - job.used_seconds)
    if run.started_at is not None:
        return run.started_at + left
    begins = max((expected_end(state, policy, state.runs[each]) for each in run.after), default=run.decided_at)
    return begins + left


def _card_time(state: PoolState, policy: Policy, card: CardRoom, shape: Shape) -> float:
    """When the card can serve one GPU of the shape."""
    if not card.runs:
        return NOW
    kind = placement.kind_of(shape)
    if kind is _WHOLE or card.kinds_later - {kind}:
        return max([expected_end(state, policy, state.runs[run.run_id]) for run in card.runs])
    vram, slots = card.vram_now, card.slots_now
    wanted = (shape.vram_mib or 0, shape.shares or 1)
    if vram >= wanted[0] and slots >= wanted[1]:
        return NOW
    ends = sorted((expected_end(state, policy, state.runs[run.run_id]), run.run_id) for run in card.runs)
    for end, run_id in ends:
        for lease in state.runs[run_id].leases:
            if lease.gpu_id == card.gpu.gpu_id:
                vram, slots = vram + lease.vram_mib, slots + lease.slots
        if vram >= wanted[0] and slots >= wanted[1]:
            return end
    return ends[-1][0]
