"""What `decide` derives from the state, kept from call to call and brought up to date from what changed.

Waiting queue, room per node, nodes by free cards, holds, timers. Everything here can be computed anew from the state,
the policy and the time; nothing here needs a journal.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from makeway_policy import affinity, begin, capacity, overdue, past_use, placement, priority, quota
from makeway_policy.affinity import NodeLabels
from makeway_policy.demand import Demand
from makeway_policy.free import FreeNodes
from makeway_policy.hosts import Hosts
from makeway_policy.model import Drain, Job, LeaseState, Reason, Refusal, Run, RunState, Shape, StopCause, Team
from makeway_policy.queue import Bucket, Entry, WaitingQueue
from makeway_policy.reach import NodeReach, improved, node_reach
from makeway_policy.reserving import Reservers
from makeway_policy.rooms import NodeRoom, grew, node_room, takes_placements
from makeway_policy.rules import Order, Policy, Strategy
from makeway_policy.state import UNITS_PER_GPU, Changes, PoolState, is_leaving
from makeway_policy.waking import Blocked, Key

_TAKEN = frozenset({StopCause.HOLD_LOST, StopCause.PREEMPTED})
"""Why a hold is given up for another's sake: as it is decided, and as it is read back from what is stored."""

_BY_TEAM = frozenset({Reason.TEAM_LIMIT, Reason.CLASS_LIMIT, Reason.ALLOWANCE})


@dataclass(slots=True, eq=False)
class Wave:
    """The blocked buckets of a shape, tried one after the other while there is room for it."""

    shape: Shape
    after: Key | None = None


_FEW = 256
"""So many pairs of a waiting bucket and a node are judged sooner than it is found out whom a change concerns."""


