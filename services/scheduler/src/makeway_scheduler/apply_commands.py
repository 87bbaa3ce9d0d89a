"""What somebody asks for: of a job, or as an operator of a node. Each is carried out once, and its outcome is stored.

Preempting means one run and is carried out on no other; all else means the job, whichever run it has.
An outcome that begins with ``refused: `` says why nothing was done.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from makeway_policy.evictions import preempt_by_hand
from makeway_policy.model import Avoidance, Drain, Refusal
from makeway_schemas.facts import CommandIssued, NodeCommandIssued
from makeway_schemas.states import EndCause, JobState, StopCause

from makeway_scheduler import dead_nodes, job_moves, node_notes, releases
from makeway_scheduler.ledger import Ledger
from makeway_scheduler.policies import worth
from makeway_scheduler.policy_values import synchronise
from makeway_scheduler.preempting import evict
from makeway_scheduler.records import JobRecord, NodeRecord, RunRecord
from makeway_scheduler.stops import stop_run

REFUSED: Final = "refused: "
OVERTAKEN: Final = f"{REFUSED}a newer command about the same was carried out before it"


def apply_command_issued(ledger: Ledger, fact: CommandIssued, now: float) -> None:
    """Carry out a command to a job once; its outcome is stored with its number."""
    if fact.command_id in ledger.batch.applied_commands:
        return
    job = ledger.jobs.get(fact.job_id)
    if job is None or job.ended_at is not None:
        # It is no refusal to end what has ended; a run that is to be stopped is not there any more.
        ended = "the job has ended already"
        ledger.batch.applied_commands[fact.command_id] = f"{REFUSED}{ended}" if fact.command == "preempt" else ended
        return
    if fact.command_id in ledger.overtaken:
        ledger.batch.applied_commands[fact.command_id] = OVERTAKEN
        return
    ledger.batch.applied_commands[fact.command_id] = _OF_JOB[fact.command](ledger, job, fact, now)


def apply_node_command_issued(ledger: Ledger, fact: NodeCommandIssued, now: float) -> None:
    """Carry out an operator's command to a node once."""
    if fact.command_id in ledger.batch.applied_commands:
        return
    node = ledger.nodes.get(fact.node_id)
    if fact.command_id in ledger.overtaken:
        outcome = OVERTAKEN
    elif node is None:
        outcome = f"{REFUSED}the pool has no node {fact.node_id}"
    else:
        outcome = _OF_NODE[fact.command](ledger, node, fact, now)
    ledger.batch.applied_commands[fact.command_id] = outcome


def _close(ledger: Ledger, node: NodeRecord, fact: NodeCommandIssued, _now: float) -> str:
    """Nothing new goes there; a drain also empties it, which the policy decides run by run."""
    drain = node.drain
    if fact.command == "drain":
        drain = Drain.FORCED if fact.force or drain is Drain.FORCED else Drain.GENTLY
    kind = node_notes.DRAINED if fact.command == "drain" else node_notes.CORDONED
    # A drain is more than a cordon, which then has nothing to say but a reason.
    silent = fact.command == "cordon" and drain is not Drain.NO and not fact.reason.strip()
    note = node.note if silent else node_notes.with_word(node.note, kind, fact)
    ledger.nodes.put(node.node_id, replace(node, cordoned=True, drain=drain, note=note))
    return "cordoned" if drain is Drain.NO else "draining"


def _open(ledger: Ledger, node: NodeRecord, _fact: NodeCommandIssued, now: float) -> str:
    note = node_notes.when_opened(node.note)
    ledger.nodes.put(node.node_id, replace(node, cordoned=False, drain=Drain.NO, note=note))
    releases.release_all(ledger, f"node {node.node_id} takes runs again", now)
    return "open"


def _give_up(ledger: Ledger, node: NodeRecord, fact: NodeCommandIssued, now: float) -> str:
    refused = dead_nodes.declare(ledger, node, fact, now)
    return "dead" if refused is None else f"{REFUSED}{refused}"


