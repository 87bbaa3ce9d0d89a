"""Builders for the executor's unit tests: what a test does not care about has a default."""

from __future__ import annotations

from typing import Any

from makeway_executor.reconcile import KnownRun, Phase
from makeway_schemas.ids import job_of
from makeway_schemas.plans import Launch, LeasedGpu, NodePlan, PlannedRun, Stop, Verb
from makeway_schemas.states import StopCause

SESSION = "this session"


def run_id(number: int) -> str:
    """A well-formed run id for a test's n-th job."""
    return f"{number:012d}.1"


def planned(number: int, verb: Verb = Verb.RUN, *, gpu: str = "GPU-0", whole: bool = True, **fields: Any) -> PlannedRun:
    """A run on one card."""
    defaults: dict[str, Any] = {
        "run_id": run_id(number),
        "job_id": job_of(run_id(number)),
        "verb": verb,
        "gpus": (LeasedGpu(gpu_id=gpu, vram_mib=1000, whole=whole),),
        "launch": Launch(command=("true",)),
        "stop": Stop(cause=StopCause.PREEMPT, grace_seconds=5) if verb is Verb.STOP else None,
    }
    return PlannedRun(**{**defaults, **fields})


def plan(*runs: PlannedRun, epoch: int = 1, number: int = 1, session: str = SESSION) -> NodePlan:
    """A plan for this session."""
    return NodePlan(node_id="node-a", epoch=epoch, number=number, session=session, runs=runs)


def known(phase: Phase, run: PlannedRun, *, held: bool | None = None) -> KnownRun:
    """A known run; it holds its cards while it may be alive, unless `held` says otherwise."""
    holds = phase not in (Phase.WAITING, Phase.ENDED) if held is None else held
    return KnownRun(
        phase=phase, planned=run, held_gpus=frozenset(gpu.gpu_id for gpu in run.gpus) if holds else frozenset()
    )
