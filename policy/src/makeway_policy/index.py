"""What `decide` derives from the state, kept from call to call and brought up to date from what changed.

What is kept of nodes is in `kept_nodes`, what of jobs in `kept_jobs`, who is judged again because of what in `wakeups`;
here they meet. Everything can be computed anew from the state, the policy and the time; nothing needs a journal.
"""

from collections.abc import Iterable, Iterator

from makeway_policy import affinity, past_use, priority, quota
from makeway_policy.agenda import Agenda
from makeway_policy.avoiding import Avoiding
from makeway_policy.changes import Changes
from makeway_policy.demand import Demand
from makeway_policy.kept_jobs import KeptJobs
from makeway_policy.kept_nodes import KeptNodes
from makeway_policy.model import Group, Job, Reason, Refusal, Shape
from makeway_policy.queue import Bucket, Key, Turns, WaitingQueue
from makeway_policy.rights import Rights
from makeway_policy.rooms import NodeRoom
from makeway_policy.rules import Policy, Strategy
from makeway_policy.state import PoolState
from makeway_policy.timers import Timers
from makeway_policy.wakeups import Concerned, Wakeups


class Index:
    """The derived indices of one pool under one policy: of its `nodes` and its `jobs`, and the queue between them."""

    def __init__(self, state: PoolState, policy: Policy) -> None:
        self.state = state
        self.policy = policy
        self.turns = Turns(state, policy)
        self.rights = Rights(state, self.turns)
        self.queue = WaitingQueue(policy, self.rights.owner_of)
        self._timers = Timers()
        self._avoiding = Avoiding(state, policy, self._timers)
        self.nodes = KeptNodes(state, policy, (self.queue, self.turns), self._timers)
        self.rooms, self.reaches, self.free = self.nodes.rooms, self.nodes.reaches, self.nodes.free
        self.hosts, self.reservers = self.nodes.hosts, self.nodes.reservers
        self.never_fits = self.nodes.never_fits
        self.agenda = Agenda(self.turns, self.reservers, self.free)
        self.wakeups = Wakeups(
            Concerned(
                state=state, policy=policy, turns=self.turns, rights=self.rights, agenda=self.agenda,
                reservers=self.reservers, hosts=self.hosts, free=self.free, rooms=self.rooms, reaches=self.reaches,
            )
        )  # fmt: skip
        holding = (self.reservers, self.wakeups.movers)
        self.jobs = KeptJobs(state, policy, (self.queue, self.agenda), holding, self._timers)
        weighs = any(rules.placement is Strategy.FRAG for rules in policy.classes.values())
        self.demand: Demand | None = Demand(policy) if weighs else None
        self._groups: dict[str, Group] = {}

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
            self._avoiding.settle(changes, now)
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
        # Once its team is within its guarantee with it, it is judged again, and may reach further.
        limit = self.hosts.limit_now(job, now) if job.no_victims_until <= now else None
        overrides = priority.class_of(job, self.policy).overrides_minimum_run
        self.agenda.blocked.add(bucket, job, limit, overrides=overrides, limited=self.rights.limit(job.team))
        if limited:
            self.wakeups.note_limited(bucket)
        if refusal.room_on:
            self.wakeups.note_room(bucket)

    def place_of(self, job: Job, now: float) -> Key:
        """The job's place in the queue; one that does not wait there has the place that it would have.

        All places are compared as they were noted: a step of aging that is due this moment may be noted of one only.
        """
        noted = self.queue.place.get(job.job_id)
        return self.turns.of_job(job, now) if noted is None else self.turns.of(*noted)

    @property
    def is_settled(self) -> bool:
        """Whether no run, hold or draining node is left to look at."""
        return not (self.jobs.revalue or self.jobs.unsettled or self.nodes.draining)

    def refusal_for(self, job_id: str) -> Refusal | None:
        """What was refused to the job's bucket; None if it does not wait in one."""
        found = self.queue.place.get(job_id)
        return None if found is None else found[0].blocked

    def next_wake(self, now: float) -> float | None:
        """When time alone changes something next; what the next decision would wait for is done first."""
        self.hosts.tidy(now)
        if not len(self.agenda.blocked):
            self._timers.set("recheck", "", None)
        elif not self._timers.is_set("recheck", ""):
            self._timers.set("recheck", "", now + self.policy.recheck_seconds)
        return self._timers.next()

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
        free, scores = self.free.of(shape), self.nodes.labels.scores(shape)
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
        offering, rebuilt = self.nodes.take(changes, now)
        # On other nodes a run that has not started is as settled as it was.
        self.jobs.unsettle_on(changes.nodes if self.jobs.pending else rebuilt)
        if self.demand is not None:
            self.demand.submitted(self.state.jobs[job_id] for job_id in changes.jobs if job_id in self.state.jobs)
        for job_id in sorted(changes.jobs):
            self.jobs.refresh(job_id, now)
            place = self.queue.place.get(job_id) if job_id in changes.undone else None
            if place is not None:
                self.agenda.search_anew(place[0])
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
                self.nodes.look_at_host(run)
                changes.note_members(run.members)

    def _ring(self, now: float) -> None:
        for what, name in self._timers.due(now):
            if what in ("job", "overdue", "avoid"):
                self.state.changes.jobs.add(name)
            elif what == "node":
                self.nodes.ring(name)
            elif what == "hold":
                self.jobs.unsettled.add(name)
            elif what == "drain":
                self.nodes.draining.add(name)
            else:
                for bucket in self.agenda.blocked.all():
                    self.agenda.search_anew(bucket)
