"""How far down a preemptor has to reach on each card, and which nodes are worth looking at for victims.

A card's threshold is the highest v on it that has to leave before it is free, so the k-th smallest threshold of a node
is the lowest "highest victim v" (b) that any set on the node can have. What is protected whoever asks counts as out of
reach. Thresholds only ever leave nodes out or put them in order; who may be taken is decided by `victims`.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge

from makeway_policy import placement, protection
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

    `since` is the latest moment up to which work on it is safe; it bounds the cost of freeing the card from below.
    """

    card: CardRoom
    plain: Threshold
    override: Threshold
    part: Threshold
    since: float


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


def node_reach(state: PoolState, policy: Policy, room: NodeRoom, now: float) -> NodeReach:
    """The thresholds of a node as things are."""
    if not takes_placements(room.node):
        return NodeReach(cards=(), plain=(), override=(), part=(), changes_at=None)
    runs = [run for run in state.runs_on_node(room.node.node_id) if not is_leaving(run)]
    known = {run.run_id: _of_run(state, policy, run, now) for run in runs}
    cards = tuple(_of_card(state, card, known) for card in room.cards)
    moments = [protection.protection_changes_at(state, policy, run, now) for run in runs]
    return NodeReach(
        cards=cards,
        plain=tuple(sorted(card.plain for card in cards)),
        override=tuple(sorted(card.override for card in cards)),
        part=tuple(sorted(card.part for card in cards)),
        changes_at=min((at for at in moments if at is not None), default=None),
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
                self._insert(node_id, bound, 0, -_ENDLESS)
            return
        cards = [each for each in reach.cards if placement.suits(each.card.gpu, self.shape, policy)]
        ranked = sorted((each.override if self.overrides else each.plain, -each.since) for each in cards)
        if len(ranked) < size or ranked[size - 1][0] >= OUT_OF_REACH:
            return
        bound = ranked[size - 1][0]
        taken = sum(1 for threshold, _ in ranked[:size] if threshold[0] >= 0)
        latest = sorted(negative for threshold, negative in ranked if 0 <= threshold[0] <= bound[0])[:taken]
        self._insert(node_id, bound, taken, sum(latest))

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


def _of_run(state: PoolState, policy: Policy, run: Run, now: float) -> tuple[Threshold, Threshold, float]:
    """(threshold, threshold for those that override minimum runs, since) of one run."""
    if any(state.nodes[node_id].health is not NodeHealth.READY for node_id in run.node_ids):
        return OUT_OF_REACH, OUT_OF_REACH, 0.0
    job = state.jobs[run.job_id]
    threshold = (float(run.v), -_ENDLESS if run.promoted else -job.submitted_at)
    plain = protection.of_run(state, policy, run, now, overrides=False)
    override = plain and protection.of_run(state, policy, run, now, overrides=True)
    since = run.last_ack_at if run.last_ack_at is not None else run.started_at
    if protection.is_hold(run) or since is None:
        since = _ENDLESS
    return (OUT_OF_REACH if plain else threshold), (OUT_OF_REACH if override else threshold), since


def _of_card(state: PoolState, card: CardRoom, known: dict[str, tuple[Threshold, Threshold, float]]) -> CardReach:
    staying = [known[run.run_id] for run in state.runs_on_gpu(card.gpu.gpu_id) if run.run_id in known]
    if not staying:
        nothing = LEAVING if card.leaving or not card.empty_now else FREE
        return CardReach(card=card, plain=nothing, override=nothing, part=nothing, since=_ENDLESS)
    part = FREE if card.slots_now > 0 else LEAVING if card.slots_later > 0 else min(each[1] for each in staying)
    return CardReach(
        card=card,
        plain=max(each[0] for each in staying),
        override=max(each[1] for each in staying),
        part=part,
        since=max(each[2] for each in staying),
    )
