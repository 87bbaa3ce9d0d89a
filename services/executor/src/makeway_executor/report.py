"""The node's whole state in one message: what makes every fact that was lost on its way known after all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from makeway_runtime.devices.port import GpuInfo
from makeway_schemas.facts import GpuReport, NodeReport, PlanNumber, RunReport

from makeway_executor import clock
from makeway_executor.facts import Teller
from makeway_executor.gpu_watch import GpuWatch
from makeway_executor.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """What does not change while the executor runs."""

    teller: Teller
    pool: str
    simulated: bool
    cpus: int
    memory_mib: int
    labels: dict[str, str]
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMoment:
    """What does. `refusal` is a sentence, empty when new runs are welcome."""

    sequence: int
    applied: tuple[int, int]
    wants_plan: bool
    refusal: str


def node_report(
    identity: NodeIdentity,
    moment: NodeMoment,
    gpus: Iterable[tuple[GpuInfo, bool]],
    watch: GpuWatch,
    runs: Iterable[Run],
) -> NodeReport:
    """`gpus` are all that this executor ever saw, each with whether it is there now."""
    teller = identity.teller
    return NodeReport(
        id=f"{teller.node_id}/{teller.session}/report/{moment.sequence}",
        node_id=teller.node_id,
        session=teller.session,
        pool=identity.pool,
        boot_id=teller.boot_id,
        sequence=moment.sequence,
        plan=PlanNumber(epoch=moment.applied[0], number=moment.applied[1]),
        wants_plan=moment.wants_plan,
        simulated=identity.simulated,
        cpus=identity.cpus,
        memory_mib=identity.memory_mib,
        labels=identity.labels,
        accepts_runs=not moment.refusal,
        refusal=moment.refusal,
        version=identity.version,
        gpus=tuple(_gpu_report(info, present, watch) for info, present in gpus),
        runs=tuple(_run_report(run) for run in runs if not run.booked),
    )


def _gpu_report(info: GpuInfo, present: bool, watch: GpuWatch) -> GpuReport:
    condition, reason = watch.condition(info.uuid) if present else ("lost", "the driver does not show it any more")
    return GpuReport(
        gpu_id=info.uuid,
        index=info.index,
        type_name=info.type_name,
        vram_mib=info.vram_mib,
        reserved_mib=info.reserved_mib,
        link_group=info.link_group,
        mig_profile=info.mig_profile,
        condition=condition,
        reason=reason[:500],
    )


def _run_report(run: Run) -> RunReport:
    ack = None if run.ack is None else run.ack.model_copy(update={"age_seconds": clock.age_seconds(run.ack_ns)})
    resumed = run.resumed
    if resumed is not None:
        resumed = resumed.model_copy(update={"age_seconds": clock.age_seconds(run.resumed_ns)})
    planned = () if run.planned is None else tuple(gpu.gpu_id for gpu in run.planned.gpus)
    ended = run.end is not None
    return RunReport(
        run_id=run.run_id,
        state=run.phase.value,
        pid=run.pid,
        started_age_seconds=_age(run.started_ns),
        noticed_age_seconds=_age(run.noticed_ns),
        ack=ack,
        resumed=resumed,
        end=run.end,
        ended_age_seconds=_age(run.ended_ns),
        empty_gpus=tuple(gpu_id for gpu_id in planned if gpu_id not in run.held_gpus) if ended else (),
        held_gpus=tuple(sorted(run.held_gpus)),
    )


def _age(at_ns: int | None) -> float | None:
    return None if at_ns is None else clock.age_seconds(at_ns)
