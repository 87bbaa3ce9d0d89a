"""What is stored with a decision to wait: from the policy's own explanation, computed by the code that decides."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from makeway_policy.choices import Choice, Wait
from makeway_policy.explain import Explanation, PossibleVictim, explain

from makeway_scheduler.ledger import Ledger

MOST_EXPLAINED: Final = 20
"""A batch that lets thousands wait for one reason explains the first of them."""


def explain_waits(ledger: Ledger, choices: Sequence[Choice], now: float) -> None:
    """Explain the jobs that are told to wait; ``enact`` stores it with each decision."""
    waits = [choice.job_id for choice in choices if isinstance(choice, Wait)]
    for job_id in waits[:MOST_EXPLAINED]:
        explanation = explain(ledger.state, ledger.policy, job_id, now)
        if explanation is not None:
            ledger.batch.explanations[job_id] = as_detail(explanation)


def as_detail(explanation: Explanation) -> dict[str, Any]:
    """The explanation as JSON: counts of GPUs by the check they fail, who could make way and what protects them."""
    return {
        "gpus": dict(explanation.gpus),
        "possible_victims": [_victim(each) for each in explanation.possible_victims],
        "would_help": list(explanation.would_help),
        "next_look_at": _time(explanation.wakes_at),
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
