"""How far down a preemptor has to reach on each card, and which nodes are worth looking at for victims.

A card's threshold is the highest v on it that has to leave before it is free, so the k-th smallest threshold of a node
is the lowest "highest victim v" (b) that any set on the node can have. What is protected whoever asks counts as out of
reach. Thresholds only ever leave nodes out or put them in order; who may be taken is decided by `victims`.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge

from makeway_policy import costs, placement, protection
from makeway_policy.model import LeaseKind, NodeHealth, Run, Shape
from makeway_policy.rooms import CardRoom, NodeRoom, takes_placements
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState, is_leaving

_ENDLESS = float("inf")

Threshold = tuple[float, float]
"""(v, -submit time): what has to leave. Among equal values the later submit is within reach of more."""

FREE: Threshold = (-2.0, 0.0)
LEAVING: Threshold = (-1.0, 0.0)
OUT_OF_REACH: Threshold = (_ENDLESS, 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class CardReach:
    """One card's thresholds: whole card, for ordinary preemptors and for those that override minimum runs, and part.

    `lost` is what a GPU of the run on it loses if it is stopped at `at`, in seconds, progress counted; it only grows.
    The run has `gpus` cards, `here` of them on this node, and `grace` seconds to leave. At `changes_at` time alone may
    change what protects it.
    """

    card: CardRoom
    plain: Threshold
    override: Threshold
    part: Threshold
    lost: float = 0.0
    gpus: int = 1
    here: int = 1
    at: float = 0.0
    grace: float = 0.0
    changes_at: float = _ENDLESS

    def since(self, wanted: int) -> float:
        """Freeing the card at a time t, for a set of so many cards, costs at least t - since GPU-seconds a card."""
        return self.at - self.lost * self.gpus / max(1, min(self.here, wanted))


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeReach:
    """A node's thresholds, smallest first. `changes_at` is when time alone changes one (None: never)."""

    cards: tuple[CardReach, ...]
    plain: tuple[Threshold, ...]
    override: tuple[Threshold, ...]
    part: tuple[Threshold, ...]
    changes_at: float | None

    def bound(self, shape: Shape, *, overrides: bool) -> Threshold:
        """What at least has to leave for one member of the shape."""
        if shape.gpus == 0:
            return FREE
        if placement.kind_of(shape) is not LeaseKind.WHOLE:
            thresholds = self.part
        else:
            thresholds = self.override if overrides else self.plain
        return thresholds[shape.gpus - 1] if len(thresholds) >= shape.gpus else OUT_OF_REACH


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A node to look at for victims, with bounds on what it can offer: highest victim v, and cost."""

    node_id: str
    v: float
    cost: float


def node_reach(
    state: PoolState, policy: Policy, room: NodeRoom, now: float, before: NodeReach | None = None
) -> NodeReach:
    """The thresholds of a node as things are; cards that nothing has changed on are taken from `before`."""
    if not takes_placements(room.node):
        return NodeReach(cards=(), plain=(), override=(), part=(), changes_at=None)
    known = {} if before is None else {each.card.gpu.gpu_id: each for each in before.cards}
    runs: dict[str, _RunReach] = {}
    cards = []
    for card in room.cards:
        old = known.get(card.gpu.gpu_id)
        if old is None or old.card is not card or now >= old.changes_at:
            for run in card.runs:
                if run.run_id not in runs and not is_leaving(run):
                    runs[run.run_id] = _of_run(state, policy, run, room.node.node_id, now)
            old = _of_card(card, runs, now)
        cards.append(old)
    changes_at = min((card.changes_at for card in cards), default=_ENDLESS)
    return NodeReach(
        cards=tuple(cards),
        plain=tuple(sorted(card.plain for card in cards)),
        override=tuple(sorted(card.override for card in cards)),
        part=tuple(sorted(card.part for card in cards)),
        changes_at=None if changes_at == _ENDLESS else changes_at,
    )


def improved(old: NodeReach | None, new: NodeReach) -> bool:
    """Whether somebody could get on the node what nobody could before."""
    if old is None:
        return True
    pairs = ((old.plain, new.plain), (old.override, new.override), (old.part, new.part))
    return any(
        len(after) > len(before) or any(b < a for a, b in zip(before, after, strict=False)) for before, after in pairs
    )


class VictimNodes:
    """Nodes in the order in which they are worth looking at, for one kind of request."""

    def __init__(self, shape: Shape, *, overrides: bool) -> None:
        self.shape = shape
        self.overrides = overrides
        self.stale: set[str] = set()
        self._lists: dict[tuple[float, int], list[tuple[float, str]]] = {}
        self._levels: list[tuple[float, int]] = []
        self._place: dict[str, tuple[tuple[float, int], tuple[float, str]]] = {}
        self._bounds: dict[str, Threshold] = {}

    def refresh(self, policy: Policy, reaches: dict[str, NodeReach]) -> None:
        """Bring the nodes that changed up to date."""
        for node_id in self.stale:
            self._forget(node_id)
            reach = reaches.get(node_id)
            if reach is not None:
                self._learn(node_id, reach, policy)
        self.stale.clear()

    def any_within(self, limit: Threshold) -> bool:
        """Whether any node's bound may be within the limit."""
        return bool(self._levels) and self._levels[0][0] <= limit[0]

    def within(self, limit: Threshold, now: float) -> Iterator[Host]:
        """Nodes whose bound is within the limit, by highest victim v, then by the bound on cost."""
        values = sorted({level[0] for level in self._levels if level[0] <= limit[0]})
        for v in values:
            lists = [self._hosts(level, limit, now) for level in self._levels if level[0] == v]
            for cost, node_id in merge(*lists):
                yield Host(node_id=node_id, v=v, cost=cost)

    def _hosts(self, level: tuple[float, int], limit: Threshold, now: float) -> Iterator[tuple[float, str]]:
        cards = level[1]
        for negative_since, node_id in self._lists[level]:
            if self._bounds[node_id] <= limit:
                yield max(0.0, cards * now + negative_since), node_id

    def _learn(self, node_id: str, reach: NodeReach, policy: Policy) -> None:
        size = max(1, self.shape.gpus)
        if self.shape.gpus == 0 or placement.kind_of(self.shape) is not LeaseKind.WHOLE:
            bound = reach.bound(self.shape, overrides=self.overrides)
            if bound < OUT_OF_REACH:
                self._insert(node_id, bound, 0, 0.0)
            return
        cards = [each for each in reach.cards if placement.suits(each.card.gpu, self.shape, policy)]
        ranked = sorted((each.override if self.overrides else each.plain, -each.since(size)) for each in cards)
        if len(ranked) < size or ranked[size - 1][0] >= OUT_OF_REACH:
            return
        bound = ranked[size - 1][0]
        taken = sum(1 for threshold, _ in ranked[:size] if threshold[0] >= 0)
        latest = sorted(negative for threshold, negative in ranked if 0 <= threshold[0] <= bound[0])[:taken]
        graces = [each.grace for each in cards if each.lost and min(each.plain, each.override)[0] <= bound[0]]
        wait = size * min(graces, default=0.0) if taken and len(graces) == _evictable(cards, bound) else 0.0
        self._insert(node_id, bound, taken, sum(latest) + wait)

    def _insert(self, node_id: str, bound: Threshold, taken: int, negative_since: float) -> None:
        level = (bound[0], taken)
        entry = (negative_since, node_id)
        if level not in self._lists:
            self._lists[level] = []
            insort(self._levels, level)
        insort(self._lists[level], entry)
        self._place[node_id] = (level, entry)
        self._bounds[node_id] = bound

    def _forget(self, node_id: str) -> None:
        place = self._place.pop(node_id, None)
        if place is None:
            return
        level, entry = place
        entries = self._lists[level]
        del entries[bisect_left(entries, entry)]
        del self._bounds[node_id]
        if not entries:
            del self._lists[level]
            del self._levels[bisect_left(self._levels, level)]


