"""The indexed state of one pool, changed in place inside transactions that can be rolled back.

Values are frozen; `put_*` replaces one and moves every index with it. Between `begin` and `commit` or `rollback` each
change is written to an undo journal, so that nothing is copied and a rollback costs what was changed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from makeway_policy.model import Gpu, Group, Job, Node, Run, Team


@dataclass(frozen=True, kw_only=True, slots=True)
class Touched:
    """The ids of everything that a transaction has changed so far (what the caller locks and writes)."""

    jobs: frozenset[str]
    runs: frozenset[str]
    nodes: frozenset[str]
    gpus: frozenset[str]


class PoolState:
    """Nodes, GPUs, waiting and running jobs, runs, teams and groups of one pool, with their indices.

    The mappings are live read-only views. Nodes come before their GPUs, teams and jobs before runs. Terminal jobs are
    removed, ended and released runs too.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._runs: dict[str, Run] = {}
        self._nodes: dict[str, Node] = {}
        self._gpus: dict[str, Gpu] = {}
        self._teams: dict[str, Team] = {}
        self._groups: dict[str, Group] = {}
        self._journal: list[Callable[[], Any]] = []
        self._depth = 0
        self.jobs: Mapping[str, Job] = MappingProxyType(self._jobs)
        self.runs: Mapping[str, Run] = MappingProxyType(self._runs)
        self.nodes: Mapping[str, Node] = MappingProxyType(self._nodes)
        self.gpus: Mapping[str, Gpu] = MappingProxyType(self._gpus)
        self.teams: Mapping[str, Team] = MappingProxyType(self._teams)
        self.groups: Mapping[str, Group] = MappingProxyType(self._groups)

    def begin(self) -> None:
        """Open a transaction. One at a time; decide() may be called with or without one."""
        raise NotImplementedError

    def commit(self) -> None:
        """Keep what the transaction changed."""
        raise NotImplementedError

    def rollback(self) -> None:
        """Restore the state, indices included, exactly as it was at `begin`."""
        raise NotImplementedError

    def touched(self) -> Touched:
        """What the open transaction has changed so far."""
        raise NotImplementedError

    def put_job(self, job: Job) -> None:
        """Add a job or replace it."""
        raise NotImplementedError

    def remove_job(self, job_id: str) -> None:
        """Forget a job that reached a terminal state. Unknown ids are ignored."""
        raise NotImplementedError

    def put_run(self, run: Run) -> None:
        """Add a run or replace it (other leases, another state, new acks)."""
        raise NotImplementedError

    def remove_run(self, run_id: str) -> None:
        """Release a run: its GPUs are proven empty. It leaves `after` of every follower (see `ready_runs`)."""
        raise NotImplementedError

    def put_node(self, node: Node) -> None:
        """Add a node or replace it."""
        raise NotImplementedError

    def remove_node(self, node_id: str) -> None:
        """Forget a node and its GPUs; its runs must have been removed."""
        raise NotImplementedError

    def put_gpu(self, gpu: Gpu) -> None:
        """Add a GPU or replace it; its node must be known."""
        raise NotImplementedError

    def remove_gpu(self, gpu_id: str) -> None:
        """Forget a GPU that nothing is leased on."""
        raise NotImplementedError

    def put_team(self, team: Team) -> None:
        """Add a team or replace it. A job of an unknown team has the default rights of `Team`."""
        raise NotImplementedError

    def put_group(self, group: Group) -> None:
        """Add a disruption group or replace it."""
        raise NotImplementedError

    def run_of(self, job_id: str) -> Run | None:
        """The job's run that is not released, if any."""
        raise NotImplementedError

    def followers_of(self, run_id: str) -> tuple[Run, ...]:
        """The runs that wait for this one to end, by id."""
        raise NotImplementedError

    def runs_on_gpu(self, gpu_id: str) -> tuple[Run, ...]:
        """All runs with a lease (or a kept place) on a GPU, by id."""
        raise NotImplementedError

    def runs_on_node(self, node_id: str) -> tuple[Run, ...]:
        """All runs with a member on a node, by id."""
        raise NotImplementedError

    def team_usage(self, team_id: str) -> float:
        """GPUs that the team uses: live leases, each GPU once; fenced nodes do not count."""
        raise NotImplementedError
