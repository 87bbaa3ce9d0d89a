"""What `decide` derives from the state, kept from call to call and brought up to date from what changed.

Waiting queue, room per node, nodes by free cards, holds, timers. Everything here can be computed anew from the state,
the policy and the time; nothing here needs a journal. Who is judged again because of what is told in `wakeups`.
"""

import math
from collections.abc import Iterable, Iterator

from makeway_policy import affinity, begin, capacity, overdue, past_use, patience, priority, protection, quota
from makeway_policy.affinity import NodeLabels
from makeway_policy.agenda import Agenda
from makeway_policy.changes import Changes
from makeway_policy.demand import Demand
from makeway_policy.free import FreeCards
from makeway_policy.hosts import Hosts
from makeway_policy.model import Drain, Group, Job, LeaseState, Reason, Refusal, Run, RunState, Shape, StopCause
from makeway_policy.queue import Bucket, Turns, WaitingQueue
from makeway_policy.reach import NodeReach, filled_by, improved, node_reach
from makeway_policy.reserving import Reservers
from makeway_policy.rights import Rights
from makeway_policy.rooms import NodeRoom, grew, node_room, renewed
from makeway_policy.rules import Policy, Strategy
from makeway_policy.state import PoolState, is_leaving
from makeway_policy.timers import Timers
from makeway_policy.wakeups import Concerned, Wakeups

_TAKEN = frozenset({StopCause.HOLD_LOST, StopCause.PREEMPTED})
"""Why a hold is given up for another's sake: as it is decided, and as it is read back from what is stored."""


