"""The driver on a virtual clock: the policy itself, on the state that it has live, with the simulator's nodes."""

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from makeway_policy.model import Group, Job, Lease, Member, Refusal
from makeway_policy.retries import Retries
from makeway_policy.rules import Policy

from makeway_simulator.engine import Engine, Intervention
from makeway_simulator.errors import ScenarioError
from makeway_simulator.outcome import EndKind
from makeway_simulator.physics import Process
from makeway_simulator.record import Record, Segment
from makeway_simulator.scenario import hardware
from makeway_simulator.scenario.asked import asked_of
from makeway_simulator.scenario.case import TEAM, Case, CaseAction, CaseJob
from makeway_simulator.scenario.document import JobEntry, RetriesEntry, TeamEntry
from makeway_simulator.scenario.history import History, RunSeen
from makeway_simulator.scenario.interventions import Stage
from makeway_simulator.scenario.invariants import Watcher
from makeway_simulator.scenario.looker import Looker
from makeway_simulator.scenario.policies import merged, policy_of
from makeway_simulator.scenario.sense import refuse_senseless
from makeway_simulator.scenario.teams import team_value
from makeway_simulator.setting import Setting
from makeway_simulator.trace import Cluster, Detail, TraceJob

_GONE_ON = frozenset({EndKind.PREEMPTED, EndKind.FAILED, EndKind.LOST})


class VirtualDriver:
    """Plays cases under a policy's document."""

    kind = "virtual"

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def play(self, case: Case) -> History:
        """Play a case. Raises ScenarioError."""
        document = merged(self._document, case.policy)
        policy = policy_of(document)
        refuse_senseless(case, policy.classes)
        nodes = {node.name: node for node in case.nodes}
        stage = Stage(case=case, document=document, policy=policy, problems=[], nodes=nodes)
        jobs, refused = _jobs(case, policy)
        looker = Looker(case=case, stage=stage, watcher=Watcher(policy=policy), refused=refused)
        # Of a job that is refused nothing else happens: its moment is looked at all the same.
        moments = [Intervention(at=at, act=lambda _: None) for at, _ in refused.values()]
        acts = [_intervention(stage, each) for each in case.actions]
        interventions = sorted([*acts, *moments], key=lambda each: each.at)
        engine = Engine(jobs, _setting(case, policy), interventions, looker.look)
        looker.record = engine.machines.accounts.record
        record = engine.run(until=case.until)
        looker.look(max(engine.machines.now, 0.0), engine.state)
        problems = [*looker.watcher.violations, *stage.problems, *_unexplained(record)]
        return History(
            until=case.until,
            snapshots=tuple(looker.snapshots),
            runs=tuple(_runs(record, case.until)),
            ended={each.job_id: each.finished_at for each in record.outcomes},
            violations=tuple(problems),
        )


def _setting(case: Case, policy: Policy) -> Setting:
    teams = dict(case.teams)
    for job in case.jobs:
        teams.setdefault(str(job.spec.get("team", TEAM)), TeamEntry())
    gpus = tuple(gpu for node in case.nodes for gpu in hardware.gpus_of(node, policy.max_shares))
    return Setting(
        cluster=Cluster(nodes=len(case.nodes), gpus_per_node=max(node.gpus for node in case.nodes)),
        policy=policy,
        teams=tuple(team_value(name, entry) for name, entry in teams.items()),
        groups=tuple(
            Group(name=name, min_available=each.min_available, max_down=each.max_down, hard=each.hard)
            for name, each in case.groups.items()
        ),
        nodes=tuple(hardware.node_value(node) for node in case.nodes),
        gpus=gpus,
        silence_seconds=case.node_timeout,
        start_seconds={node.name: node.start_seconds for node in case.nodes if node.start_seconds},
    )


def _intervention(stage: Stage, action: CaseAction) -> Intervention:
    return Intervention(at=action.at, act=lambda engine: stage.act(action, engine))


