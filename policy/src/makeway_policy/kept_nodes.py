"""What is kept of nodes: their room, what they have to offer to preemptors, and when time alone changes that."""

import math
from collections.abc import Iterable

from makeway_policy import capacity, patience, protection
from makeway_policy.affinity import NodeLabels
from makeway_policy.changes import Changes
from makeway_policy.free import FreeCards
from makeway_policy.hosts import Hosts
from makeway_policy.model import Drain, Refusal, Run, Shape
from makeway_policy.queue import Turns, WaitingQueue
from makeway_policy.reach import NodeReach, filled_by, improved, node_reach
from makeway_policy.reserving import Reservers
from makeway_policy.rooms import NodeRoom, grew, node_room, renewed
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState
from makeway_policy.timers import Timers


class KeptNodes:
    """All nodes of the pool. `draining` are those to be emptied that have not been looked at since they changed."""

    def __init__(self, state: PoolState, policy: Policy, waiting: tuple[WaitingQueue, Turns], timers: Timers) -> None:
        queue, self._turns = waiting
        self._state = state
        self._policy = policy
        self._timers = timers
        self.rooms: dict[str, NodeRoom] = {}
        self.reaches: dict[str, NodeReach] = {}
        self.draining: set[str] = set()
        self.free = FreeCards(policy, self.rooms)
        self.hosts = Hosts(state, policy, queue, (self.rooms, self.reaches), self.reach_of_filled)
        self.reservers = Reservers(state, policy, self.rooms, waiting, self.never_fits)
        self.labels = NodeLabels(state)
        self._never: dict[Shape, tuple[int, Refusal | None]] = {}
        self._improved: dict[str, None] = {}
        self._rebuilt: set[str] = set()
        self._started: dict[str, set[str]] = {}
        self._rung: set[str] = set()
        self._opens_at: dict[str, float] = {}

    def take(self, changes: Changes, now: float) -> tuple[dict[str, None], set[str]]:
        """Bring the nodes that changed up to date.

        Returns those that have something to offer which they had not, and those whose hardware has changed.
        """
        self._improved, self._rebuilt = {}, set()
        self._take_started(changes, now)
        for node_id in sorted(changes.nodes):
            self._refresh_node(node_id, changes, now)
        self._rung.clear()
        return self._improved, self._rebuilt

    def never_fits(self, shape: Shape) -> Refusal | None:
        """Why no registered hardware could run the shape; computed once a shape and change of hardware."""
        found = self._never.get(shape)
        if found is None or found[0] != self._state.hardware_version:
            refused = capacity.never_fits(self._state, self._policy, shape)
            found = self._never[shape] = (self._state.hardware_version, refused)
        return found[1]

    def ring(self, node_id: str) -> None:
        """The moment has come at which something changes on a node."""
        self._rung.add(node_id)
        self._state.changes.nodes.add(node_id)

    def _take_started(self, changes: Changes, now: float) -> None:
        """Runs that have started where nothing else has changed: room is as it was, and less is offered than before."""
        for run_id in sorted(changes.started):
            run = self._state.runs.get(run_id)
            if run is None:
                continue
            gpus = [lease.gpu_id for lease in run.leases]
            node_id = run.members[0].node_id
            self._started.setdefault(node_id, set()).update(gpus)
            alone = len(run.members) == 1 and node_id not in changes.nodes and not changes.everything
            if alone and gpus and self._is_open(node_id) and not self._may_offer_more(run, now):
                self._fill(node_id, (run,), now)
                self.reservers.node_filled(node_id, gpus)
            else:
                self.look_at_host(run)
                changes.note_members(run.members)

    def _refresh_node(self, node_id: str, changes: Changes, now: float) -> None:
        node = self._state.nodes.get(node_id)
        self.labels.node_changed(node_id)
        if node is None:
            self._forget_node(node_id)
            return
        before = self.rooms.get(node_id)
        rebuilt = before is None or before.node is not node or node_id in changes.rebuilt or changes.everything
        if node.drain is not Drain.NO:
            self.draining.add(node_id)
        elif rebuilt:
            self.wake_for_drain(node_id, None)
        room = self.rooms[node_id] = (
            node_room(self._state, node)
            if before is None or rebuilt
            else renewed(self._state, before, changes.gpus.get(node_id, ()))
        )
        self.free.update(node_id, room)
        reached = self.reaches.get(node_id)
        if before is not None and before.node.health is not node.health:
            self._mark_neighbours(node_id)
            reached = None
        filled = before is not None and reached is not None and self._only_filled(node_id, before, room, changes, now)
        if filled:
            self.reservers.node_filled(node_id)
        else:
            self.reservers.node_changed(node_id)
            reach = self._look_at(node_id, now, reached)
            # What a node that was filled meanwhile had to offer since is not known.
            if before is None or self.hosts.forget_filled(node_id) or improved(reached, reach) or grew(before, room):
                self._improved[node_id] = None
            if self._opens_at.get(node_id, math.inf) <= now:
                self._improved[node_id] = None
            self._note_opening(node_id, now)
            self._time_node(node_id, reach)
            self.hosts.node_changed(node_id)
        if rebuilt:
            self._rebuilt.add(node_id)
            self.reservers.hardware_changed(node_id)

    def _forget_node(self, node_id: str) -> None:
        self.wake_for_drain(node_id, None)
        self.reservers.node_changed(node_id)
        self.rooms.pop(node_id, None)
        self.reservers.hardware_changed(node_id)
        self.reaches.pop(node_id, None)
        self._started.pop(node_id, None)
        self.hosts.forget_filled(node_id)
        self.hosts.node_changed(node_id)
        self.free.update(node_id, None)
        self._opens_at.pop(node_id, None)
        self._timers.set("node", node_id, None)

    def _only_filled(self, node_id: str, before: NodeRoom, room: NodeRoom, changes: Changes, now: float) -> bool:
        """Whether a node has only less to offer than before: how much less is found out when somebody asks."""
        if node_id in changes.rebuilt or node_id in self._rung or changes.everything:
            return False
        runs = filled_by(before, room, changes.amended)
        if not runs or any(self._may_offer_more(run, now) for run in runs):
            return False
        self._fill(node_id, runs, now)
        return True

    def _may_offer_more(self, run: Run, now: float) -> bool:
        """Whether a run that has come or started may be in reach of more than is noted of its node."""
        return _started_before_it_was_decided(run) or protection.has_opened(self._state, self._policy, run, now)

    def look_at_host(self, run: Run) -> None:
        """What a run of CPU and memory alone does is not seen on the cards: its node is looked at in any case."""
        if not run.leases:
            self._rung.update(run.node_ids)

    def _is_open(self, node_id: str) -> bool:
        node = self._state.nodes.get(node_id)
        return node is not None and node.takes_placements and node_id in self.reaches

    def _fill(self, node_id: str, runs: Iterable[Run], now: float) -> None:
        guarded = True
        for run in runs:
            plainly, _, until = protection.outlook(self._state, self._policy, self._state.jobs[run.job_id], run, now)
            guarded = guarded and plainly
            self._timers.set_sooner("node", node_id, until)
        self._note_opening(node_id, now)
        self._timers.set_sooner("node", node_id, self._opens_at.get(node_id))
        self.hosts.filled(node_id, guarded=guarded)

    def _look_at(self, node_id: str, now: float, before: NodeReach | None) -> NodeReach:
        room = self.rooms[node_id]
        started = self._started.pop(node_id, ())
        reach = self.reaches[node_id] = node_reach(self._state, self._policy, room, now, before, started)
        return reach

    def _note_opening(self, node_id: str, now: float) -> None:
        room = self.rooms[node_id]
        at = patience.next_opening(self._state, self._policy, room, now) if room.leaving else None
        if at is not None:
            self._opens_at[node_id] = at
        elif self._opens_at:
            self._opens_at.pop(node_id, None)

    def _time_node(self, node_id: str, reach: NodeReach) -> None:
        self._timers.set("node", node_id, reach.changes_at)
        if self._opens_at:
            self._timers.set_sooner("node", node_id, self._opens_at.get(node_id))

    def reach_of_filled(self, node_id: str) -> None:
        """Find out how far one has to reach on a node that was filled."""
        reach = self._look_at(node_id, self._turns.now, self.reaches.get(node_id))
        self._time_node(node_id, reach)

    def _mark_neighbours(self, node_id: str) -> None:
        """A gang with a member on a node that is not heard can be taken nowhere."""
        for run in self._state.runs_on_node(node_id):
            for other in run.node_ids:
                if other != node_id:
                    self.reaches.pop(other, None)
                    self._state.changes.nodes.add(other)

    def wake_for_drain(self, node_id: str, at: float | None) -> None:
        """Wake for a draining node at a moment; None takes that back."""
        self._timers.set("drain", node_id, at)


def _started_before_it_was_decided(run: Run) -> bool:
    """By another clock: what it costs may be more than is noted."""
    return run.started_at is not None and run.started_at < run.decided_at
