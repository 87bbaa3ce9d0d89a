"""What is stored with a decision to wait: from the policy's own explanation, computed by the code that decides."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from makeway_policy.choices import Choice, Wait
from makeway_policy.explain import Explanation, PossibleVictim, explain
from makeway_policy.model import Job, Reason
from makeway_policy.worst_case import worst_case_wait
from makeway_schemas.durations import format_duration

from makeway_scheduler.ledger import Ledger

MOST_EXPLAINED: Final = 4
"""A batch that lets thousands of different jobs wait explains the first of them; ``why`` tells the reason of all."""


MOST_BOUNDED: Final = 1_000
"""The longest possible wait is summed over all jobs; in a larger pool that would hold up every decision."""


def explain_waits(ledger: Ledger, choices: Sequence[Choice], now: float) -> None:
    """Explain the jobs that are told to wait; ``enact`` stores it with each decision. Alike jobs share one answer."""
    answers: dict[object, dict[str, Any]] = {}
    for choice in choices:
        if not isinstance(choice, Wait):
            continue
        job = ledger.state.jobs[choice.job_id]
        asked = (job.team, job.class_name, job.shape, job.own_priority, job.manual_priority)
        # Those that may not begin yet are told when they may.
        early = job.begin_at if choice.refusal.reason is Reason.NOT_YET else None
        alike = (*asked, job.avoid_nodes, job.avoid_gpus, choice.refusal.reason, early)
        if alike not in answers:
            if len(answers) == MOST_EXPLAINED:
                continue
            explanation = explain(ledger.state, ledger.policy, choice.job_id, now)
            bound = _worst_case(ledger, job, now)
            answers[alike] = {} if explanation is None else as_detail(explanation) | {"worst_case_wait": bound}
        ledger.batch.explanations[choice.job_id] = answers[alike]


def _worst_case(ledger: Ledger, job: Job, now: float) -> str:
    """The longest that the job may have to wait from now, or why there is no bound (law 6)."""
    if len(ledger.state.jobs) > MOST_BOUNDED:
        return f"not computed while more than {MOST_BOUNDED} jobs are in the pool"
    found = worst_case_wait(ledger.state, ledger.policy, job, now)
    return f"unbounded: {found.cause}" if found.seconds is None else format_duration(found.seconds)


def as_detail(explanation: Explanation) -> dict[str, Any]:
    """The explanation as JSON: counts of GPUs by the check they fail, who could make way and what protects them."""
    return {
        "gpus": dict(explanation.gpus),
        "possible_victims": [_victim(each) for each in explanation.possible_victims],
        "would_help": list(explanation.would_help),
        "next_look_at": _time(explanation.wakes_at),
        "expected_start": _time(explanation.expected_start) or f"none: {explanation.no_start}",
    }


def _victim(each: PossibleVictim) -> dict[str, Any]:
    guard = each.protection
    return {
        "run": each.run_id,
        "value": each.v,
        "spared": guard.sentence if guard is not None else ("" if each.rule else "it ranks too high for this job"),
        "until": None if guard is None else _time(guard.until),
    }


def _time(at: float | None) -> str | None:
    if at is None:
        return None
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        # What explains a decision must not keep it from being carried out.
        return f"{at:.0f} s after 1970"
