"""A node's plan, made from its unreleased runs. Complete and numbered; made anew whenever the node needs it."""

from typing import Final

from makeway_schemas.ids import job_of
from makeway_schemas.job_spec import PreemptionMode
from makeway_schemas.plans import Launch, LeasedGpu, NodePlan, PlannedRun, Stop, Verb
from makeway_schemas.states import StopCause

from makeway_scheduler import job_moves
from makeway_scheduler.ledger import Ledger
from makeway_scheduler.records import JobRecord, NodeRecord, RunRecord

_SHORTEST_LIMIT_SECONDS: Final = 0.001
_STRAY_GRACE_SECONDS: Final = 30.0

_Key = tuple[object, ...]


class PlanMaker:
    """Makes plans as JSON. A run's part changes seldom and is kept, so that a plan costs what changed."""

    def __init__(self) -> None:
        """Nothing is kept yet."""
        self._parts: dict[str, tuple[_Key, bytes]] = {}

    def make(self, ledger: Ledger, node: NodeRecord) -> bytes:
        """The plan of a node, with its present number, as the value of a message."""
        runs = [
            run
            for policy_run in ledger.state.runs_on_node(node.node_id)
            if (run := ledger.runs.get(policy_run.run_id)) is not None and not run.pending and not run.released
        ]
        head = NodePlan(
            node_id=node.node_id, epoch=ledger.epoch, number=node.plan_number, session=node.plan_session
        ).model_dump_json(exclude={"runs"})
        strays = sorted(ledger.strays.get(node.node_id, ()))
        parts = b",".join([*(self._part(ledger, run) for run in runs), *(_stray(ledger, run_id) for run_id in strays)])
        return head[:-1].encode() + b',"runs":[' + parts + b"]}"

    def forget(self, run_ids: list[str]) -> None:
        """Runs that are released need no part any more."""
        for run_id in run_ids:
            self._parts.pop(run_id, None)

    def _part(self, ledger: Ledger, run: RunRecord) -> bytes:
        limit = None if run.ended else ledger.jobs[run.job_id].time_limit
        started = run.started_at is not None
        key = (run.stop_cause, run.stop_grace_seconds, run.ended, run.after, run.withdrawing, limit, started)
        kept = self._parts.get(run.run_id)
        if kept is not None and kept[0] == key:
            return kept[1]
        part = planned_run(ledger, run).model_dump_json(exclude_none=True, exclude_defaults=True).encode()
        self._parts[run.run_id] = (key, part)
        return part


def _stray(ledger: Ledger, run_id: str) -> bytes:
    """What is to go that no run of ours is any more: as its job wished, where the job is known."""
    job = ledger.jobs.get(job_of(run_id))
    grace = _STRAY_GRACE_SECONDS if job is None else job_moves.grace_of(ledger, job)
    stop = Stop(cause=StopCause.CANCEL, grace_seconds=grace)
    if job is not None:
        stop = stop.model_copy(update={"signal": job.spec.preemption.signal})
    run = PlannedRun(run_id=run_id, job_id=job_of(run_id), verb=Verb.STOP, gpus=(), stop=stop)
    return run.model_dump_json(exclude_none=True).encode()


def planned_run(ledger: Ledger, run: RunRecord) -> PlannedRun:
    """A run's part of its node's plan."""
    job = ledger.jobs[run.job_id]
    gpus = tuple(_leased(ledger, lease.gpu_id, lease.vram_mib) for lease in run.placement)
    if run.stop_cause is not None or run.ended:
        return PlannedRun(
            run_id=run.run_id,
            job_id=run.job_id,
            verb=Verb.STOP,
            gpus=gpus,
            stop=Stop(
                cause=run.stop_cause or StopCause.CANCEL,
                grace_seconds=run.stop_grace_seconds or 0.0,
                signal=job.spec.preemption.signal,
            ),
        )
    if run.withdrawing:
        return PlannedRun(run_id=run.run_id, job_id=run.job_id, verb=Verb.WITHDRAW, gpus=gpus)
    return PlannedRun(
        run_id=run.run_id,
        job_id=run.job_id,
        verb=Verb.RUN,
        gpus=gpus,
        after=tuple(sorted(run.after)),
        launch=Launch(
            command=job.spec.command,
            script=job.spec.script,
            working_dir=job.spec.working_dir,
            env=job.spec.env,
        ),
        grace_seconds=job_moves.grace_of(ledger, job),
        signal=job.spec.preemption.signal,
        time_limit_seconds=_time_left(job),
        started=run.started_at is not None,
        checkpoint=job_moves.mode_of(ledger, job) is PreemptionMode.CHECKPOINT,
        traceparent=run.traceparent,
    )


def _leased(ledger: Ledger, gpu_id: str, vram_mib: int) -> LeasedGpu:
    gpu = ledger.gpus.get(gpu_id)
    return LeasedGpu(gpu_id=gpu_id, vram_mib=vram_mib, whole=gpu is None or vram_mib >= gpu.capacity_mib)


def _time_left(job: JobRecord) -> float | None:
    if job.time_limit is None:
        return None
    return max(_SHORTEST_LIMIT_SECONDS, job.time_limit - job.used_seconds)
