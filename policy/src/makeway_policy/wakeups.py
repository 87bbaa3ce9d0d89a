"""Who is judged again when something has changed.

The rules, in this order. Each names at least those who could be decided otherwise than before; whoever is named and was
not concerned is only judged in vain.
 1. small pools: everybody, holders that might move included
 2. a team's rights have changed: everybody, or its own jobs, by what of them has changed
 3. a team uses less of something: its jobs that a limit may keep out (of a share that is known only where it is
    placed), and those that may be within its guarantee now
 4. a job gets a run: jobs of its team that a limit may keep out and that could take that run, or had waited for others
    to leave; where its turn came before its worth (by aging or fair share), whoever may reach the run
 5. other jobs reserve, or are expected to start elsewhere or otherwise, or come later in the queue than before: those
    that a reservation kept out; and those that had room, but for a reservation or for what a share would count there,
    and have not any more: they reserve now
 6. the hardware has changed: those that it could never run, and those that it can never run any more
 7. a node has something to offer that it had not: those that may reach it, and while there is room those whose shape
    fits, then those of them that may reach it; a node offers more, too, when more of what a team with a guarantee runs
    there is borrowed, and when what leaves there anyway is gone no later than victims would be (`patience`)
 8. room, or a change of reservations: holders that might move; and those that are further ahead than they were, ask for
    something else or may have more by their team's limits, or stayed for one ahead of them who is not there any more
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial

from makeway_policy import placement, priority, protection, quota
from makeway_policy.agenda import Agenda
from makeway_policy.changes import Changes
from makeway_policy.free import FreeCards
from makeway_policy.hosts import Hosts
from makeway_policy.model import LeaseKind, Reason, Run, Shape
from makeway_policy.movers import Movers
from makeway_policy.queue import Bucket, Key, Turns
from makeway_policy.reach import NodeReach, Threshold
from makeway_policy.reserving import Reservers, View
from makeway_policy.rights import Effects, Rights
from makeway_policy.rooms import NodeRoom
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState

_BY_ROOM = frozenset({Reason.NO_ROOM, Reason.BACKING_OFF, Reason.RESERVED_FOR_ANOTHER})
FEW = 256
"""So many pairs of a waiting bucket and a node are judged sooner than it is found out whom a change concerns."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Concerned:
    """What the rules look at."""

    state: PoolState
    policy: Policy
    turns: Turns
    rights: Rights
    agenda: Agenda
    reservers: Reservers
    hosts: Hosts
    free: FreeCards
    rooms: dict[str, NodeRoom]
    reaches: dict[str, NodeReach]


