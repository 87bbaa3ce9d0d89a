"""A recorded workload: jobs with their arrivals and the work they hold, and the cluster they ran on or shall run on."""

import re
from dataclasses import dataclass, field
from typing import Final

from makeway_policy.model import Job, Member
from makeway_policy.retries import Retries

from makeway_simulator.errors import BadValue
from makeway_simulator.limits import CLUSTER_GPUS_MOST
from makeway_simulator.physics import Process

_CLUSTER: Final = re.compile(r"\d{1,9}[xX]\d{1,9}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Detail:
    """What a hand-written job says beyond a recorded one: all that it asks for, how it behaves, where it runs already.

    `asked` is the job as the policy knows it, but for its order and times. With `placed` it is admitted as a run on
    these GPUs.
    """

    asked: Job
    process: Process
    retries: Retries = field(default_factory=Retries)
    placed: tuple[Member, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceJob:
    """One job. Times are seconds since the trace began; `work_seconds` is its run time with all its GPUs, undisturbed.

    `startup_seconds` is what a start or a resume costs before work goes on (restart, load of a checkpoint); None where
    the trace does not say. `priority` is in makeway's own scale; None takes the class's value. `detail`, where it is
    given, goes before all that says the same.
    """

    job_id: str
    submitted_at: float
    gpus: int
    work_seconds: float
    startup_seconds: float | None = None
    class_name: str | None = None
    priority: int | None = None
    team: str = "default"
    time_limit_seconds: float | None = None
    detail: Detail | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """A workload, ordered by submission, with the count of lines that were skipped on request.

    `cluster` is the one it ran on, in the form of `Cluster.parse`, where the trace says so.
    """

    jobs: tuple[TraceJob, ...]
    skipped: int = 0
    cluster: str | None = None

    def cluster_of(self, given: str | None, otherwise: str) -> "Cluster":
        """The cluster to run on: the given one, else the trace's own, else the last. Raises BadValue."""
        return Cluster.parse(next(name for name in (given, self.cluster, otherwise) if name is not None))


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """`nodes` nodes of `gpus_per_node` GPUs each."""

    nodes: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.nodes * self.gpus_per_node

    def __str__(self) -> str:
        """As `parse` reads it."""
        return f"{self.nodes}x{self.gpus_per_node}"

    @staticmethod
    def parse(text: str) -> "Cluster":
        """Read `8x8`, nodes times GPUs a node. Raises BadValue."""
        nodes, _, gpus = text.lower().partition("x")
        wanted = f"nodes x GPUs a node, such as 8x8, and at most {CLUSTER_GPUS_MOST} GPUs"
        if not _CLUSTER.fullmatch(text):
            raise BadValue("the cluster", text, wanted)
        found = Cluster(nodes=int(nodes), gpus_per_node=int(gpus))
        if not 0 < found.gpus <= CLUSTER_GPUS_MOST:
            raise BadValue("the cluster", text, wanted)
        return found