def _cancel(ledger: Ledger, job: JobRecord, fact: CommandIssued, now: float) -> str:
    if not job.cancel_requested:
        job = replace(job, cancel_requested=True, message=f"cancelled by {fact.issued_by}")
        ledger.jobs.put(job.job_id, job)
        ledger.tell(job, "cancel_requested", now, by=fact.issued_by)
    run = ledger.run_of(job)
    if run is None or run.ended:
        job_moves.end(ledger, job, EndCause.CANCELLED, now)
        return "cancelled"
    if run.pending:
        drop_pending(ledger, run, now)
        job_moves.end(ledger, ledger.jobs[job.job_id], EndCause.CANCELLED, now)
        return "cancelled"
    stop_run(ledger, run, StopCause.CANCEL, job_moves.grace_of(ledger, job), now)
    return "stopping"


def drop_pending(ledger: Ledger, run: RunRecord, now: float) -> None:
    """A run that never had leases, and that no node knows, ends at once, and there is nothing to wait for."""
    ledger.runs.put(
        run.run_id,
        replace(run, state=run.state.RELEASED, ended_at=now, end_cause=EndCause.NEVER_STARTED.value, leases=()),
    )


def _set_priority(ledger: Ledger, job: JobRecord, fact: CommandIssued, now: float) -> str:
    job = replace(job, manual_priority=fact.priority)
    ledger.jobs.put(job.job_id, job)
    run = ledger.run_of(job)
    if run is not None and not run.ended:
        ledger.runs.put(run.run_id, replace(run, value=worth(ledger, job, run)))
    elif job.state is JobState.HELD:
        return "stored; the job is held"
    ledger.tell(job, "priority", now, priority=fact.priority, by=fact.issued_by)
    return "set"


def _preempt(ledger: Ledger, job: JobRecord, fact: CommandIssued, now: float) -> str:
    other = _other_run(ledger, job, fact.run)
    if other is not None:
        return f"{REFUSED}{other}"
    # The policy's state has to know what this batch has told so far: a run that has just started is asked about.
    synchronise(ledger, now)
    answer = preempt_by_hand(ledger.state, ledger.policy, job.job_id, now, force=fact.force)
    if isinstance(answer, Refusal):
        return f"{REFUSED}{answer.sentence}"
    answer = replace(answer, explanation=f"{answer.explanation}; asked for by {fact.issued_by}")
    evict(ledger, answer, now)
    return "stopping"


def _other_run(ledger: Ledger, job: JobRecord, meant: int | None) -> str | None:
    """Why the run that is meant is none to stop: a repeated or late command must not meet the job's next run."""
    if meant is None:  # told by an admission that named no run yet
        return None
    if meant == 0:
        return "it had no run when this was asked for"
    if meant > job.run_number:
        return f"it has had no run {meant} yet"
    run = ledger.run_of(job)
    return f"run {meant} has ended already" if meant < job.run_number or run is None or run.ended else None


def _resume(ledger: Ledger, job: JobRecord, fact: CommandIssued, now: float) -> str:
    if job.state is not JobState.HELD:
        return f"{REFUSED}it is not held"
    job = replace(job, infrastructure_failures=0, avoidance=Avoidance())
    releases.release(ledger, job, f"resumed by {fact.issued_by}", now)
    return "queued"


def _set_limits(ledger: Ledger, job: JobRecord, fact: CommandIssued, now: float) -> str:
    """A run that is there gets its new limit with the next plan; a deadline that was met by a start stays met."""
    if "deadline" in fact.limits and job.first_started_at is not None:
        return f"{REFUSED}it has started, which met its deadline"
    limits: dict[str, float | None] = {str(name): value for name, value in fact.limits.items()}
    job = replace(job, amendments={**job.amendments, **limits})
    ledger.jobs.put(job.job_id, job)
    run = ledger.run_of(job)
    if run is not None and not run.ended:
        ledger.batch.plans_for.add(run.node_id)
    ledger.tell(job, "limits", now, by=fact.issued_by, limits=limits)
    return "set"


_OF_NODE: Final[Mapping[str, Callable[[Ledger, NodeRecord, NodeCommandIssued, float], str]]] = MappingProxyType(
    {"cordon": _close, "drain": _close, "uncordon": _open, "dead": _give_up}
)
_OF_JOB: Final[Mapping[str, Callable[[Ledger, JobRecord, CommandIssued, float], str]]] = MappingProxyType(
    {
        "cancel": _cancel,
        "set_priority": _set_priority,
        "preempt": _preempt,
        "resume": _resume,
        "set_limits": _set_limits,
    }
)