def _jobs(case: Case, policy: Policy) -> tuple[list[TraceJob], dict[str, tuple[float, Refusal]]]:
    """(jobs in order of their admission, those that the schema refuses: when, and why)."""
    jobs: list[TraceJob] = []
    refused: dict[str, tuple[float, Refusal]] = {}
    taken: set[str] = set()
    for job in case.jobs:
        asked = asked_of(job, policy)
        if isinstance(asked, Refusal):
            refused[job.name] = (job.at, asked)
            continue
        jobs.append(_trace_job(job, asked, tuple(_placed(case, job, asked, taken, policy))))
    return sorted(jobs, key=lambda each: each.submitted_at), refused


def _trace_job(job: CaseJob, asked: Job, placed: tuple[Member, ...]) -> TraceJob:
    behaviour = job.entry.behaviour
    leaves = behaviour.leaves_after
    if behaviour.unkillable or leaves == "never":
        leaves = math.inf
    return TraceJob(
        job_id=job.name,
        submitted_at=job.at,
        gpus=asked.shape.gpus * asked.shape.members,
        work_seconds=math.inf if job.dur is None else job.dur,
        class_name=asked.class_name,
        team=asked.team,
        time_limit_seconds=asked.time_limit_seconds,
        detail=Detail(
            asked=asked,
            process=Process(
                leaves_after_seconds=leaves if leaves is None else float(leaves),
                declares_done=behaviour.declares_done,
                unkillable=behaviour.unkillable,
                exit_code=behaviour.exit_code,
            ),
            retries=_retries(job.entry),
            placed=placed,
        ),
    )


def _retries(entry: JobEntry) -> Retries:
    given = entry.retries if isinstance(entry.retries, RetriesEntry) else RetriesEntry(max=entry.retries)
    return Retries(max=given.max, backoff_seconds=given.backoff, exit_codes=frozenset(given.exit_codes))


def _placed(case: Case, job: CaseJob, asked: Job, taken: set[str], policy: Policy) -> Iterator[Member]:
    """The members of a run that is there already, each on the node's first cards that nobody was placed on."""
    nodes = {node.name: node for node in case.nodes}
    gang = asked.shape.members > 1
    for name, number in (job.placed or {}).items():
        if name not in nodes:
            raise ScenarioError(f"{job.where}.placed", f"there is no node {name}")
        node = nodes[name]
        slots = policy.max_shares if node.shared else 1
        free = [gpu_id for index in range(node.gpus) if (gpu_id := f"{name}/{index}") not in taken]
        size = asked.shape.gpus if gang else number
        for member in range(number if gang else 1):
            chosen = free[member * size : (member + 1) * size]
            if len(chosen) < size:
                raise ScenarioError(f"{job.where}.placed", f"{name} has no room for it")
            taken.update(chosen)
            leases = tuple(Lease(gpu_id=gpu_id, vram_mib=node.vram_mib, slots=slots) for gpu_id in chosen)
            yield Member(node_id=name, leases=leases)


def _runs(record: Record, until: float) -> Iterator[RunSeen]:
    for each, is_open in (*((one, False) for one in record.segments), *((one, True) for one in record.open)):
        yield RunSeen(
            job=each.job_id,
            number=each.run,
            started_at=each.started_at,
            ended_at=None if is_open else each.ended_at,
            noticed_at=each.noticed_at,
            forced=each.forced,
            evicted=_was_evicted(record, each),
            gpus=each.gpus,
        )


def _was_evicted(record: Record, run: Segment) -> bool:
    """Its end, or the end that its notice will have, is that of a preemption, whatever that does to the job."""
    if run.kind is EndKind.PREEMPTED:
        return True
    noticed = any(each.victim == run.job_id and each.at == run.noticed_at for each in record.preemptions)
    return noticed and run.kind is EndKind.CANCELLED


def _unexplained(record: Record) -> Iterator[str]:
    """The second invariant, over the whole: each run but the last ended so that the job goes on."""
    of_jobs: dict[str, list[Segment]] = {}
    for each in (*record.segments, *record.open):
        of_jobs.setdefault(each.job_id, []).append(each)
    for job_id, runs in of_jobs.items():
        runs.sort(key=lambda run: run.started_at)
        for earlier, later in pairwise(runs):
            if earlier.kind not in _GONE_ON:
                yield f"{job_id} started at {later.started_at:g} though its run before was {earlier.kind} (2)"
            if later.started_at < earlier.ended_at - 1e-9:
                yield f"{job_id} has two live runs at {later.started_at:g} (2)"
