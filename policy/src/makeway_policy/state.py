"""The indexed state of one pool, changed in place inside transactions that can be rolled back.

Values are frozen; `put_*` replaces one and moves every index with it. Between `begin` and `commit` or `rollback` each
change is written to an undo journal, so that nothing is copied and a rollback costs what was changed. What `decide`
derives beyond that (queue order, room per node) lives in `derived` and is brought up to date from `changes`, the ids
that changed since it last looked; a rollback counts as a change.
"""

from collections.abc import Iterable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from makeway_policy.changes import Changes, Touched
from makeway_policy.copies import changed
from makeway_policy.journal import Journal
from makeway_policy.model import Gpu, Group, Job, LeaseState, Node, NodeHealth, Run, Team
from makeway_policy.past_use import NEVER, PastUse
from makeway_policy.percents import PoolSize, counts
from makeway_policy.standings import Found, Standing, Standings
from makeway_policy.usage import UNITS_PER_GPU, Key, Usage, has_started, is_leaving, units_of

_DEAD = NodeHealth.DEAD

__all__ = ["UNITS_PER_GPU", "PoolState", "has_started", "is_leaving", "units_of"]


_terms = attrgetter(
    "class_name", "own_priority", "manual_priority", "mode", "preemptible", "preempted_at", "grace_seconds",
    "exempt_after_seconds", "time_limit_seconds", "restart_seconds", "group", "labels", "team", "user",
)  # fmt: skip
"""All that says what protects a job's run, what it costs to stop it, who likes to be beside it, and under what it
counts."""
_counts = attrgetter("team", "class_name", "user", "preemptible", "group")
"""All of it that says under what a job's run counts."""


