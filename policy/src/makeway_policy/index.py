"""What `decide` derives from the state, kept from call to call and brought up to date from what changed.

Waiting queue, room per node, nodes by free cards, holds, timers. Everything here can be computed anew from the state,
the policy and the time; nothing here needs a journal.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator

from makeway_policy import capacity, overdue, placement, priority, protection, quota
from makeway_policy.model import Job, Reason, Refusal, Run, RunState, Shape
from makeway_policy.queue import Bucket, Entry, WaitingQueue
from makeway_policy.reserving import Reservers
from makeway_policy.rooms import NodeRoom, node_room, takes_placements
from makeway_policy.rules import Order, Policy
from makeway_policy.state import Changes, PoolState, is_leaving

_BY_TEAM = frozenset({Reason.TEAM_LIMIT, Reason.CLASS_LIMIT, Reason.ALLOWANCE, Reason.NEVER_FITS})


class Index:
    """The derived indices of one pool under one policy."""

    def __init__(self, state: PoolState, policy: Policy) -> None:
        self.state = state
        self.policy = policy
        self.queue = WaitingQueue()
        self.rooms: dict[str, NodeRoom] = {}
        self.free: dict[tuple[object, ...], FreeNodes] = {}
        self.holds: dict[str, str] = {}
        self.unsettled: set[str] = set()
        self.revalue: set[str] = set()
        self.overdue: set[str] = set()
        self.fresh: dict[str, None] = {}
        self.reservers = Reservers(state, policy, self.rooms)
        self._never: dict[Shape, tuple[int, Refusal | None]] = {}
        self._ready: list[tuple[tuple[float, ...], int, Bucket | str]] = []
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
            if item.blocked is not None or not item.entries:
                continue
            actual = self.order_of(item)
            if actual != key:
                self._push(item, actual)
                continue
            return item
        return None

    def block(self, bucket: Bucket, refusal: Refusal) -> None:
        """Keep a bucket out until something changes that concerns it."""
        bucket.blocked = refusal
        self.reservers.block(bucket, self.order_of(bucket))

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

    def nodes_for_victims(self, job: Job) -> Iterator[str]:
        """The nodes on which victims for the job may be looked for."""
        return (node_id for node_id, room in self.rooms.items() if placement.node_allows(room.node, job))

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
        if bucket.entries:
            bucket.blocked = None
            self._push(bucket, self.order_of(bucket))

    def order_of(self, bucket: Bucket, entry: Entry | None = None) -> tuple[float, ...]:
        """The place in the queue of a bucket's first job (or of another of its entries), as a key."""
        negative_q, submitted_at, order, _ = entry or bucket.entries[0]
        if self.policy.order is not Order.FAIR or bucket.capped:
            return (negative_q, 0, 0.0, 0.0, submitted_at, order)
        return (negative_q, 1, *quota.fair_share_key(self.state, bucket.team), submitted_at, order)

    def worth_of(self, job: Job, run: Run) -> int:
        """The v of a decided run: the job's base as it is now, and Δ if an aged job won it."""
        return priority.base(job, self.policy) + (self.policy.delta if run.promoted else 0)

    def next_wake(self) -> float | None:
        """When time alone changes something next."""
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
        key = (shape.gpu_type, shape.min_vram_mib, shape.vram_mib, shape.shares, shape.mig, shape.gpus == 0)
        found = self.free.get(key)
        if found is None:
            found = self.free[key] = FreeNodes(shape)
            for node_id, room in self.rooms.items():
                found.update(node_id, self._free_cards(room, shape))
        return found.at_least(cards, fullest_first=fullest_first)

    def _take(self, changes: Changes, now: float) -> None:
        for name in changes.groups:
            for job in self.state.jobs_of_group(name):
                run = self.state.run_of(job.job_id)
                if run is not None:
                    changes.nodes.update(run.node_ids)
        for node_id in sorted(changes.nodes):
            self._refresh_node(node_id, now)
        for job_id in sorted(changes.jobs):
            self._refresh_job(job_id, now)
        for job_id in sorted(changes.undone):
            place = self.queue.place.get(job_id)
            if place is not None:
                self.judge_again(place[0])
        self._wake(changes, now)

    def _refresh_node(self, node_id: str, now: float) -> None:
        node = self.state.nodes.get(node_id)
        self.reservers.node_changed(node_id)
        if node is None:
            self.rooms.pop(node_id, None)
            for found in self.free.values():
                found.update(node_id, 0)
            self.set_timer("node", node_id, None)
            return
        room = self.rooms[node_id] = node_room(self.state, node)
        for found in self.free.values():
            found.update(node_id, self._free_cards(room, found.shape))
        runs = self.state.runs_on_node(node_id)
        moments = [protection.protection_changes_at(self.state, self.policy, run, now) for run in runs]
        self.set_timer("node", node_id, min((at for at in moments if at is not None), default=None))
        self.unsettled.update(run.run_id for run in runs if run.job_id in self.holds)

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
        if held is not None:
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
            self.unsettled.add(run.run_id)

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
                self.judge_again(headed)
            if bucket is not None and (bucket.blocked is None or bucket.head == job.job_id):
                self.judge_again(bucket)
        if job.refusal is None:
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
            self.judge_again(bucket)
        self.fresh.pop(job_id, None)
        self.set_timer("job", job_id, None)

    def _bucket_headed_by(self, job_id: str) -> Bucket | None:
        place = self.queue.place.get(job_id)
        return place[0] if place is not None and place[0].head == job_id else None

    def _wake(self, changes: Changes, now: float) -> None:
        """Judge again whoever was blocked by something that changed."""
        left, self.reservers.changed = self.reservers.changed, False
        if left:
            for bucket in self.queue.buckets.values():
                if bucket.blocked is not None and bucket.blocked.reason is Reason.RESERVED_FOR_ANOTHER:
                    self.judge_again(bucket)
        if not (changes.nodes or changes.teams or changes.everything or changes.groups):
            return
        for bucket in self.queue.buckets.values():
            if bucket.blocked is not None and self._concerns(bucket, changes):
                self.judge_again(bucket)
        if self.policy.move_holds and changes.nodes:
            for run_id in self.holds.values():
                run = self.state.runs[run_id]
                if run.after:
                    self._push(run_id, self.order_of_job(self.state.jobs[run.job_id], now))

    def order_of_job(self, job: Job, now: float) -> tuple[float, ...]:
        """The place in the queue that the job has, or would have, as a key."""
        q, capped = priority.queue_value(job, self.policy, now)
        if self.policy.order is not Order.FAIR or capped:
            return (-q, 0, 0.0, 0.0, job.submitted_at, job.order)
        return (-q, 1, *quota.fair_share_key(self.state, job.team), job.submitted_at, job.order)

    def _concerns(self, bucket: Bucket, changes: Changes) -> bool:
        if changes.everything or changes.nodes or changes.groups:
            return True
        return bucket.blocked is not None and bucket.blocked.reason in _BY_TEAM

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

    def _push(self, item: Bucket | str, key: tuple[float, ...]) -> None:
        self._pushes += 1
        heapq.heappush(self._ready, (key, self._pushes, item))


class FreeNodes:
    """Nodes ordered by how many cards they have free for one kind of request."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._order: list[tuple[int, str]] = []
        self._count: dict[str, int] = {}

    def update(self, node_id: str, cards: int) -> None:
        """Note how many cards a node has free; 0 takes it out."""
        old = self._count.get(node_id, 0)
        if old == cards:
            return
        if old:
            del self._order[bisect_left(self._order, (old, node_id))]
            del self._count[node_id]
        if cards:
            insort(self._order, (cards, node_id))
            self._count[node_id] = cards

    def at_least(self, cards: int, *, fullest_first: bool) -> Iterator[str]:
        """Node ids with at least so many cards, fewest (else most) first, then by id."""
        start = bisect_left(self._order, (cards, ""))
        if fullest_first:
            for place in range(start, len(self._order)):
                yield self._order[place][1]
            return
        end = len(self._order)
        while end > start:
            first = bisect_left(self._order, (self._order[end - 1][0], ""))
            for place in range(max(first, start), end):
                yield self._order[place][1]
            end = first