class Index:
    """The derived indices of one pool under one policy."""

    def __init__(self, state: PoolState, policy: Policy) -> None:
        self.state = state
        self.policy = policy
        self.rooms: dict[str, NodeRoom] = {}
        self.reaches: dict[str, NodeReach] = {}
        self.holds: dict[str, str] = {}
        self.pending: set[str] = set()
        self.unsettled: set[str] = set()
        self.revalue: set[str] = set()
        self.overdue: set[str] = set()
        self.draining: set[str] = set()
        self.fresh: dict[str, None] = {}
        self.turns = Turns(state, policy)
        self.rights = Rights(state, self.turns)
        self.queue = WaitingQueue(policy, self.rights.owner_of)
        self.free = FreeCards(policy, self.rooms)
        self.hosts = Hosts(state, policy, self.queue, (self.rooms, self.reaches), self.reach_of_filled)
        self.reservers = Reservers(state, policy, self.rooms, (self.queue, self.turns), self.never_fits)
        self.agenda = Agenda(self.turns, self.reservers, self.free)
        self.wakeups = Wakeups(
            Concerned(
                state=state, policy=policy, turns=self.turns, rights=self.rights, agenda=self.agenda,
                reservers=self.reservers, hosts=self.hosts, free=self.free, rooms=self.rooms, reaches=self.reaches,
            )
        )  # fmt: skip
        weighs = any(rules.placement is Strategy.FRAG for rules in policy.classes.values())
        self.demand: Demand | None = Demand(policy) if weighs else None
        self.labels = NodeLabels(state)
        self._groups: dict[str, Group] = {}
        self._never: dict[Shape, tuple[int, Refusal | None]] = {}
        self._improved: dict[str, None] = {}
        self._started: dict[str, set[str]] = {}
        self._rung: set[str] = set()
        self._opens_at: dict[str, float] = {}
        self._timers = Timers()

    @staticmethod
    def of(state: PoolState, policy: Policy) -> "Index":
        """The state's index under this policy; built anew when the policy is another."""
        index = state.derived
        if not isinstance(index, Index) or (index.policy is not policy and index.policy != policy):
            index = Index(state, policy)
            state.changes.everything = True
            state.derived = index
        return index

    def sync(self, now: float) -> None:
        """Bring everything up to date with the state and the time."""
        self._tell_time(now)
        self._ring(now)
        while True:
            changes = self.state.changes
            if changes.everything:
                changes.jobs.update(self.state.jobs)
                changes.nodes.update(self.state.nodes)
                changes.teams.update(self.state.teams)
                changes.rights.update(self.state.teams)
            elif not (changes.jobs or changes.nodes or changes.teams or changes.groups):
                return
            self.state.changes = Changes(everything=False)
            self._take(changes, now)

    def block(self, bucket: Bucket, refusal: Refusal, now: float) -> None:
        """Keep a bucket out until something changes that concerns it."""
        bucket.blocked = refusal
        limited = refusal.reason is Reason.RESERVED_FOR_ANOTHER or "kept_for" in refusal.detail
        bucket.offers = self.hosts.offers.count if refusal.reason is Reason.NO_ROOM and not limited else None
        bucket.searched = bucket.head
        self.reservers.block(bucket)
        job = self.state.jobs[bucket.head]
        limit = self.hosts.limit_of(job, now) if job.no_victims_until <= now else None
        overrides = priority.class_of(job, self.policy).overrides_minimum_run
        self.agenda.blocked.add(bucket, job, limit, overrides=overrides, limited=self.rights.limit(job.team))
        if limited:
            self.wakeups.note_limited(bucket)
        if refusal.room_on:
            self.wakeups.note_room(bucket)

    def never_fits(self, shape: Shape) -> Refusal | None:
        """Why no registered hardware could run the shape; computed once a shape and change of hardware."""
        found = self._never.get(shape)
        if found is None or found[0] != self.state.hardware_version:
            refused = capacity.never_fits(self.state, self.policy, shape)
            found = self._never[shape] = (self.state.hardware_version, refused)
        return found[1]

    def take_fresh(self) -> tuple[str, ...]:
        """The jobs that have not been told a reason yet, in order of arrival."""
        fresh = tuple(self.fresh)
        self.fresh.clear()
        return fresh

    def refusal_for(self, job_id: str) -> Refusal | None:
        """What was refused to the job's bucket; None if it does not wait in one."""
        found = self.queue.place.get(job_id)
        return None if found is None else found[0].blocked

    def worth_of(self, job: Job, run: Run) -> int:
        """The v of a decided run: the job's base as it is now, and Δ if an aged job won it."""
        return priority.base(job, self.policy) + (self.policy.delta if run.promoted else 0)

    def next_wake(self, now: float) -> float | None:
        """When time alone changes something next; what the next decision would wait for is done first."""
        self.hosts.tidy(now)
        if not len(self.agenda.blocked):
            self._timers.set("recheck", "", None)
        elif not self._timers.is_set("recheck", ""):
            self._timers.set("recheck", "", now + self.policy.recheck_seconds)
        return self._timers.next()

    def wake_for_hold(self, run_id: str, at: float | None) -> None:
        """Wake for a run that has not started, at a moment; None takes that back."""
        self._timers.set("hold", run_id, at)

    def wake_for_drain(self, node_id: str, at: float | None) -> None:
        """Wake for a draining node at a moment; None takes that back."""
        self._timers.set("drain", node_id, at)

    def room(self, node_id: str) -> NodeRoom:
        """The node's room as things are."""
        return self.rooms[node_id]

    def nodes_with(self, shape: Shape, cards: int, *, fullest_first: bool) -> Iterator[str]:
        """Nodes with at least so many cards free for the shape, fullest or emptiest first, then by id."""
        return self.free.of(shape).at_least(cards, fullest_first=fullest_first)

    def tiers_with(self, shape: Shape, cards: int, *, fullest_first: bool) -> Iterator[Iterable[str]]:
        """The same nodes in tiers, those that the shape likes best by label first."""
        if not affinity.has_wishes(shape):
            yield self.nodes_with(shape, cards, fullest_first=fullest_first)
            return
        free, scores = self.free.of(shape), self.labels.scores(shape)
        for tier in sorted({0, *scores.values()}, reverse=True):
            if tier:
                same = (node_id for node_id, liked in scores.items() if liked == tier)
                yield free.among(same, cards, fullest_first=fullest_first)
            else:
                rest = free.at_least(cards, fullest_first=fullest_first)
                yield (node_id for node_id in rest if node_id not in scores)

    def _tell_time(self, now: float) -> None:
        if now != self.turns.now:
            self.turns.now = now
            if self.policy.usage_half_life_seconds is not None:
                self.reservers.usage_changed()

    def _take(self, changes: Changes, now: float) -> None:
        fair = self.turns.orders_fairly()
        if fair is not self.turns.fair:
            self.turns.fair = fair
            changes.everything = True
            changes.jobs.update(self.queue.place)
        self._note_use(self.state.teams if changes.everything else changes.teams, now)
        effects = self.rights.take(changes.rights) if changes.rights else None
        if effects is not None:
            self.reservers.guaranteed = self.rights.guaranteed
            if effects.owners:
                changes.jobs.update(self.queue.place)
        self._mark_runs(changes)
        self._take_started(changes, now)
        for node_id in sorted(changes.nodes):
            self._refresh_node(node_id, changes, now)
        self._rung.clear()
        if self.demand is not None:
            self.demand.submitted(self.state.jobs[job_id] for job_id in changes.jobs if job_id in self.state.jobs)
        for job_id in sorted(changes.jobs):
            self._refresh_job(job_id, now)
            place = self.queue.place.get(job_id) if job_id in changes.undone else None
            if place is not None:
                self.agenda.search_anew(place[0])
        offering, self._improved = self._improved, {}
        self.wakeups.wake(changes, effects, offering, now)

    def _note_use(self, teams: Iterable[str], now: float) -> None:
        half_life = self.policy.usage_half_life_seconds
        if half_life is None:
            return
        for team in sorted(teams):
            beyond = quota.beyond_guarantee(self.state, team)
            past = self.state.past_use_of(team)
            if past.since_then != beyond:
                self.state.put_past_use(team, past_use.changed(past, beyond, now, half_life))

    def _mark_runs(self, changes: Changes) -> None:
        """What a job or a group says protects runs: the GPUs of those that changed are looked at too."""
        marked = set(changes.amended)
        for name in changes.groups:
            group = self.state.groups.get(name)
            redefined = self._groups.get(name) is not group
            if group is not None:
                self._groups[name] = group
            for job in self.state.jobs_of_group(name):
                changes.jobs.add(job.job_id)
                marked.add(job.job_id)
                if redefined:
                    changes.undone.add(job.job_id)
                run = self.state.run_of(job.job_id)
                for node_id in () if run is None else run.node_ids:
                    self.reaches.pop(node_id, None)
        for job_id in marked:
            run = self.state.run_of(job_id)
            if run is not None:
                self._look_at_host(run)
                changes.note_members(run.members)

    def _refresh_node(self, node_id: str, changes: Changes, now: float) -> None:
        node = self.state.nodes.get(node_id)
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
            node_room(self.state, node)
            if before is None or rebuilt
            else renewed(self.state, before, changes.gpus.get(node_id, ()))
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
        if rebuilt or self.pending:
            # Otherwise a run that has not started is as settled as it was.
            for run in self.state.runs_on_node(node_id):
                if run.job_id in self.holds:
                    self.unsettled.add(run.run_id)

    def _forget_node(self, node_id: str) -> None:
        self.wake_for_drain(node_id, None)
        self.reservers.node_changed(node_id)
        self.rooms.pop(node_id, None)
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
        if not runs or any(_started_before_it_was_decided(run) for run in runs):
            return False
        self._fill(node_id, runs, now)
        return True

    def _take_started(self, changes: Changes, now: float) -> None:
        """Runs that have started where nothing else has changed: room is as it was, and less is offered than before."""
        for run_id in sorted(changes.started):
            run = self.state.runs.get(run_id)
            if run is None:
                continue
            gpus = [lease.gpu_id for lease in run.leases]
            node_id = run.members[0].node_id
            self._started.setdefault(node_id, set()).update(gpus)
            alone = len(run.members) == 1 and node_id not in changes.nodes and not changes.everything
            if alone and gpus and self._is_open(node_id) and not _started_before_it_was_decided(run):
                self._fill(node_id, (run,), now)
                self.reservers.node_filled(node_id, gpus)
            else:
                self._look_at_host(run)
                changes.note_members(run.members)

    def _look_at_host(self, run: Run) -> None:
        """What a run of CPU and memory alone does is not seen on the cards: its node is looked at in any case."""
        if not run.leases:
            self._rung.update(run.node_ids)

    def _is_open(self, node_id: str) -> bool:
        node = self.state.nodes.get(node_id)
        return node is not None and node.takes_placements and node_id in self.reaches

    def _fill(self, node_id: str, runs: Iterable[Run], now: float) -> None:
        guarded = True
        for run in runs:
            plainly, _, until = protection.outlook(self.state, self.policy, self.state.jobs[run.job_id], run, now)
            guarded = guarded and plainly
            self._timers.set_sooner("node", node_id, until)
        self._note_opening(node_id, now)
        self._timers.set_sooner("node", node_id, self._opens_at.get(node_id))
        self.hosts.filled(node_id, guarded=guarded)

    def _look_at(self, node_id: str, now: float, before: NodeReach | None) -> NodeReach:
        room = self.rooms[node_id]
        started = self._started.pop(node_id, ())
        reach = self.reaches[node_id] = node_reach(self.state, self.policy, room, now, before, started)
        return reach

    def _note_opening(self, node_id: str, now: float) -> None:
        room = self.rooms[node_id]
        at = patience.next_opening(self.state, self.policy, room, now) if room.leaving else None
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
        reach = self._look_at(node_id, self.turns.now, self.reaches.get(node_id))
        self._time_node(node_id, reach)

    def _mark_neighbours(self, node_id: str) -> None:
        """A gang with a member on a node that is not heard can be taken nowhere."""
        for run in self.state.runs_on_node(node_id):
            for other in run.node_ids:
                if other != node_id:
                    self.reaches.pop(other, None)
                    self.state.changes.nodes.add(other)

    def _refresh_job(self, job_id: str, now: float) -> None:
        job = self.state.jobs.get(job_id)
        run = self.state.run_of(job_id)
        held = self.holds.pop(job_id, None)
        self.reservers.dispossessed.pop(job_id, None)
        if held is not None:
            self.pending.discard(job_id)
            self.wakeups.movers.forget(job_id)
            self.wake_for_hold(held, None)
        stands_by = job is not None and (job.held or job.over)
        if job is None or run is not None or stands_by:
            self._leave_queue(job_id)
        if job is not None and (run is None or run.started_at is None):
            self._watch_overdue(job, now)
        if job is not None and run is not None:
            self._refresh_run(job, run, now)
        elif job is not None and not stands_by:
            self._refresh_waiting(job, now)

    def _refresh_run(self, job: Job, run: Run, now: float) -> None:
        if self.worth_of(job, run) != run.v:
            self.revalue.add(run.run_id)
        if run.state in (RunState.PLANNED, RunState.STARTING) and run.started_at is None and not is_leaving(run):
            self.holds[job.job_id] = run.run_id
            if run.lease_state is LeaseState.PENDING:
                self.pending.add(job.job_id)
            if run.after:
                self.wakeups.movers.note(job, run)
                if self.policy.move_holds:
                    # It is in the queue again while it moves, and comes forward there as it waits.
                    self._timers.set("job", job.job_id, priority.next_step_at(job, self.policy, now))
            self.unsettled.add(run.run_id)
        if run.started_at is None and run.lease_state is LeaseState.NEXT and run.stop_cause in _TAKEN:
            self.reservers.dispossessed[job.job_id] = None

    def _refresh_waiting(self, job: Job, now: float) -> None:
        moments = [priority.next_step_at(job, self.policy, now)]
        if job.no_victims_until > now:
            moments.append(job.no_victims_until)
        if job.begin_at is not None and job.begin_at > now:
            moments = [job.begin_at]
            self._leave_queue(job.job_id)
        else:
            headed = self._bucket_headed_by(job.job_id)
            bucket = self.queue.put(job, now)
            if bucket is not None and headed is not None:
                self.agenda.search_anew(headed)
            if bucket is not None and (bucket.blocked is None or bucket.head == job.job_id):
                self.agenda.judge_again(bucket)
        early = begin.is_early(job, now)
        if job.refusal is None or (job.refusal.reason is Reason.NOT_YET and not early):
            self.fresh[job.job_id] = None
        self._timers.set("job", job.job_id, min((at for at in moments if at is not None), default=None))

    def _watch_overdue(self, job: Job, now: float) -> None:
        due_at = overdue.due_at(job)
        if due_at is not None and due_at <= now:
            self.overdue.add(job.job_id)
        self._timers.set("overdue", job.job_id, due_at if due_at is not None and due_at > now else None)

    def _leave_queue(self, job_id: str) -> None:
        place = self.queue.place.get(job_id)
        if place is not None:
            bucket, headed = place[0], place[0].head == job_id
            self.queue.remove(job_id)
            if headed:
                self.agenda.search_anew(bucket)
        self.fresh.pop(job_id, None)
        self._timers.set("job", job_id, None)

    def _bucket_headed_by(self, job_id: str) -> Bucket | None:
        place = self.queue.place.get(job_id)
        return place[0] if place is not None and place[0].head == job_id else None

    def _ring(self, now: float) -> None:
        for what, name in self._timers.due(now):
            if what in ("job", "overdue"):
                self.state.changes.jobs.add(name)
            elif what == "node":
                self._rung.add(name)
                self.state.changes.nodes.add(name)
            elif what == "hold":
                self.unsettled.add(name)
            elif what == "drain":
                self.draining.add(name)
            else:
                for bucket in self.agenda.blocked.all():
                    self.agenda.search_anew(bucket)


def _started_before_it_was_decided(run: Run) -> bool:
    """By another clock: what it costs may be more than is noted."""
    return run.started_at is not None and run.started_at < run.decided_at