class PoolState:
    """Nodes, GPUs, waiting and running jobs, runs, teams and groups of one pool, with their indices.

    The mappings are live read-only views. Nodes come before their GPUs, jobs before their runs; a job stays as long
    as it has a run. Terminal jobs are removed, ended and released runs too.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._runs: dict[str, Run] = {}
        self._nodes: dict[str, Node] = {}
        self._gpus: dict[str, Gpu] = {}
        self._teams: dict[str, Team] = {}
        self._groups: dict[str, Group] = {}
        self._weighed: dict[str, float] = {}
        self._past_use: dict[str, PastUse] = {}
        self._run_of_job: dict[str, str] = {}
        self._runs_on_gpu: dict[str, tuple[str, ...]] = {}
        self._runs_on_node: dict[str, tuple[str, ...]] = {}
        self._followers: dict[str, tuple[str, ...]] = {}
        self._gpus_of_node: dict[str, tuple[str, ...]] = {}
        self._jobs_of_group: dict[str, tuple[str, ...]] = {}
        self._runs_of_team: dict[str, dict[str, None]] = {}
        self._journal = Journal()
        self._usage = Usage(self._journal, self.in_hard_group)
        self._size = PoolSize(self._journal)
        self._standings = Standings(self._standing_of_run, lambda team_id: self._runs_of_team.get(team_id, ()))
        self._touched: tuple[set[str], set[str], set[str], set[str]] = (set(), set(), set(), set())
        self._touched_teams: set[str] = set()
        self._touched_groups: set[str] = set()
        self.changes = Changes()
        self.derived: Any = None
        self.hardware_version = 0
        self.jobs: Mapping[str, Job] = MappingProxyType(self._jobs)
        self.runs: Mapping[str, Run] = MappingProxyType(self._runs)
        self.nodes: Mapping[str, Node] = MappingProxyType(self._nodes)
        self.gpus: Mapping[str, Gpu] = MappingProxyType(self._gpus)
        self.teams: Mapping[str, Team] = MappingProxyType(self._teams)
        self.groups: Mapping[str, Group] = MappingProxyType(self._groups)

    # Transactions

    def begin(self) -> None:
        """Open a transaction. One at a time; without one, changes are kept at once."""
        self._journal.begin()

    def commit(self) -> None:
        """Keep what the transaction changed."""
        self._close()

    def rollback(self) -> None:
        """Restore the state, indices included, exactly as it was at `begin`."""
        self._journal.undo()
        jobs, _, nodes, _ = self._touched
        self.hardware_version += 1
        self.changes.jobs |= jobs
        self.changes.undone |= jobs
        self.changes.amended |= jobs
        self.changes.nodes |= nodes
        self.changes.rebuilt |= nodes
        self.changes.teams |= self._touched_teams
        self.changes.rights |= self._touched_teams
        self.changes.eased |= self._touched_teams
        self.changes.groups |= self._touched_groups
        self._standings.forget()
        self._close()

    def touched(self) -> Touched:
        """What the open transaction has changed so far."""
        jobs, runs, nodes, gpus = self._touched
        return Touched(jobs=frozenset(jobs), runs=frozenset(runs), nodes=frozenset(nodes), gpus=frozenset(gpus))

    # Jobs, teams, groups

    def put_job(self, job: Job) -> None:
        """Add a job or replace it."""
        old = self._jobs.get(job.job_id)
        self._journal.put(self._jobs, job.job_id, job)
        if old is None or _terms(old) != _terms(job):
            self._amended(old, job)
        self._job_changed(job)

    def _amended(self, old: Job | None, job: Job) -> None:
        self.changes.amended.add(job.job_id)
        if old is not None and _counts(old) != _counts(job):
            run = self.run_of(job.job_id)
            self._recount(() if run is None else _gpu_ids(run))
            self._standings.forget()
        self._regroup(job.job_id, old.group if old else None, job.group)

    def tell(self, job: Job) -> None:
        """Replace a job that differs only in the reason it was told: nothing that is derived depends on it."""
        self._journal.put(self._jobs, job.job_id, job)
        self._touched[0].add(job.job_id)

    def remove_job(self, job_id: str) -> None:
        """Forget a job that reached a terminal state. Unknown ids are ignored."""
        job = self._jobs.get(job_id)
        if job is None:
            return
        self._journal.delete(self._jobs, job_id)
        self._regroup(job_id, job.group, None)
        self._job_changed(job)

    def put_team(self, team: Team) -> None:
        """Add a team or replace it. A job of an unknown team has the default rights of `Team`."""
        if self._teams.get(team.team_id) == team:
            return
        self._journal.put(self._teams, team.team_id, team)
        self._size.put_team(team)
        if team.weight != 1:
            self._journal.put(self._weighed, team.team_id, team.weight)
        elif team.team_id in self._weighed:
            self._journal.delete(self._weighed, team.team_id)
        self._rights_changed(team.team_id)

    def put_group(self, group: Group) -> None:
        """Add a disruption group or replace it."""
        old = self._groups.get(group.name)
        self._journal.put(self._groups, group.name, group)
        if (old is not None and old.hard) is not group.hard:
            for job in self.jobs_of_group(group.name):
                run = self.run_of(job.job_id)
                self._recount(() if run is None else _gpu_ids(run))
        self._group_changed(group.name)

    def put_past_use(self, team_id: str, past: PastUse) -> None:
        """Note what a team has used so far; it orders nothing unless the policy has a half-life."""
        self._journal.put(self._past_use, team_id, past)

    def _regroup(self, job_id: str, old: str | None, new: str | None) -> None:
        for name, keep in ((old, False), (new, True)):
            if name is not None and old != new:
                self._journal.put_member(self._jobs_of_group, name, job_id, present=keep)

    def _job_changed(self, job: Job) -> None:
        self._touched[0].add(job.job_id)
        self.changes.jobs.add(job.job_id)
        if job.group is not None:
            self._group_changed(job.group)

    def _rights_changed(self, team_id: str) -> None:
        self._team_changed(team_id)
        self.changes.rights.add(team_id)

    def _team_changed(self, team_id: str) -> None:
        self._touched_teams.add(team_id)
        self.changes.teams.add(team_id)

    def _group_changed(self, name: str) -> None:
        self._touched_groups.add(name)
        self.changes.groups.add(name)

    # Runs

    def put_run(self, run: Run) -> None:
        """Add a run or replace it (other leases, another state, new acks). Its job must be known."""
        old = self._runs.get(run.run_id)
        self._journal.put(self._runs, run.run_id, run)
        newest = self._run_of_job.get(run.job_id)
        if newest is None or self._runs[newest].number <= run.number:
            self._journal.put(self._run_of_job, run.job_id, run.run_id)
        if old is None:
            self._journal.put(self._runs_of_team.setdefault(self._jobs[run.job_id].team, {}), run.run_id, None)
        self._standings.note(run.run_id)
        self._link(old, run)
        self._occupy(old, run)

    def remove_run(self, run_id: str, now: float) -> tuple[Run, ...]:
        """Release a run: its GPUs are proven empty. Returns its followers as they are now.

        It leaves `after` of every follower; one that has no predecessor left gets `empty_since`, and is LIVE if it was
        NEXT (a PENDING one gets its leases by a later `Grant`; one whose own stop is decided stays as it is). Unknown
        ids are ignored.
        """
        run = self._runs.get(run_id)
        if run is None:
            return ()
        followers = self.followers_of(run_id)
        self._journal.delete(self._runs, run_id)
        if self._run_of_job.get(run.job_id) == run_id:
            self._journal.delete(self._run_of_job, run.job_id)
        self._journal.delete(self._runs_of_team[self._jobs[run.job_id].team], run_id)
        self._standings.note(run_id)
        self._link(run, None)
        self._occupy(run, None)
        return tuple(self._advance(follower, run_id, now) for follower in followers)

    def _advance(self, follower: Run, run_id: str, now: float) -> Run:
        after = follower.after - {run_id}
        if after or is_leaving(follower):
            moved = changed(follower, after=after)
        else:
            live = LeaseState.LIVE if follower.lease_state is LeaseState.NEXT else follower.lease_state
            moved = changed(follower, after=after, lease_state=live, empty_since=now)
        self.put_run(moved)
        return moved

    def _link(self, old: Run | None, new: Run | None) -> None:
        before = old.after if old else frozenset()
        after = new.after if new else frozenset()
        run = new or old
        if run is None:
            return
        for run_id in before ^ after:
            self._journal.put_member(self._followers, run_id, run.run_id, present=run_id in after)

    def _occupy(self, old: Run | None, new: Run | None) -> None:
        run = new or old
        if run is None:
            return
        nodes, gpus = _node_ids(run), _gpu_ids(run)
        if old is not None and new is not None and has_started(old, new):
            self._touch(run, nodes, gpus)
            self.changes.started.add(run.run_id)
            return
        if old is None or new is None:
            self._put_on(run.run_id, nodes, gpus, present=new is not None)
            self._recount(gpus)
        elif old.members is not new.members or old.moves_to is not new.moves_to:
            old_nodes, old_gpus = _node_ids(old), _gpu_ids(old)
            self._put_on(run.run_id, old_nodes - nodes, old_gpus - gpus, present=False)
            self._put_on(run.run_id, nodes - old_nodes, gpus - old_gpus, present=True)
            nodes, gpus = nodes | old_nodes, gpus | old_gpus
            self._recount(gpus)
        elif old.lease_state is not new.lease_state or is_leaving(old) is not is_leaving(new):
            self._recount(gpus)
        self._touch(run, nodes, gpus)
        self.changes.note_members(run.members)
        if old is not None and old.members is not run.members:
            self.changes.note_members(old.members)
        for one in (old, new):
            if one is not None and one.moves_to:
                self.changes.note_members(one.moves_to)

    def _put_on(self, run_id: str, nodes: Iterable[str], gpus: Iterable[str], *, present: bool) -> None:
        for gpu_id in gpus:
            self._journal.put_member(self._runs_on_gpu, gpu_id, run_id, present=present)
        for node_id in nodes:
            self._journal.put_member(self._runs_on_node, node_id, run_id, present=present)

    def _touch(self, run: Run, nodes: set[str], gpus: set[str]) -> None:
        touched = self._touched
        touched[1].add(run.run_id)
        touched[2].update(nodes)
        touched[3].update(gpus)
        self._job_changed(self._jobs[run.job_id])

    # Nodes and GPUs

    def put_node(self, node: Node) -> None:
        """Add a node or replace it."""
        old = self._nodes.get(node.node_id)
        if old == node:
            return
        self._journal.put(self._nodes, node.node_id, node)
        if old is not None and (old.health is _DEAD) != (node.health is _DEAD):
            self._recount(self._gpus_of_node.get(node.node_id, ()))
            gpus = self.gpus_of_node(node.node_id)
            self._grow(sum(counts(gpu, node) for gpu in gpus) - sum(counts(gpu, old) for gpu in gpus))
        self._node_changed(node.node_id)

    def remove_node(self, node_id: str) -> None:
        """Forget a node and its GPUs; its runs must have been removed."""
        if node_id not in self._nodes:
            return
        for gpu_id in self._gpus_of_node.get(node_id, ()):
            self.remove_gpu(gpu_id)
        self._journal.delete(self._nodes, node_id)
        self._node_changed(node_id)

    def put_gpu(self, gpu: Gpu) -> None:
        """Add a GPU or replace it; its node must be known."""
        old = self._gpus.get(gpu.gpu_id)
        if old == gpu:
            return
        self._journal.put(self._gpus, gpu.gpu_id, gpu)
        before = None if old is None else self._nodes.get(old.node_id)
        self._grow(counts(gpu, self._nodes[gpu.node_id]) - counts(old, before))
        self._journal.put_member(self._gpus_of_node, gpu.node_id, gpu.gpu_id, present=True)
        self._recount((gpu.gpu_id,))
        self._standings.forget()
        self._touched[3].add(gpu.gpu_id)
        self._node_changed(gpu.node_id)

    def remove_gpu(self, gpu_id: str) -> None:
        """Forget a GPU that nothing is leased on. Unknown ids are ignored."""
        gpu = self._gpus.get(gpu_id)
        if gpu is None:
            return
        self._journal.put_member(self._gpus_of_node, gpu.node_id, gpu_id, present=False)
        self._journal.delete(self._gpus, gpu_id)
        self._grow(-counts(gpu, self._nodes.get(gpu.node_id)))
        self._touched[3].add(gpu_id)
        self._node_changed(gpu.node_id)

    def _grow(self, gpus: int) -> None:
        if self._size.grow(gpus):
            for team_id in self._size.following:
                self._rights_changed(team_id)

    def _node_changed(self, node_id: str) -> None:
        self.hardware_version += 1
        self._touched[2].add(node_id)
        self.changes.nodes.add(node_id)
        self.changes.rebuilt.add(node_id)

    # Reads

    def run_of(self, job_id: str) -> Run | None:
        """The job's run that is not released, if any."""
        run_id = self._run_of_job.get(job_id)
        return None if run_id is None else self._runs[run_id]

    def followers_of(self, run_id: str) -> tuple[Run, ...]:
        """The runs that wait for this one to end, by id."""
        return tuple(self._runs[each] for each in self._followers.get(run_id, ()))

    def runs_on_gpu(self, gpu_id: str) -> tuple[Run, ...]:
        """All runs with a lease (or a kept place) on a GPU, by id."""
        found = self._runs_on_gpu.get(gpu_id)
        if found is None:
            return ()
        if len(found) == 1:
            return (self._runs[found[0]],)
        return tuple(self._runs[each] for each in found)

    def runs_on_node(self, node_id: str) -> tuple[Run, ...]:
        """All runs with a member on a node, by id."""
        return tuple([self._runs[each] for each in self._runs_on_node.get(node_id, ())])

    def runs_of_team(self, team_id: str) -> tuple[Run, ...]:
        """All runs of a team, by id."""
        return tuple(self._runs[each] for each in sorted(self._runs_of_team.get(team_id, ())))

    def gpus_of_node(self, node_id: str) -> tuple[Gpu, ...]:
        """The GPUs of a node, by id."""
        return tuple(self._gpus[each] for each in self._gpus_of_node.get(node_id, ()))

    def gpu_ids_of_node(self, node_id: str) -> tuple[str, ...]:
        """The ids of a node's GPUs, sorted."""
        return self._gpus_of_node.get(node_id, ())

    def jobs_of_group(self, name: str) -> tuple[Job, ...]:
        """The jobs of a disruption group, by id."""
        return tuple(self._jobs[each] for each in self._jobs_of_group.get(name, ()))

    def in_hard_group(self, job: Job) -> bool:
        """Whether the job is in a disruption group that may not be broken."""
        group = self._groups.get(job.group) if job.group is not None else None
        return group is not None and group.hard

    def standing(self, team_id: str) -> Standing:
        """The team's runs that stay, in the order in which they add up against its guarantee."""
        return self._standings.of(team_id)

    def team(self, team_id: str) -> Team:
        """The team's rights in GPUs, as the pool is; those of an unknown team are the defaults."""
        known = self._teams.get(team_id)
        if known is None:
            return Team(team_id=team_id, allowances={} if self._teams else None)
        return known if known.percents is None else self._size.in_gpus(known)

    def past_use_of(self, team_id: str) -> PastUse:
        """What the team has used so far."""
        return self._past_use.get(team_id, NEVER)

    @property
    def weighs_teams(self) -> bool:
        """Whether any team has a weight other than 1."""
        return bool(self._weighed)

    def team_usage(self, team_id: str) -> float:
        """GPUs that the team uses: live leases and holds, each GPU once; fenced nodes do not count."""
        return self.used((team_id,)) / UNITS_PER_GPU

    def used(self, key: Key, *, later: bool = False) -> int:
        """Usage in millionths of a GPU, of one of the keys of `usage`.

        `later`: as it will be when what is leaving has left.
        """
        return self._usage.of(key, later=later)

    def used_without(self, key: Key, run: Run) -> int:
        """Usage as in `used`, now, as if the run had no leases and nothing were kept for it."""
        found = self._used_gpus(_gpu_ids(run))
        return self._usage.of(key) - self._usage.share_of(run, key, found, self._jobs)

    # Usage

    def _standing_of_run(self, run_id: str) -> Found | None:
        run = self._runs.get(run_id)
        if run is None:
            return None
        job, gpus = self._jobs[run.job_id], self._gpus
        if is_leaving(run):
            return job.team, None, 0
        units = sum([units_of(gpus[lease.gpu_id], lease.vram_mib, lease.slots) for lease in run.leases])
        return job.team, (-run.v, run.started_at or run.decided_at, job.order, run_id), units

    def _recount(self, gpu_ids: Iterable[str]) -> None:
        moved = self._usage.recount(self._used_gpus(gpu_ids), self._jobs)
        for team_id, eased in moved.items():
            self._team_changed(team_id)
            if eased:
                self.changes.eased.add(team_id)

    def _used_gpus(self, gpu_ids: Iterable[str]) -> list[tuple[str, Gpu | None, tuple[Run, ...]]]:
        """GPUs with what is on them; nothing is on those of a node that is fenced."""
        found: list[tuple[str, Gpu | None, tuple[Run, ...]]] = []
        node_id, fenced = "", False
        for gpu_id in gpu_ids:
            gpu = self._gpus.get(gpu_id)
            if gpu is not None and gpu.node_id != node_id:
                node_id = gpu.node_id
                fenced = self._nodes[node_id].health is _DEAD
            found.append((gpu_id, gpu, () if gpu is None or fenced else self.runs_on_gpu(gpu_id)))
        return found

    def _close(self) -> None:
        self._journal.close()
        self._touched = (set(), set(), set(), set())
        self._touched_teams = set()
        self._touched_groups = set()


def _gpu_ids(run: Run) -> set[str]:
    members = (*run.members, *run.moves_to) if run.moves_to else run.members
    return {lease.gpu_id for member in members for lease in member.leases}


def _node_ids(run: Run) -> set[str]:
    members = (*run.members, *run.moves_to) if run.moves_to else run.members
    return {member.node_id for member in members}