class Index:
    """The derived indices of one pool under one policy."""

    def __init__(self, state: PoolState, policy: Policy) -> None:
        self.state = state
        self.policy = policy
        self.queue = WaitingQueue()
        self.rooms: dict[str, NodeRoom] = {}
        self.free: dict[tuple[object, ...], FreeNodes] = {}
        self.holds: dict[str, str] = {}
        self._movers: dict[Shape, dict[str, None]] = {}
        self._shape_of: dict[str, Shape] = {}
        self.fair = False
        self._now = 0.0
        self.unsettled: set[str] = set()
        self.revalue: set[str] = set()
        self.overdue: set[str] = set()
        self.draining: set[str] = set()
        self.fresh: dict[str, None] = {}
        self.reservers = Reservers(state, policy, self.rooms)
        self._never: dict[Shape, tuple[int, Refusal | None]] = {}
        self.reaches: dict[str, NodeReach] = {}
        self.blocked = Blocked()
        self.hosts = Hosts(state, policy, self.queue, self.reaches)
        weighs = any(rules.placement is Strategy.FRAG for rules in policy.classes.values())
        self.demand: Demand | None = Demand(policy) if weighs else None
        self.labels = NodeLabels(state)
        self._improved: dict[str, None] = {}
        self._reclaimers_moved = False
        self.dispossessed: dict[str, None] = {}
        self._limited: dict[tuple[object, ...], Bucket] = {}
        self._waves: dict[Shape, Wave] = {}
        self._used: dict[str, tuple[int, int]] = {}
        self._rights: dict[str, Team] = {}
        self._hardware_version = -1
        self._ready: list[tuple[Key, int, Bucket | Wave | str]] = []
        self._timers: list[tuple[float, str, str]] = []
        self._timer_of: dict[tuple[str, str], float] = {}
        self._pushes = 0

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
        self._now = now
        self._ring(now)
        while True:
            changes = self.state.changes
            if changes.everything:
                changes.jobs.update(self.state.jobs)
                changes.nodes.update(self.state.nodes)
            elif not (changes.jobs or changes.nodes or changes.teams or changes.groups):
                return
            self.state.changes = Changes(everything=False)
            self._take(changes, now)

    def next_ready(self) -> Bucket | str | None:
        """What to judge next, in queue order: a bucket, or a hold (its run's id); None when all are judged."""
        while self._ready:
            key, _, item = heapq.heappop(self._ready)
            if isinstance(item, str):
                return item
            bucket = self._next_of_wave(item, key) if isinstance(item, Wave) else item
            if bucket is None or bucket.blocked is not None or not bucket.entries:
                continue
            actual = self.order_of(bucket)
            if actual != key:
                self._push(bucket, actual)
                continue
            return bucket
        return None

    def block(self, bucket: Bucket, refusal: Refusal, now: float) -> None:
        """Keep a bucket out until something changes that concerns it."""
        bucket.blocked = refusal
        limited = refusal.reason is Reason.RESERVED_FOR_ANOTHER or "kept_for" in refusal.detail
        bucket.hints = set() if refusal.reason is Reason.NO_ROOM and not limited else None
        key = self.order_of(bucket)
        self.reservers.block(bucket, key)
        job = self.state.jobs[bucket.head]
        limit = self.hosts.limit_of(job, now) if job.no_victims_until <= now else None
        overrides = priority.class_of(job, self.policy).overrides_minimum_run
        self.blocked.add(bucket, key, job.shape, limit, overrides=overrides)
        if limited:
            self._limited[bucket.key] = bucket

    def never_fits(self, shape: Shape) -> Refusal | None:
        """Why no registered hardware could run the shape; computed once a shape and change of hardware."""
        found = self._never.get(shape)
        if found is None or found[0] != self.state.hardware_version:
            refused = capacity.never_fits(self.state, self.policy, shape)
            found = self._never[shape] = (self.state.hardware_version, refused)
        return found[1]

    def reclaimers_of(self, job: Job) -> Iterator[Job]:
        """Waiting jobs of other teams that are within their guarantee, first in queue order first."""
        teams = [team for team in self.state.teams.values() if team.guarantee > 0 and team.team_id != job.team]
        if not teams:
            return
        names = {team.team_id for team in teams}
        buckets = [bucket for bucket in self.queue.buckets.values() if bucket.team in names]
        for bucket in sorted(buckets, key=self.order_of):
            waiting = self.state.jobs[bucket.head]
            if quota.within_guarantee(self.state, waiting, quota.needed_units(waiting, None, self.state)):
                yield waiting

    def dispossessed_before(self, job: Job, now: float) -> Iterator[Job]:
        """Jobs before this one in the queue whose hold was taken: each is decided again once its node has let go."""
        key = self.order_of_job(job, now) if self.dispossessed else ()
        for job_id in self.dispossessed:
            other = self.state.jobs[job_id]
            if self.order_of_job(other, now) < key:
                yield other

    def take_fresh(self) -> tuple[str, ...]:
        """The jobs that have not been told a reason yet, in order of arrival."""
        fresh = tuple(self.fresh)
        self.fresh.clear()
        return fresh

    def refusal_for(self, job_id: str) -> Refusal | None:
        """What was refused to the job's bucket; None if it does not wait in one."""
        found = self.queue.place.get(job_id)
        return None if found is None else found[0].blocked

    def judge_again(self, bucket: Bucket) -> None:
        """Have a bucket judged (again)."""
        self.reservers.unblock(bucket)
        self.blocked.remove(bucket)
        if bucket.entries:
            bucket.blocked = None
            self._push(bucket, self.order_of(bucket))

    def order_of(self, bucket: Bucket, entry: Entry | None = None) -> tuple[float, ...]:
        """The place in the queue of a bucket's first job (or of another of its entries), as a key."""
        negative_q, submitted_at, order, _ = entry or bucket.entries[0]
        if not self.fair or bucket.capped:
            return (negative_q, 0, 0.0, 0.0, submitted_at, order)
        return (negative_q, 1, *self.share_of(bucket.team), submitted_at, order)

    def share_of(self, team: str) -> tuple[float, float]:
        """The team's fair-share key now."""
        half_life = self.policy.usage_half_life_seconds
        if half_life is None:
            return quota.fair_share_key(self.state, team)
        past = past_use.average_at(self.state.past_use_of(team), self._now, half_life)
        return quota.fair_share_key(self.state, team, past)

    def worth_of(self, job: Job, run: Run) -> int:
        """The v of a decided run: the job's base as it is now, and Δ if an aged job won it."""
        return priority.base(job, self.policy) + (self.policy.delta if run.promoted else 0)

    def next_wake(self, now: float) -> float | None:
        """When time alone changes something next."""
        if not self.blocked.any():
            self.set_timer("recheck", "", None)
        elif ("recheck", "") not in self._timer_of:
            self.set_timer("recheck", "", now + self.policy.recheck_seconds)
        while self._timers and self._timer_of.get(self._timers[0][1:]) != self._timers[0][0]:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def set_timer(self, what: str, name: str, at: float | None) -> None:
        """Wake for a job, a node or a bucket at a moment; None takes the timer back."""
        key = (what, name)
        if at is None:
            self._timer_of.pop(key, None)
        elif self._timer_of.get(key) != at:
            self._timer_of[key] = at
            heapq.heappush(self._timers, (at, what, name))

    def room(self, node_id: str) -> NodeRoom:
        """The node's room as things are."""
        return self.rooms[node_id]

    def nodes_with(self, shape: Shape, cards: int, *, fullest_first: bool) -> Iterator[str]:
        """Nodes with at least so many cards free for the shape, fullest or emptiest first, then by id."""
        return self._free_for(shape).at_least(cards, fullest_first=fullest_first)

    def tiers_with(self, shape: Shape, cards: int, *, fullest_first: bool) -> Iterator[Iterable[str]]:
        """The same nodes in tiers, those that the shape likes best by label first."""
        if not affinity.has_wishes(shape):
            yield self.nodes_with(shape, cards, fullest_first=fullest_first)
            return
        free, scores = self._free_for(shape), self.labels.scores(shape)
        for tier in sorted({0, *scores.values()}, reverse=True):
            if tier:
                same = (node_id for node_id, liked in scores.items() if liked == tier)
                yield free.among(same, cards, fullest_first=fullest_first)
            else:
                rest = free.at_least(cards, fullest_first=fullest_first)
                yield (node_id for node_id in rest if node_id not in scores)

    def most_free(self, shape: Shape) -> int:
        """How many free cards for the shape the emptiest node has."""
        return self._free_for(shape).most

    def has_room(self, shape: Shape) -> bool:
        """Whether any node has the free cards for one member of the shape."""
        return self._free_for(shape).any_with(max(1, shape.gpus))

    def _free_for(self, shape: Shape) -> FreeNodes:
        key = (shape.gpu_type, shape.min_vram_mib, shape.vram_mib, shape.shares, shape.mig, shape.gpus == 0)
        found = self.free.get(key)
        if found is None:
            found = self.free[key] = FreeNodes(shape)
            for node_id, room in self.rooms.items():
                found.update(node_id, self._free_cards(room, shape))
        return found

    def _next_of_wave(self, wave: Wave, key: Key) -> Bucket | None:
        """The wave's next bucket, while there is room for its shape."""
        if self._waves.get(wave.shape) is not wave:
            return None
        found = self.blocked.following(wave.shape, wave.after)
        if found is None or not self.has_room(wave.shape):
            del self._waves[wave.shape]
            return None
        if found[0] != key:
            self._push(wave, found[0])
            return None
        wave.after = found[0]
        following = self.blocked.following(wave.shape, wave.after)
        if following is None:
            del self._waves[wave.shape]
        else:
            self._push(wave, following[0])
        self._free_bucket(found[1])
        return found[1]

    def _free_bucket(self, bucket: Bucket) -> None:
        self.reservers.unblock(bucket)
        self.blocked.remove(bucket)
        bucket.blocked = None

    def _take(self, changes: Changes, now: float) -> None:
        fair = self.policy.order is Order.FAIR or (self.policy.order is Order.AUTO and self.state.weighs_teams)
        if fair is not self.fair:
            self.fair = fair
            changes.everything = True
        self._note_use(self.state.teams if changes.everything else changes.teams, now)
        for name in changes.groups:
            for job in self.state.jobs_of_group(name):
                run = self.state.run_of(job.job_id)
                for node_id in () if run is None else run.node_ids:
                    self.reaches.pop(node_id, None)
                    changes.nodes.add(node_id)
        for node_id in sorted(changes.nodes):
            self._refresh_node(node_id, now)
        if self.demand is not None:
            self.demand.submitted(self.state.jobs[job_id] for job_id in changes.jobs if job_id in self.state.jobs)
        for job_id in sorted(changes.jobs):
            self._refresh_job(job_id, now)
        for job_id in sorted(changes.undone):
            place = self.queue.place.get(job_id)
            if place is not None:
                self._search_anew(place[0])
        self._wake(changes, now)

    def _note_use(self, teams: Iterable[str], now: float) -> None:
        half_life = self.policy.usage_half_life_seconds
        if half_life is None:
            return
        for team in sorted(teams):
            beyond = quota.beyond_guarantee(self.state, team)
            past = self.state.past_use_of(team)
            if past.since_then != beyond:
                self.state.put_past_use(team, past_use.changed(past, beyond, now, half_life))

    def _refresh_node(self, node_id: str, now: float) -> None:
        node = self.state.nodes.get(node_id)
        self.reservers.node_changed(node_id)
        self.hosts.node_changed(node_id)
        self.labels.node_changed(node_id)
        if node is None or node.drain is Drain.NO:
            self.set_timer("drain", node_id, None)
        else:
            self.draining.add(node_id)
        if node is None:
            self.rooms.pop(node_id, None)
            self.reaches.pop(node_id, None)
            for found in self.free.values():
                found.update(node_id, 0)
            self.set_timer("node", node_id, None)
            return
        before = self.rooms.get(node_id)
        room = self.rooms[node_id] = node_room(self.state, node, before)
        for found in self.free.values():
            found.update(node_id, self._free_cards(room, found.shape))
        same_host = before is not None and before.node.health is node.health
        reach = node_reach(self.state, self.policy, room, now, self.reaches.get(node_id) if same_host else None)
        if improved(self.reaches.get(node_id), reach) or before is None or grew(before, room):
            self._improved[node_id] = None
        self.reaches[node_id] = reach
        self.set_timer("node", node_id, reach.changes_at)
        for run in self.state.runs_on_node(node_id):
            if run.job_id in self.holds:
                self.unsettled.add(run.run_id)
            if before is not None and before.node.health is not node.health:
                for other in run.node_ids:
                    if other != node_id:
                        self.reaches.pop(other, None)
                        self.state.changes.nodes.add(other)

    def _free_cards(self, room: NodeRoom, shape: Shape) -> int:
        if not takes_placements(room.node):
            return 0
        if shape.gpus == 0:
            return 1
        return placement.fitting_cards(room, shape, self.policy, later=False)

    def _refresh_job(self, job_id: str, now: float) -> None:
        job = self.state.jobs.get(job_id)
        run = self.state.run_of(job_id)
        held = self.holds.pop(job_id, None)
        if job_id in self.dispossessed:
            del self.dispossessed[job_id]
            self._reclaimers_moved = True
        if held is not None:
            self._movers[self._shape_of.pop(job_id)].pop(job_id, None)
            self.set_timer("hold", held, None)
        if job is None or run is not None or job.held:
            self._leave_queue(job_id)
        if job is not None and (run is None or run.started_at is None):
            self._watch_overdue(job, now)
        if job is not None and run is not None:
            self._refresh_run(job, run)
        elif job is not None and not job.held:
            self._refresh_waiting(job, now)

    def _refresh_run(self, job: Job, run: Run) -> None:
        if self.worth_of(job, run) != run.v:
            self.revalue.add(run.run_id)
        if run.state in (RunState.PLANNED, RunState.STARTING) and run.started_at is None and not is_leaving(run):
            self.holds[job.job_id] = run.run_id
            self._shape_of[job.job_id] = job.shape
            movers = self._movers.setdefault(job.shape, {})
            if run.after:
                movers[job.job_id] = None
            self.unsettled.add(run.run_id)
        if run.started_at is None and run.lease_state is LeaseState.NEXT and run.stop_cause in _TAKEN:
            self.dispossessed[job.job_id] = None

    def _refresh_waiting(self, job: Job, now: float) -> None:
        moments = [priority.next_step_at(job, self.policy, now)]
        if job.no_victims_until > now:
            moments.append(job.no_victims_until)
        if job.begin_at is not None and job.begin_at > now:
            moments = [job.begin_at]
            self._leave_queue(job.job_id)
        else:
            headed = self._bucket_headed_by(job.job_id)
            bucket = self.queue.put(job, self.policy, now)
            if bucket is not None and headed is not None:
                self._search_anew(headed)
            if bucket is not None and self._team_has_guarantee(job.team):
                self._reclaimers_moved = True
            if bucket is not None and (bucket.blocked is None or bucket.head == job.job_id):
                self.judge_again(bucket)
        early = begin.is_early(job, now)
        if job.refusal is None or (job.refusal.reason is Reason.NOT_YET and not early):
            self.fresh[job.job_id] = None
        self.set_timer("job", job.job_id, min((at for at in moments if at is not None), default=None))

    def _watch_overdue(self, job: Job, now: float) -> None:
        due_at = overdue.due_at(job)
        if due_at is not None and due_at <= now:
            self.overdue.add(job.job_id)
        self.set_timer("overdue", job.job_id, due_at if due_at is not None and due_at > now else None)

    def _leave_queue(self, job_id: str) -> None:
        bucket = self._bucket_headed_by(job_id)
        self.queue.remove(job_id)
        if bucket is not None:
            self._search_anew(bucket)
            if self._team_has_guarantee(bucket.team):
                self._reclaimers_moved = True
        self.fresh.pop(job_id, None)
        self.set_timer("job", job_id, None)

    def _team_has_guarantee(self, team: str) -> bool:
        return self.state.team(team).guarantee > 0

    def _bucket_headed_by(self, job_id: str) -> Bucket | None:
        place = self.queue.place.get(job_id)
        return place[0] if place is not None and place[0].head == job_id else None

    def _wake(self, changes: Changes, now: float) -> None:
        """Judge again whoever was blocked by something that changed."""
        blocked = list(self.blocked.all())
        if changes.everything or len(blocked) * len(self.rooms) <= _FEW:
            for bucket in blocked:
                self._search_anew(bucket)
        if changes.teams:
            self.reservers.usage_changed()
        for team in sorted(changes.teams):
            self._wake_team(team)
        moved = bool(self._limited or self.holds) and (self.reservers.moved() or self._reclaimers_moved)
        if moved:
            limited, self._limited = self._limited, {}
            for bucket in limited.values():
                if bucket.blocked is None or not bucket.entries:
                    continue
                job = self.state.jobs.get(bucket.head)
                if job is not None and not self.has_room(job.shape) and not self.hosts.in_reach(job, now):
                    self._limited[bucket.key] = bucket
                else:
                    self._search_anew(bucket)
            self._reclaimers_moved = False
        if self._hardware_version != self.state.hardware_version:
            self._hardware_version = self.state.hardware_version
            for bucket in self.blocked.with_reason(Reason.NEVER_FITS):
                self.judge_again(bucket)
        nodes, self._improved = self._improved, {}
        for node_id in nodes:
            self._wake_by_node(node_id)
        if nodes:
            self._wake_by_room()
        if nodes or moved or changes.everything:
            self._wake_holders(now)

    def _wake_team(self, team: str) -> None:
        rights = self.state.team(team)
        if self._rights.get(team) != rights:
            self._rights[team] = rights
            for bucket in self.blocked.of_team(team, frozenset(Reason)):
                self._search_anew(bucket)
        used = (self.state.used((team,)), self.state.used((team,), later=True))
        before = self._used.get(team)
        self._used[team] = used
        if before is None or used < before or used[1] < before[1]:
            for bucket in self.blocked.of_team(team, _BY_TEAM):
                self._search_anew(bucket)
        guarantee = round(self.state.team(team).guarantee * UNITS_PER_GPU)
        if guarantee and before != used:
            self._reclaimers_moved = True
            for bucket in self.blocked.of_team(team, frozenset({Reason.NO_ROOM})):
                self._search_anew(bucket)
            if used[1] > guarantee:
                for bucket in self.blocked.takers():
                    self._search_anew(bucket)

    def _wake_by_node(self, node_id: str) -> None:
        reach = self.reaches.get(node_id)
        if reach is None:
            return
        for bucket in self.blocked.reached(reach):
            if bucket.hints is not None:
                bucket.hints.add(node_id)
            self.judge_again(bucket)

    def _wake_by_room(self) -> None:
        for shape in self.blocked.shapes():
            first = self.blocked.following(shape, None)
            if first is not None and self.has_room(shape):
                wave = self._waves[shape] = Wave(shape=shape)
                self._push(wave, first[0])

    def _wake_holders(self, now: float) -> None:
        """Have holders whose GPUs are not empty yet look for other free ones, in their place in the queue."""
        if not self.policy.move_holds:
            return
        for shape, job_ids in self._movers.items():
            if job_ids and self.has_room(shape):
                for job_id in job_ids:
                    self._push(self.holds[job_id], self.order_of_job(self.state.jobs[job_id], now))

    def _search_anew(self, bucket: Bucket) -> None:
        bucket.hints = None
        self.judge_again(bucket)

    def order_of_job(self, job: Job, now: float) -> tuple[float, ...]:
        """The place in the queue that the job has, or would have, as a key."""
        q, capped = priority.queue_value(job, self.policy, now)
        if not self.fair or capped:
            return (-q, 0, 0.0, 0.0, job.submitted_at, job.order)
        return (-q, 1, *self.share_of(job.team), job.submitted_at, job.order)

    def _ring(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            at, what, name = heapq.heappop(self._timers)
            if self._timer_of.get((what, name)) != at:
                continue
            del self._timer_of[(what, name)]
            if what in ("job", "overdue"):
                self.state.changes.jobs.add(name)
            elif what == "node":
                self.state.changes.nodes.add(name)
            elif what == "hold":
                self.unsettled.add(name)
            elif what == "drain":
                self.draining.add(name)
            elif what == "recheck":
                for bucket in self.blocked.all():
                    self._search_anew(bucket)

    def _push(self, item: Bucket | Wave | str, key: Key) -> None:
        self._pushes += 1
        heapq.heappush(self._ready, (key, self._pushes, item))
