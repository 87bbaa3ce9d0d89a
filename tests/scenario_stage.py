"""The second driver of scenario files: a live cluster, real processes, all times scaled by the file's `live: {scale}`.

Cases are played side by side, each on cards of a type of its own, so that they meet only in the scheduler. The jobs are
scripted ones; this loop tells each when its `dur` is over or when it leaves after a notice.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from live_cluster import LiveCluster, LiveJob
from makeway.client import JobQuery
from makeway_schemas.api import JobDetail, JobView
from makeway_simulator.errors import ScenarioError
from makeway_simulator.scenario import notation
from makeway_simulator.scenario.case import LIMIT_SPARE_SECONDS, Case, CaseAction, CaseJob
from makeway_simulator.scenario.history import History, JobSeen, RunSeen, Snapshot
from preemption_cells import LANES, POOL

SCENARIO_POLICY = str(resources.files("makeway_simulator.scenario") / "scenario.yaml")
"""The policy under which scenarios are played, as a file."""

SLACK_SECONDS = 1.0
"""So much later than it should a thing may happen, in real time."""

_LOOK_SECONDS = 0.15
_STEP_SECONDS = 0.02
_DEFAULT_GRACE_SECONDS = 5.0
_numbers = itertools.count(1)


class LiveDriver:
    """Plays cases on a cluster that has the policy of scenarios."""

    kind = "live"

    def __init__(self, cluster: LiveCluster) -> None:
        self._cluster = cluster

    def play(self, case: Case) -> History:
        """Play one case."""
        return self.play_together([case])[0]

    def play_together(self, cases: Sequence[Case]) -> list[History]:
        """Play cases at the same time. Raises ScenarioError for what this cluster has no cards for."""
        lanes, pool = list(LANES), [POOL]
        stages = [_Stage(cluster=self._cluster, case=case, card=_card(case, lanes, pool)) for case in cases]
        looks = 0.0
        while not all(stage.over for stage in stages):
            for stage in stages:
                stage.step()
            if time.monotonic() - looks > _LOOK_SECONDS:
                looks = time.monotonic()
                views = {
                    job.name: job for job in self._cluster.client.jobs(JobQuery(include_finished=True), limit=1000)
                }
                for stage in stages:
                    stage.look(views)
            time.sleep(_STEP_SECONDS)  # the clock of the scenarios
        return [stage.history() for stage in stages]


def _card(case: Case, lanes: list[str], pool: list[str]) -> str:
    """A type of card of which the cluster has as many as the case's one node, of enough memory."""
    used = {name for job in case.jobs for name in notation.names(job.entry.needs or ())}
    nodes = [node for node in case.nodes if not used or node.name in used]
    if len(nodes) != 1 or nodes[0].gpus not in (1, 4):
        raise ScenarioError("live", "is for jobs on one node of one card or of four")
    wanted = max((job.spec.get("min_vram_mib", 0) for job in case.jobs), default=0)
    fitting = [card for card in (lanes if nodes[0].gpus == 1 else pool) if _gib(card) * 1024 >= wanted]
    if not fitting:
        raise ScenarioError("live", "there is no card left for it")
    card = min(fitting, key=_gib)
    (lanes if nodes[0].gpus == 1 else pool).remove(card)
    return card


def _gib(card: str) -> int:
    return int(card.rpartition("-")[2].removesuffix("GB"))


