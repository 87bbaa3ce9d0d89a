"""How far down a preemptor has to reach on each card, and which nodes are worth looking at for victims.

A card's threshold is the highest v on it that has to leave before it is free, so the k-th smallest threshold of a node
is the lowest "highest victim v" (b) that any set on the node can have. What is protected whoever asks counts as out of
reach. Thresholds only ever leave nodes out or put them in order; who may be taken is decided by `victims`.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from makeway_policy import costs, placement, protection
from makeway_policy.card_room import CardRoom
from makeway_policy.copies import value
from makeway_policy.model import LeaseKind, NodeHealth, Run, Shape
from makeway_policy.rooms import NodeRoom, takes_placements
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState, has_started, is_leaving

_WHOLE = LeaseKind.WHOLE

_ENDLESS = float("inf")
_EXACT = 2**52 - 1
"""Whole numbers up to here are exact as floats."""

Threshold = tuple[float, float, float]
"""(v, -submit time, -admission number): what has to leave. Among equal values the later is within reach of more."""

FREE: Threshold = (-2.0, 0.0, 0.0)
LEAVING: Threshold = (-1.0, 0.0, 0.0)
OUT_OF_REACH: Threshold = (_ENDLESS, 0.0, 0.0)

_NOTHING = (0.0, 1.0, 0.0)
"""The course of what costs nothing."""

_Each = tuple[tuple[str, Threshold, Threshold], ...]
"""Runs by id, each with what has to leave for ordinary preemptors and for those that override minimum runs."""


@value(frozen=True, kw_only=True, slots=True)
class CardReach:
    """One card's thresholds: whole card, for ordinary preemptors and for those that override minimum runs, and part.

    `lowest` is what has to leave so that the card has any more room than now. `shared`: the runs, if several.
    The run has `gpus` cards and `grace` seconds to leave. At `changes_at` time alone may change what protects it.
    `figures`: the three thresholds; since when what stopping the run costs each of its GPUs grows (infinite where it
    doesn't), and its course from there (`costs.course_of`); `gpus`, `grace`, and a number that the cards of the same
    runs share.
    """

    card: CardRoom
    plain: Threshold
    override: Threshold
    part: Threshold
    lowest: Threshold = FREE
    gpus: int = 1
    grace: float = 0.0
    changes_at: float = _ENDLESS
    figures: tuple[float, ...] = ()
    shared: _Each = ()


@dataclass(kw_only=True, slots=True)
class NodeReach:
    """What a node has to offer.

    `changes_at` is when time alone changes a threshold (None: never). `hosted`: the runs of CPU and memory alone.
    `ranked` keeps thresholds in order once they were asked for.
    """

    cards: tuple[CardReach, ...]
    room: NodeRoom
    changes_at: float | None
    hosted: _Each = ()
    ranked: dict[str, list[Threshold]] = field(default_factory=dict, compare=False)

    @property
    def counts_host(self) -> bool:
        """Whether the node counts CPUs or memory, which may be lacking where cards are free."""
        return bool(self.room.node.cpus or self.room.node.memory_mib)

    def bound(self, shape: Shape, *, overrides: bool) -> Threshold:
        """What at least has to leave for one member of the shape."""
        return self.bound_of(shape, shape.gpus, overrides=overrides)

    def bound_of(self, shape: Shape, gpus: int, *, overrides: bool) -> Threshold:
        """What at least has to leave for so many GPUs of what the shape asks for."""
        if gpus == 0:
            return FREE
        kind = "plain" if not overrides else "override"
        if placement.kind_of(shape) is not _WHOLE:
            kind = "part"
        thresholds = self.ranked.get(kind)
        if thresholds is None:
            thresholds = self.ranked[kind] = sorted(map(attrgetter(kind), self.cards))
        return thresholds[gpus - 1] if len(thresholds) >= gpus else OUT_OF_REACH

    def once_filled(self, room: NodeRoom) -> list[Threshold]:
        """What has to leave on each card, least first, once runs that nobody may take have come or started.

        `room` is as it is with them; their cards are left out.
        """
        return sorted(
            [
                before.plain if before.card is card else FREE if card.empty_now else LEAVING
                for before, card in zip(self.cards, room.cards, strict=bool(self.cards))
                if before.card is card or card.empty_later
            ]
        )


def cheapest(costs: Collection[tuple[int, float]], needed: int) -> tuple[float, ...]:
    """The costs of the cheapest set of runs that has so many cards, cheapest first; `costs` by (cards, cost).

    By dynamic programming over the cards that are covered: exact, and a node has few of either. Needs enough cards.
    """
    best: list[tuple[float, tuple[float, ...]] | None] = [(0.0, ()), *[None] * needed]
    for number, cost in costs:
        for covered in range(needed, 0, -1):
            before = best[max(0, covered - number)]
            known = best[covered]
            if before is not None and (known is None or before[0] + cost < known[0]):
                best[covered] = (before[0] + cost, (*before[1], cost))
    found = best[needed]
    return () if found is None else tuple(sorted(found[1]))


def node_reach(
    state: PoolState,
    policy: Policy,
    room: NodeRoom,
    now: float,
    before: NodeReach | None = None,
    started: Collection[str] = (),
) -> NodeReach:
    """The thresholds of a node as things are; cards that nothing has changed on are taken from `before`.

    On the GPUs in `started` the runs have started since.
    """
    if not takes_placements(room.node):
        return NodeReach(cards=(), room=room, changes_at=None)
    runs: dict[str, _RunReach] = {}
    cards = []
    changes_at = _ENDLESS
    for gpu_id, card, found in zip(room.gpu_ids, room.cards, _known(before, room), strict=True):
        if found is None or found.card is not card or now >= found.changes_at or (started and gpu_id in started):
            for run in card.runs:
                if run.run_id not in runs and not is_leaving(run):
                    runs[run.run_id] = _of_run(state, policy, state.runs[run.run_id], now)
            found = _of_card(card, runs)
        cards.append(found)
        if found.changes_at < changes_at:
            changes_at = found.changes_at
    hosted = []
    for run in _hosted(state, room) if room.hosts_runs else ():
        of_host = _of_run(state, policy, run, now)
        hosted.append((run.run_id, of_host.plain, of_host.override))
        changes_at = min(changes_at, of_host.changes_at)
    return NodeReach(
        cards=tuple(cards),
        room=room,
        changes_at=None if changes_at == _ENDLESS else changes_at,
        hosted=tuple(hosted),
    )


def _hosted(state: PoolState, room: NodeRoom) -> list[Run]:
    """The runs that take nothing of the node but CPU and memory, and that stay."""
    return [run for run in state.runs_on_node(room.node.node_id) if not run.leases and not is_leaving(run)]


def _known(before: NodeReach | None, room: NodeRoom) -> Sequence[CardReach | None]:
    """What is known of each of the room's cards."""
    if before is None:
        return [None] * len(room.cards)
    if before.room.node is room.node and len(before.cards) == len(room.cards):
        return before.cards
    known = {each.card.gpu.gpu_id: each for each in before.cards}
    return [known.get(card.gpu.gpu_id) for card in room.cards]


def improved(old: NodeReach | None, new: NodeReach) -> bool:
    """Whether somebody could get on the node what nobody could before."""
    if old is None or len(old.cards) != len(new.cards):
        return True
    return _any_nearer(old.hosted, new.hosted) or any(
        after is not before
        and (
            after.card.gpu.gpu_id != before.card.gpu.gpu_id
            or after.plain < before.plain
            or after.override < before.override
            or after.part < before.part
            or after.lowest < before.lowest
            or after.grace < before.grace
            or _any_nearer(before.shared, after.shared)
        )
        for before, after in zip(old.cards, new.cards, strict=True)
    )


def _any_nearer(old: _Each, new: _Each) -> bool:
    """Whether any of the runs is within reach of more than it was."""
    before_of = {run_id: (plain, override) for run_id, plain, override in old} if new else {}
    for run_id, plain, override in new:
        known = before_of.get(run_id)
        if known is not None and (plain < known[0] or override < known[1]):
            return True
    return False


def filled_by(before: NodeRoom, after: NodeRoom, amended: Collection[str]) -> list[Run] | None:
    """The runs that have come to a node or have started; None where anything else happened there.

    With such runs alone nobody can get there what was out of reach before.
    """
    if len(before.cards) != len(after.cards) or before.node is not after.node:
        return None
    runs: dict[str, Run] = {}
    for old, new in zip(before.cards, after.cards, strict=True):
        if old is new:
            continue
        now = {run.run_id: run for run in new.runs}
        for run in old.runs:
            same = now.get(run.run_id)
            if same is None or run.job_id in amended or not (same is run or has_started(run, same)):
                return None
            if same is run:
                del now[run.run_id]
        runs.update(now)
    if after.hosts_runs and not _nothing_else_on_host(before, after, runs):
        return None
    return list(runs.values())


def _nothing_else_on_host(before: NodeRoom, after: NodeRoom, runs: Mapping[str, Run]) -> bool:
    """Whether runs of CPU and memory alone, which are not seen on the cards, have left as much as there was.

    `runs` have come or have started.
    """
    if after.cpus_now > before.cpus_now or after.memory_now > before.memory_now:
        return False
    there = {run.run_id for card in before.cards for run in card.runs}
    came = [run for run_id, run in runs.items() if run_id not in there]
    here = [member for run in came for member in run.members if member.node_id == after.node.node_id]
    cpus = before.cpus_later - sum(member.cpus for member in here)
    memory_mib = before.memory_later - sum(member.memory_mib for member in here)
    return after.memory_later == memory_mib and math.isclose(after.cpus_later, cpus, abs_tol=1e-6)


@value(frozen=True, kw_only=True, slots=True)
class _RunReach:
    """One run's part in `CardReach`."""

    plain: Threshold
    override: Threshold
    gpus: int
    grace: float
    changes_at: float
    costs: tuple[float, ...]


def _of_run(state: PoolState, policy: Policy, run: Run, now: float) -> _RunReach:
    # Of the node itself that is known.
    heard = len(run.members) == 1 or all(state.nodes[each].health is NodeHealth.READY for each in run.node_ids)
    job = state.jobs[run.job_id]
    # Whoever won as aged has Δ in its v already: base against base, anybody may be first.
    later = (-_ENDLESS, -_ENDLESS) if run.promoted else (-job.submitted_at, float(-job.order))
    threshold = (float(run.v), *later)
    plain, override, changes_at = protection.outlook(state, policy, job, run, now)
    grace, since, course = 0.0, _ENDLESS, _NOTHING
    if not protection.is_hold(run):
        grace = costs.grace_of(job, policy)
        if run.started_at is not None:
            # What starts or saves a moment after `now`, by another clock, loses nothing more until then.
            since = max(now, run.started_at, run.last_ack_at or 0.0)
        course = costs.course_of(job, run, policy, now if since == _ENDLESS else since)
    gpus = costs.gpus_of(run)
    return _RunReach(
        plain=OUT_OF_REACH if plain or not heard else threshold,
        override=OUT_OF_REACH if override or not heard else threshold,
        gpus=gpus,
        grace=grace,
        changes_at=changes_at,
        costs=(since, *course, gpus, grace, float(hash((run.run_id,)) & _EXACT)),
    )


def _of_card(card: CardRoom, known: dict[str, _RunReach]) -> CardReach:
    staying = [known[run_id] for run_id in card.staying]
    shared: _Each = ()
    if not staying:
        return _without_runs(card)
    # On most cards there is one run.
    if len(staying) == 1:
        (one,) = staying
        plain, lowest, costs_and_run, changes_at = one.plain, one.override, one.costs, one.changes_at
        override, gpus, grace = lowest, one.gpus, one.grace
    else:
        plain, override = max(each.plain for each in staying), max(each.override for each in staying)
        lowest = min(each.override for each in staying)
        gpus, grace = 1, min(each.grace for each in staying)
        # Runs that share a card may be taken for another card's sake: what they cost is not this card's.
        costs_and_run = (_ENDLESS, *_NOTHING, 1.0, grace, float(hash(card.staying) & _EXACT))
        changes_at = min(each.changes_at for each in staying)
        shared = tuple((run_id, known[run_id].plain, known[run_id].override) for run_id in card.staying)
    part = FREE if card.slots_now > 0 else LEAVING if card.slots_later > 0 else lowest
    return CardReach(
        card=card,
        plain=plain,
        override=override,
        part=part,
        lowest=lowest,
        gpus=gpus,
        grace=grace,
        changes_at=changes_at,
        figures=(*plain, *override, *part, *costs_and_run),
        shared=shared,
    )


def _without_runs(card: CardRoom) -> CardReach:
    nothing = LEAVING if card.leaving or not card.empty_now else FREE
    part = FREE if card.slots_now > 0 else LEAVING
    figures = (*nothing, *nothing, *part, _ENDLESS, *_NOTHING, 1.0, 0.0, -1.0)
    return CardReach(card=card, plain=nothing, override=nothing, part=part, figures=figures)
