"""Telling victims to leave: each gets its record, its stop and its event, whoever or whatever makes it go."""

from dataclasses import dataclass, replace

from makeway_policy.choices import Evict, Victim
from makeway_policy.model import Trigger
from makeway_schemas.states import StopCause

from makeway_scheduler.ledger import Ledger
from makeway_scheduler.records import RunRecord
from makeway_scheduler.stops import stop_run


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """What makes a victim go: for which run (None: by hand, or because its node is drained), and by which rule."""

    trigger: Trigger
    rule: str
    run: RunRecord | None = None


def note_preemption(
    ledger: Ledger, victim: RunRecord, cost_gpu_seconds: float, reason: Reason, now: float
) -> RunRecord:
    """Begin the record of a preemption; returns the victim, which knows what made it one."""
    ledger.batch.new_preemptions.append(
        {
            "preemptor_job": None if reason.run is None else reason.run.job_id,
            "preemptor_run": None if reason.run is None else reason.run.run_id,
            "victim_job": victim.job_id,
            "victim_run": victim.run_id,
            "trigger": reason.trigger.value,
            "rule": reason.rule,
            "preemptor_value": None if reason.run is None else reason.run.value,
            "victim_value": victim.value,
            "expected_cost": cost_gpu_seconds,
            "gpu_count": len(victim.placement),
            "decided_at": now,
        }
    )
    victim = replace(victim, stop_trigger=reason.trigger.value)
    ledger.runs.put(victim.run_id, victim)
    return victim


def stop_victim(ledger: Ledger, victim: Victim, reason: Reason, now: float) -> None:
    """Commit a victim's stop, with the record of its preemption."""
    run = note_preemption(ledger, ledger.runs[victim.run_id], victim.cost_gpu_seconds, reason, now)
    stop_run(ledger, run, StopCause.PREEMPT, victim.grace_seconds, now)
    ledger.tell(
        ledger.jobs[victim.job_id], "preempted", now, by=None if reason.run is None else reason.run.job_id,
        trigger=reason.trigger.value, grace_seconds=victim.grace_seconds,
        expected_cost_gpu_seconds=round(victim.cost_gpu_seconds, 3),
    )  # fmt: skip


def evict(ledger: Ledger, choice: Evict, now: float) -> None:
    """A run leaves for nobody's sake; why is stored with its job."""
    stop_victim(ledger, choice.victim, Reason(trigger=choice.trigger, rule=choice.trigger.value), now)
    ledger.batch.decisions.append(
        {
            "job_id": choice.job_id,
            "decided_at": now,
            "choice": "evict",
            "reason_code": choice.trigger.value,
            "reason": choice.explanation,
            "detail": {"cost_gpu_seconds": round(choice.victim.cost_gpu_seconds, 3)},
        }
    )
