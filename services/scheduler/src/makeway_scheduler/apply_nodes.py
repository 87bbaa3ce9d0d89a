"""Facts about nodes: their reports, and their silence.

A report is the level-triggered twin of all other facts of a node: it repeats what is not settled, so that a lost
message, or a broker that lost everything, costs a few seconds and nothing else.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import structlog
from makeway_schemas.facts import GpuHealthChanged, GpuReport, NodeReport, RunReport
from makeway_schemas.states import CARD_FAULT, NodeState

from makeway_scheduler import apply_ends, apply_runs, emptying, job_moves, node_notes, releases
from makeway_scheduler.ledger import Ledger
from makeway_scheduler.records import GpuRecord, NodeRecord

_LOG: Final = structlog.get_logger(__name__)

SILENCE_SECONDS: Final = 15.0
_WELL_AGAIN: Final = "it is well again, and its node has not said yet whether it is empty"


def apply_node_report(ledger: Ledger, fact: NodeReport, now: float) -> None:
    """Register the node and its GPUs, book what its runs did, and see whether it needs its plan again."""
    known = ledger.nodes.get(fact.node_id)
    if known is not None and fact.session < known.session and fact.boot_id == known.boot_id:
        # Nothing of it counts any more; the newer one reports for the node. What is read again is full of such reports.
        tell = _LOG.debug if ledger.replays else _LOG.warning
        tell("a report of an executor that a newer one has replaced is ignored", node=fact.node_id)
        return
    if known is not None and known.state is not NodeState.READY and ledger.replays:
        return  # what it said before it fell silent brings nobody back: if it is there, it reports within seconds
    node = _node_of(fact, known, now)
    if node != known:
        ledger.nodes.put(node.node_id, node)
    if known is None or known.boot_id != node.boot_id or known.state is NodeState.DEAD:
        releases.release_all(ledger, f"node {node.node_id} has come", now)
    _apply_gpus(ledger, fact, known)
    for report in fact.runs:
        _apply_run_report(ledger, fact.node_id, report, now)
    _see_strays(ledger, fact)
    if known is None or known.state is not NodeState.READY:
        _tell_jobs(ledger, fact.node_id, now)
    _see_plan(ledger, fact, ledger.nodes[fact.node_id])


def _node_of(fact: NodeReport, known: NodeRecord | None, now: float) -> NodeRecord:
    base = known or NodeRecord(node_id=fact.node_id, session=fact.session, boot_id=fact.boot_id, state_since=now)
    return replace(
        base,
        note=node_notes.when_heard(base.note),
        session=fact.session,
        boot_id=fact.boot_id,
        state=NodeState.READY,
        state_since=base.state_since if base.state is NodeState.READY else now,
        accepts_runs=fact.accepts_runs,
        refusal=fact.refusal,
        simulated=fact.simulated,
        cpus=fact.cpus,
        memory_mib=fact.memory_mib,
        labels=fact.labels,
        agent_version=fact.version,
    )


def _apply_gpus(ledger: Ledger, fact: NodeReport, before: NodeRecord | None) -> None:
    comes_back = before is None or before.state is not NodeState.READY
    same_boot = before is not None and before.boot_id == fact.boot_id
    left = _left_behind(ledger, fact)
    for report in fact.gpus:
        known = ledger.gpus.get(report.gpu_id)
        reason = left.get(report.gpu_id)
        # Of a node that was heard all the time, a report from before a run was booked says that it is still there.
        untouched = comes_back or (known is not None and known.reason in (reason, _WELL_AGAIN))
        if reason and report.condition == "ok" and untouched:
            report = report.model_copy(update={"condition": "occupied", "reason": reason})
        if known is not None and same_boot and _has_failed(known, fact.node_id) and report.condition != "lost":
            report = report.model_copy(update={"condition": known.condition, "reason": known.reason})
        if known is not None and known.node_id != fact.node_id and _is_live(ledger, known.node_id):
            continue  # a GPU belongs to one live node; the other one keeps it
        slots = ledger.policy.max_shares if known is None else slots_of(ledger, known)
        gpu = _gpu_of(report, known, fact.node_id, slots)
        if gpu != known:
            ledger.gpus.put(gpu.gpu_id, gpu)
    reported = {report.gpu_id for report in fact.gpus}
    for known in list(ledger.gpus):
        if known.node_id == fact.node_id and known.gpu_id not in reported and known.condition != "lost":
            gone = replace(known, condition="lost", reason="absent from its node's newest report")
            ledger.gpus.put(known.gpu_id, gone)


def _gpu_of(report: GpuReport, known: GpuRecord | None, node_id: str, slots: int) -> GpuRecord:
    return GpuRecord(
        gpu_id=report.gpu_id,
        node_id=node_id,
        index=report.index,
        type_name=report.type_name,
        capacity_mib=max(0, report.vram_mib - report.reserved_mib),
        reserved_mib=report.reserved_mib,
        capacity_slots=slots,
        mig_profile=report.mig_profile,
        link_group=report.link_group,
        condition=report.condition,
        cordoned=known.cordoned if known is not None else False,
        reason=report.reason,
        version=known.version if known is not None else 0,
    )


def slots_of(ledger: Ledger, gpu: GpuRecord) -> int:
    """How many may share a card: as the policy says, but while somebody is on it, whose part is of the old number."""
    return gpu.capacity_slots if ledger.state.runs_on_gpu(gpu.gpu_id) else ledger.policy.max_shares


def _is_live(ledger: Ledger, node_id: str) -> bool:
    node = ledger.nodes.get(node_id)
    return node is not None and node.state is NodeState.READY


def _apply_run_report(ledger: Ledger, node_id: str, report: RunReport, now: float) -> None:
    run = ledger.runs.get(report.run_id)
    if run is None or run.node_id != node_id:
        return
    if report.started_age_seconds is not None:
        apply_runs.note_started(ledger, run, now - report.started_age_seconds, now, pid=report.pid)
    if report.noticed_age_seconds is not None:
        apply_runs.note_noticed(ledger, ledger.runs[run.run_id], now - report.noticed_age_seconds, now)
    if report.ack is not None:
        apply_runs.note_ack(ledger, ledger.runs[run.run_id], report.ack, now)
    if report.resumed is not None:
        apply_runs.note_resumed(ledger, ledger.runs[run.run_id], report.resumed, now)
    if report.end is not None:
        ended_at = now - (report.ended_age_seconds or 0.0)
        apply_ends.note_exited(ledger, ledger.runs[run.run_id], report.end, now, ended_at=ended_at)
        for gpu_id in report.empty_gpus:
            emptying.release(ledger, run.run_id, gpu_id, now)
        for gpu_id in _quarantined(ledger, run.run_id):
            emptying.release(ledger, run.run_id, gpu_id, now)
        emptying.settle_released(ledger, run.run_id, now)


def _see_strays(ledger: Ledger, fact: NodeReport) -> None:
    """A node that returns may still run what was replaced meanwhile: it is told to stop it, its result is ignored."""
    strays = frozenset(
        report.run_id for report in fact.runs if report.state != "ended" and _is_stray(ledger, fact, report)
    )
    told = ledger.batch.strays.get(fact.node_id, ledger.strays.get(fact.node_id, frozenset()))
    if strays != told:
        ledger.batch.strays[fact.node_id] = strays
        ledger.batch.plans_for.add(fact.node_id)


def _left_behind(ledger: Ledger, fact: NodeReport) -> dict[str, str]:
    """The GPUs that runs hold which are none of ours any more, and what is said of each."""
    return {
        gpu_id: f"run {run.run_id}, which was given up, is still there and is told to stop"
        for run in fact.runs
        if _is_stray(ledger, fact, run)
        for gpu_id in run.held_gpus
    }


def _is_stray(ledger: Ledger, fact: NodeReport, report: RunReport) -> bool:
    run = ledger.runs.get(report.run_id)
    return run is None or run.node_id != fact.node_id


def _quarantined(ledger: Ledger, run_id: str) -> list[str]:
    """GPUs of an ended run that are not empty and quarantined: nothing is placed there, so the lease may go."""
    return [
        lease.gpu_id
        for lease in ledger.runs[run_id].leases
        if (gpu := ledger.gpus.get(lease.gpu_id)) is not None and gpu.condition in ("quarantined", "lost")
    ]


def _see_plan(ledger: Ledger, fact: NodeReport, node: NodeRecord) -> None:
    if fact.plan.epoch > ledger.epoch:
        ledger.epoch_heard = max(ledger.epoch_heard, fact.plan.epoch)
    elif fact.plan.epoch == ledger.epoch and fact.plan.number > node.plan_number:
        node = replace(node, plan_number=fact.plan.number)
        ledger.nodes.put(node.node_id, node)
        ledger.batch.plans_for.add(node.node_id)
    newest = fact.plan.epoch == ledger.epoch and fact.plan.number == node.plan_number
    if not newest or fact.wants_plan or node.plan_session != fact.session:
        ledger.batch.plans_for.add(node.node_id)


def apply_gpu_health_changed(ledger: Ledger, fact: GpuHealthChanged, now: float) -> None:
    """Telemetry saw a card fail: nothing new is placed there until it says otherwise, or the node has booted anew."""
    gpu = ledger.gpus.get(fact.gpu_id)
    if gpu is None or gpu.node_id != fact.node_id or gpu.condition == "lost":
        return
    if not fact.healthy:
        ledger.gpus.put(gpu.gpu_id, replace(gpu, condition="quarantined", reason=f"{CARD_FAULT}{fact.reason}"))
    elif _has_failed(gpu, fact.node_id):
        ledger.gpus.put(gpu.gpu_id, replace(gpu, reason=_WELL_AGAIN))


def _has_failed(gpu: GpuRecord, node_id: str) -> bool:
    return gpu.node_id == node_id and gpu.condition == "quarantined" and gpu.reason.startswith(CARD_FAULT)


def silent_nodes(ledger: Ledger, heard_at: Mapping[str, float], steady_now: float) -> list[str]:
    """The nodes that were READY and have not been heard for too long, on the owner's steady clock."""
    return [
        node.node_id
        for node in ledger.nodes
        if node.state is NodeState.READY and steady_now - heard_at.get(node.node_id, steady_now) > SILENCE_SECONDS
    ]


def apply_silence(ledger: Ledger, node_id: str, now: float) -> None:
    """A node is silent: it and its runs are UNKNOWN, which is not failed. Nothing is placed there."""
    node = ledger.nodes.get(node_id)
    if node is None or node.state is not NodeState.READY:
        return
    ledger.nodes.put(node_id, replace(node, state=NodeState.UNKNOWN, state_since=now))
    _tell_jobs(ledger, node_id, now)


def _tell_jobs(ledger: Ledger, node_id: str, now: float) -> None:
    for policy_run in ledger.state.runs_on_node(node_id):
        job_moves.follow(ledger, policy_run.job_id, now)
