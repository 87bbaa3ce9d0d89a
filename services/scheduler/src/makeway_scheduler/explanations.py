"""What is stored with a decision to wait: from the policy's own explanation, computed by the code that decides."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from makeway_policy.choices import Choice, Wait
from makeway_policy.explain import Explanation, PossibleVictim, explain

from makeway_scheduler.ledger import Ledger

MOST_EXPLAINED: Final = 4
"""A batch that lets thousands of different jobs wait explains the first of them; ``why`` tells the reason of all."""


def explain_waits(ledger: Ledger, choices: Sequence[Choice], now: float) -> None:
    """Explain the jobs that are told to wait; ``enact`` stores it with each decision. Alike jobs share one answer."""
    answers: dict[object, dict[str, Any]] = {}
    for choice in choices:
        if not isinstance(choice, Wait):
            continue
        job = ledger.state.jobs[choice.job_id]
        alike = (job.team, job.class_name, job.shape, job.own_priority, job.manual_priority, choice.refusal.reason)
        if alike not in answers:
            if len(answers) == MOST_EXPLAINED:
                continue
            explanation = explain(ledger.state, ledger.policy, choice.job_id, now)
            answers[alike] = {} if explanation is None else as_detail(explanation)
        ledger.batch.explanations[choice.job_id] = answers[alike]


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
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