class Wakeups:
    """The rules, and what they remember; `movers` is the last rule's.

    `few` says what a small pool is, in pairs of a bucket and a node.
    """

    def __init__(self, concerned: Concerned) -> None:
        self.few: float = FEW
        self._at = concerned
        waiting = (concerned.turns, concerned.agenda)
        self.movers = Movers(concerned.state, concerned.policy, waiting, concerned.free, concerned.rights)
        self._limited: dict[Bucket, tuple[View, Key]] = {}
        self._with_room: dict[Bucket, None] = {}
        self._hardware_version = -1
        self._using: set[str] = set()
        self._borrowed: dict[str, frozenset[str]] = {}
        self._in_turn: dict[Shape, dict[str, None]] = {}
        concerned.agenda.out_of_room = self._by_taken_turn
        self._seen = View()
        self._overtaken = False

    def note_limited(self, bucket: Bucket) -> None:
        """A reservation keeps the bucket out, as things are."""
        self._limited[bucket] = (self._at.reservers.view(), self._at.turns.of(bucket))

    def note_room(self, bucket: Bucket) -> None:
        """There is room for the bucket, which it may not have as things are."""
        self._with_room[bucket] = None

    def note_view(self) -> None:
        """A hold is being decided, as others reserve now: if that changes it may move at once."""
        view = self._at.reservers.view()
        self._overtaken = self._overtaken or (bool(self.movers) and view is not self._seen)
        self._seen = view

    def wake(self, changes: Changes, effects: Effects | None, improved: Collection[str], now: float) -> None:
        """Judge again whoever a change concerns; called when all indices are up to date.

        `effects` are those of changed rights; `improved` are nodes that have something to offer which they had not.
        """
        blocked = self._at.agenda.blocked
        everybody = changes.everything or len(blocked) * len(self._at.reaches) <= self.few
        if everybody:
            self._search_anew(blocked.all())
            self._at.agenda.widen()
        if changes.teams or changes.groups:
            self._at.reservers.usage_changed(None if changes.everything or changes.groups else changes.teams)
        if effects is not None:
            self._by_rights(effects, changes.teams)
        for team in sorted(changes.eased):
            self._by_usage(team)
        self._by_new_runs(changes, now)
        moved = False
        if self._limited or self.movers:
            view = self._at.reservers.view()
            moved = view is not self._seen or self._overtaken
            self._seen, self._overtaken = view, False
            self._by_reservations(view, all_of_them=not view.complete)
        self._by_taken_room(changes.nodes)
        if self._hardware_version != self._at.state.hardware_version:
            self._hardware_version = self._at.state.hardware_version
            self._by_hardware()
        offering = dict.fromkeys((*improved, *self._by_borrowing(changes)))
        for node_id in offering:
            self._by_node(node_id)
        if improved:
            self._by_room(improved)
        self.movers.try_advanced(changes, now)
        if improved or moved or everybody:
            self.movers.try_for(None if moved or everybody else improved, now)

    def wake_by_refusal(self, now: float) -> None:
        """After a refusal, as the pass goes on: whoever is judged again for it has its turn before those behind it."""
        if self._limited and self._at.reservers.are_others():
            self.wake_by_refusals(now)

    def wake_by_refusals(self, now: float) -> bool:
        """After a refusal: whether somebody is judged again, as other jobs reserve now than before."""
        if not (self._limited or self.movers):
            return False
        view = self._at.reservers.view()
        woken = self._by_reservations(view)
        if view is not self._seen:
            self._seen = view
            woken = self.movers.try_for(None, now) or woken
        return woken

    def _search_anew(self, buckets: Iterable[Bucket]) -> None:
        for bucket in buckets:
            self._at.agenda.search_anew(bucket)

    def _by_rights(self, effects: Effects, teams: Collection[str]) -> None:
        blocked = self._at.agenda.blocked
        if effects.everybody:
            self._search_anew(blocked.all())
            self._at.agenda.widen()
        for team in sorted(teams):
            self._search_anew(blocked.of_team(team, frozenset(Reason)))
            self._at.agenda.widen(team)

    def _by_usage(self, team: str) -> None:
        blocked = self._at.agenda.blocked
        self._search_anew(blocked.by_limit(team))
        self._at.agenda.widen(team)
        if self._at.state.team(team).guarantee > 0:
            self._search_anew(self._may_be_within_guarantee(blocked.of_team(team, _BY_ROOM), team))

    def _may_be_within_guarantee(self, buckets: list[Bucket], team: str) -> list[Bucket]:
        """Those whose first job is, or would be if runs of its own team left that were won for the guarantee."""
        state = self._at.state
        if any(run.reclaimed for run in state.runs_of_team(team)):
            return buckets
        left = quota.guarantee_left(state, team)
        return [each for each in buckets if quota.needed_units(state.jobs[each.head], None, state) <= left]

    def _by_new_runs(self, changes: Changes, now: float) -> None:
        blocked, state = self._at.agenda.blocked, self._at.state
        for job_id in sorted(changes.jobs):
            run = state.run_of(job_id)
            if run is None or run.started_at is not None:
                continue
            job = state.jobs[job_id]
            if blocked.any_over_quota:
                threshold = (float(run.v), -math.inf, -math.inf)
                self._search_anew(blocked.over_quota(job.team, threshold))
            early = self._at.turns.fair or priority.queue_value(job, self._at.policy, now)[0] > run.v
            if early and self._may_be_reached(run, now):
                for node_id in run.node_ids:
                    self._by_node(node_id)

    def _may_be_reached(self, run: Run, now: float) -> bool:
        """Whether anybody who waits could take a new run, for all that protects it."""
        guarded = protection.of_run(self._at.state, self._at.policy, run, now, overrides=False) is not None
        return self._at.agenda.blocked.may_reach((float(run.v), -math.inf, -math.inf), overriding=guarded)

    def _by_hardware(self) -> None:
        blocked = self._at.agenda.blocked
        self._search_anew(blocked.with_reason(Reason.NEVER_FITS))
        for shape in blocked.shapes():
            if self._at.reservers.never_fits(shape) is not None:
                self._search_anew(blocked.of_shape(shape))

    def _by_reservations(self, view: View, *, all_of_them: bool = False) -> bool:
        """Judge those again that reservations kept out: they may pass now, or come before the reserver."""
        found = False
        for bucket, (seen, place) in tuple(self._limited.items()):
            refusal = bucket.blocked if bucket.entries else None
            if refusal is None:
                del self._limited[bucket]
                continue
            now_at = self._at.turns.of(bucket)
            if seen is view and place == now_at and not all_of_them:
                continue
            if all_of_them or seen.ahead_of(place) != view.ahead_of(now_at) or seen.reclaiming != view.reclaiming:
                del self._limited[bucket]
                self._at.agenda.search_anew(bucket)
                found = True
            else:
                self._limited[bucket] = (view, now_at)
        return found

    def _by_taken_room(self, nodes: Collection[str]) -> None:
        """Judge those again whose room on these nodes, which they might not have, is taken: they reserve now."""
        for bucket in tuple(self._with_room):
            refusal = bucket.blocked if bucket.entries else None
            if refusal is None or not refusal.room_on:
                del self._with_room[bucket]
            elif self._is_taken(bucket, [node_id for node_id in refusal.room_on if node_id in nodes]):
                del self._with_room[bucket]
                self._at.agenda.search_anew(bucket)

    def _is_taken(self, bucket: Bucket, changed: list[str]) -> bool:
        """Whether there may be no room left where something has changed; gangs and shares are judged for that."""
        job = self._at.state.jobs[bucket.head]
        if not changed or job.shape.members > 1 or placement.kind_of(job.shape) is not LeaseKind.WHOLE:
            return bool(changed)
        room = self._at.rooms.get(changed[0])
        strategy = priority.class_of(job, self._at.policy).placement
        return room is None or placement.fit(room, job, self._at.policy, strategy, later=False) is None

    def _by_borrowing(self, changes: Changes) -> list[str]:
        """The nodes where other teams' jobs may now take what they might not: a guarantee covers less of it."""
        state, guaranteed = self._at.state, self._at.rights.guaranteed
        if not guaranteed:
            self._using.clear()
            self._borrowed.clear()
            return []
        # With the first GPU of a team without a guarantee its runs of CPU and memory alone are borrowed, too.
        using = {team for team in changes.teams if state.used((team,), later=True)}
        first = using - self._using
        self._using = self._using - changes.teams | using
        owners = {state.jobs[job_id].team for job_id in changes.jobs if job_id in state.jobs} | changes.teams
        found: list[str] = []
        for team in (*(team for team in guaranteed if team in owners), *sorted(first.difference(guaranteed))):
            borrowed = frozenset(quota.borrowed_runs(state, team))
            for run_id in sorted(borrowed - self._borrowed.get(team, frozenset())):
                found.extend(state.runs[run_id].node_ids)
            self._borrowed[team] = borrowed
        return found

    def _by_node(self, node_id: str) -> None:
        reach = self._at.hosts.reach_of(node_id)
        if reach is None:
            return
        self._at.hosts.offers.add(node_id)
        buckets, in_turn = self._at.agenda.blocked.reached(reach)
        for bucket in buckets:
            self._at.agenda.judge_again(bucket)
        for shape in in_turn:
            self._in_turn.setdefault(shape, {})[node_id] = None

    def _by_taken_turn(self, shape: Shape) -> None:
        """Judge those for victims whose turn does not come, as others have taken what was free for their shape."""
        for node_id in self._in_turn.pop(shape, ()):
            bound_for = partial(self._bound_on, node_id, shape)
            for bucket in self._at.agenda.blocked.of_shape_reached(shape, bound_for):
                self._at.agenda.judge_again(bucket)

    def _bound_on(self, node_id: str, shape: Shape, overrides: bool) -> Threshold:
        return self._at.hosts.bound_on(node_id, shape, shape.gpus, overrides)

    def forget_turns(self) -> None:
        """The pass is over: whatever was offered in turn has been."""
        self._in_turn.clear()

    def _by_room(self, nodes: Collection[str]) -> None:
        for shape in self._at.agenda.blocked.shapes():
            if self._at.free.of(shape).most_of(nodes) >= max(1, shape.gpus):
                self._at.agenda.try_shape(shape)