@dataclass(kw_only=True)
class _Stage:
    """One case that is being played."""

    cluster: LiveCluster
    case: Case
    card: str
    prefix: str = field(default_factory=lambda: f"scenario{next(_numbers)}")
    began: float = field(default_factory=time.time)
    jobs: dict[str, LiveJob] = field(default_factory=dict)
    told: set[tuple[str, int, str]] = field(default_factory=set)
    used: dict[str, float] = field(default_factory=dict)
    snapshots: list[Snapshot] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _due: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.case.live is None or self.case.policy or self.case.teams:
            raise ScenarioError("live", "is not for cases without it, nor with a policy or teams of their own")
        for job in self.case.jobs:
            self._due.append((job.at, len(self._due), lambda job=job: self._submit(job)))  # type: ignore[misc]
        for action in self.case.actions:
            self._due.append((action.at, len(self._due), lambda action=action: self._act(action)))  # type: ignore[misc]
        self._due.sort()

    @property
    def scale(self) -> float:
        assert self.case.live is not None
        return self.case.live.scale

    @property
    def now(self) -> float:
        return (time.time() - self.began) / self.scale

    @property
    def over(self) -> bool:
        return self.now > self.case.until + SLACK_SECONDS / self.scale

    def step(self) -> None:
        """Do what is due, and tell processes what they do now."""
        while self._due and self._due[0][0] <= self.now:
            self._due.pop(0)[2]()
        for job in self.case.jobs:
            if job.name in self.jobs:
                self._drive(job, self.jobs[job.name])

    def look(self, views: dict[str, JobView]) -> None:
        """Take a snapshot."""
        seen = {}
        for name in self.jobs:
            view = views.get(f"{self.prefix}-{name}")
            if view is not None:
                nodes = () if view.node is None else (view.node,)
                seen[name] = JobSeen(state=view.state, priority=view.priority, reason=view.reason, nodes=nodes)
        self.snapshots.append(Snapshot(at=self.now, jobs=seen))

    def history(self) -> History:
        """What came of it, in the scenario's own seconds."""
        details = {name: job.view() for name, job in self.jobs.items()}
        ended = {name: self._at(view.ended_at) for name, view in details.items() if view.ended_at is not None}
        return History(
            until=self.case.until,
            snapshots=tuple(self.snapshots),
            runs=tuple(run for name, view in details.items() for run in self._runs(name, view)),
            ended=ended,
            violations=tuple(self.problems),
            slack_seconds=SLACK_SECONDS / self.scale,
        )

    def _runs(self, name: str, view: JobDetail) -> Iterator[RunSeen]:
        for run in view.runs:
            if run.started_at is None:
                continue
            leaving = run.noticed_at is not None and run.ended_at is None
            yield RunSeen(
                job=name,
                number=run.number,
                started_at=self._at(run.started_at),
                ended_at=None if run.ended_at is None else self._at(run.ended_at),
                noticed_at=None if run.noticed_at is None else self._at(run.noticed_at),
                forced=run.forced,
                evicted=run.end_cause == "preempted" or (leaving and view.state == "STOPPING"),
                gpus=run.gpus,
            )

    def _at(self, moment: Any) -> float:
        return float(moment.timestamp() - self.began) / self.scale

    def _submit(self, job: CaseJob) -> None:
        spec = {name: job.spec[name] for name in ("priority", "gpus", "vram_mib", "preemptible") if name in job.spec}
        grace = job.spec.get("preemption", {}).get("grace", _DEFAULT_GRACE_SECONDS) * self.scale
        if job.entry.time_limit is not None:
            spec["time_limit"] = job.entry.time_limit * self.scale
        elif job.dur is not None:
            spec["time_limit"] = job.dur * self.scale + LIMIT_SPARE_SECONDS
        self.jobs[job.name] = self.cluster.submit(
            f"{self.prefix}-{job.name}", gpu_type=self.card, grace=grace, preemption={"mode": "REQUEUE"}, **spec
        )
        self.jobs[job.name].may_die_early = True

    def _act(self, action: CaseAction) -> None:
        entry = action.entry
        for name in notation.names(entry.cancel or ()):
            self.jobs[name].cancel()
        for name, value in notation.by_name(entry.set_priority or {}).items():
            self.cluster.client.set_priority(self.jobs[name].job_id, value)
        if entry.cancel is None and entry.set_priority is None:
            raise ScenarioError("actions", "live only jobs are cancelled and given priorities")

    def _drive(self, job: CaseJob, live: LiveJob) -> None:
        journal = live.journal()
        if not journal or journal[-1]["what"] == "leaves":
            return
        run = journal[-1]["run"]
        mine = {each["what"]: each["at"] for each in journal if each["run"] == run}
        if "started" not in mine or (job.name, run, "exit") in self.told:
            return
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        before = sum(self.used.get(f"{job.name}.{earlier}", 0.0) for earlier in range(1, run))
        self.used[f"{job.name}.{run}"] = now - mine["started"]
        if job.dur is not None and before + now - mine["started"] >= job.dur * self.scale:
            self._tell(job, live, run, "done" if "noticed" in mine else "", f"exit {job.entry.behaviour.exit_code}")
        elif "noticed" in mine and now - mine["noticed"] >= self._leaves_after(job):
            self._tell(job, live, run, "done" if job.entry.behaviour.declares_done else "", "exit 0")

    def _leaves_after(self, job: CaseJob) -> float:
        leaves = job.entry.behaviour.leaves_after
        if leaves == "never":
            return float("inf")
        if leaves is None:  # with the end of its grace; a little before, else it would have to be killed
            grace = float(job.spec.get("preemption", {}).get("grace", _DEFAULT_GRACE_SECONDS)) * self.scale
            return max(0.0, grace - 2 * _STEP_SECONDS)
        return float(leaves) * self.scale

    def _tell(self, job: CaseJob, live: LiveJob, run: int, *instructions: str) -> None:
        self.told.add((job.name, run, "exit"))
        try:
            live.tell(*(each for each in instructions if each), run=run)
        except AssertionError:
            return  # it was killed a moment ago