def _evictable(cards: Sequence[CardReach], bound: Threshold) -> int:
    return sum(1 for each in cards if 0 <= min(each.plain, each.override)[0] <= bound[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class _RunReach:
    plain: Threshold
    override: Threshold
    lost: float
    gpus: int
    here: int
    grace: float
    changes_at: float


def _of_run(state: PoolState, policy: Policy, run: Run, node_id: str, now: float) -> _RunReach:
    heard = all(state.nodes[each].health is NodeHealth.READY for each in run.node_ids)
    job = state.jobs[run.job_id]
    threshold = (float(run.v), -_ENDLESS if run.promoted else -job.submitted_at)
    plain = protection.of_run(state, policy, run, now, overrides=False)
    override = plain and protection.of_run(state, policy, run, now, overrides=True)
    changes_at = protection.protection_changes_at(state, policy, run, now)
    return _RunReach(
        plain=OUT_OF_REACH if plain or not heard else threshold,
        override=OUT_OF_REACH if override or not heard else threshold,
        lost=0.0 if protection.is_hold(run) else costs.lost_seconds(job, run, policy, now),
        gpus=costs.gpus_of(run),
        here=sum(len(member.leases) for member in run.members if member.node_id == node_id),
        grace=0.0 if protection.is_hold(run) else costs.grace_of(job, policy),
        changes_at=_ENDLESS if changes_at is None else changes_at,
    )


def _of_card(card: CardRoom, known: dict[str, _RunReach], now: float) -> CardReach:
    staying = [known[run_id] for run_id in card.staying]
    if not staying:
        nothing = LEAVING if card.leaving or not card.empty_now else FREE
        return CardReach(card=card, plain=nothing, override=nothing, part=nothing)
    part = FREE if card.slots_now > 0 else LEAVING if card.slots_later > 0 else min(each.override for each in staying)
    alone = len(staying) == 1
    return CardReach(
        card=card,
        plain=max(each.plain for each in staying),
        override=max(each.override for each in staying),
        part=part,
        lost=max(each.lost for each in staying) if alone else 0.0,
        gpus=staying[0].gpus if alone else 1,
        here=staying[0].here if alone else 1,
        at=now,
        grace=min(each.grace for each in staying),
        changes_at=min(each.changes_at for each in staying),
    )
