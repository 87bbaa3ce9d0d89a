"""What becomes of a job when a run has ended.

Order of checks (the first that holds is what happens):
 1. done, cancelled, time limit: the job has ended
 2. `requeue: false`, and the end was a preemption or a loss: the job has failed
 3. preempted: requeued at once (its daily number limits that elsewhere); with mode cancel the job has ended
 4. node lost, card lost, ours: requeued without counting, avoiding that node or card, after 0 s, then 10 s doubling;
    ten in a row without a run of 10 min: held. It is avoided for 1 min from when the job may run again, doubling to
    10 min with each in a row, and only while something else could run the job (`avoiding`)
 5. own failure: retried while its `retries` last and its exit code is among those named, with the back-off doubling
 6. own failure: the job has failed
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from makeway_policy.model import Avoidance, Mode
from makeway_policy.rules import Policy

_FIRST_DELAY_SECONDS = 10.0
_GOOD_RUN_SECONDS = 600.0
_FIRST_AVOIDED_SECONDS = 60.0
_AVOIDED_SECONDS_MAX = 600.0


class Cause(StrEnum):
    """Why a run ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"
    NODE_LOST = "node_lost"
    CARD_LOST = "card_lost"
    OURS = "ours"


class Outcome(StrEnum):
    """What becomes of the job."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    REQUEUE = "requeue"
    HELD = "held"


@dataclass(frozen=True, kw_only=True, slots=True)
class Retries:
    """A job's `retries`: how many, the first back-off, and for which exit codes (empty: for all but 0)."""

    max: int = 0
    backoff_seconds: float = 10.0
    exit_codes: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """A run's end, and what the job had behind it: its own retries, and infrastructure failures in a row."""

    cause: Cause
    exit_code: int | None = None
    ran_seconds: float = 0.0
    mode: Mode = Mode.REQUEUE
    requeue: bool = True
    retries_used: int = 0
    failures_in_a_row: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Following:
    """What follows: the outcome, a sentence, the delay before it may run again, and the new counters.

    `avoid_seconds`: how long the node or the GPU is avoided from when the job may run again.
    """

    outcome: Outcome
    sentence: str
    delay_seconds: float = 0.0
    retries_used: int = 0
    failures_in_a_row: int = 0
    avoid_node: bool = False
    avoid_gpu: bool = False
    avoid_seconds: float = 0.0


def after_end(ended: Ended, retries: Retries, policy: Policy) -> Following:
    """What becomes of the job, in the order of checks above."""
    final = _FINAL.get(ended.cause)
    if final is not None:
        return Following(outcome=final[0], sentence=final[1], retries_used=ended.retries_used)
    if ended.cause is not Cause.FAILED and not ended.requeue:
        return Following(outcome=Outcome.FAILED, sentence=f"{ended.cause}, and it asks not to be requeued")
    if ended.cause is Cause.PREEMPTED:
        return _after_preemption(ended)
    if ended.cause is Cause.FAILED:
        return _after_own_failure(ended, retries, policy)
    return _after_infrastructure(ended, policy)


def to_avoid(
    before: Avoidance, following: Following, now: float, *, nodes: Iterable[str] = (), gpus: Iterable[str] = ()
) -> Avoidance:
    """What the job avoids after an end: that of the failures in a row together, the newest last.

    `nodes` are those of the run that has ended; `gpus` those of its GPUs that were lost.
    """
    nodes, gpus = (nodes if following.avoid_node else ()), (gpus if following.avoid_gpu else ())
    if following.outcome is not Outcome.REQUEUE or not (nodes or gpus):
        return before
    in_a_row = before if following.failures_in_a_row > 1 else Avoidance()
    return Avoidance(
        nodes=_newest_last(in_a_row.nodes, nodes),
        gpus=_newest_last(in_a_row.gpus, gpus),
        until=now + following.delay_seconds + following.avoid_seconds,
    )


def _newest_last(before: Iterable[str], newest: Iterable[str]) -> tuple[str, ...]:
    added = tuple(newest)
    return (*(each for each in before if each not in added), *added)


_FINAL = {
    Cause.DONE: (Outcome.SUCCEEDED, "it is done"),
    Cause.CANCELLED: (Outcome.CANCELLED, "it was cancelled"),
    Cause.TIME_LIMIT: (Outcome.TIMED_OUT, "its time limit, summed over its runs, is used up"),
}


def _after_preemption(ended: Ended) -> Following:
    if ended.mode is Mode.CANCEL:
        return Following(outcome=Outcome.CANCELLED, sentence="preempted, and its mode is to be cancelled then")
    return Following(outcome=Outcome.REQUEUE, sentence="preempted", retries_used=ended.retries_used)


def _after_infrastructure(ended: Ended, policy: Policy) -> Following:
    in_a_row = 1 if ended.ran_seconds >= _GOOD_RUN_SECONDS else ended.failures_in_a_row + 1
    if in_a_row >= policy.infrastructure_failures_max:
        return Following(
            outcome=Outcome.HELD,
            sentence=f"{in_a_row} runs in a row were lost without a run of 10 min",
            retries_used=ended.retries_used,
            failures_in_a_row=in_a_row,
        )
    delay = 0.0 if in_a_row == 1 else _FIRST_DELAY_SECONDS * 2.0 ** (in_a_row - 2)
    return Following(
        outcome=Outcome.REQUEUE,
        sentence=f"requeued after {ended.cause}, without counting",
        delay_seconds=min(delay, policy.retry_backoff_max_seconds),
        retries_used=ended.retries_used,
        failures_in_a_row=in_a_row,
        avoid_node=ended.cause is not Cause.CARD_LOST,
        avoid_gpu=ended.cause is Cause.CARD_LOST,
        avoid_seconds=min(_FIRST_AVOIDED_SECONDS * 2.0 ** (in_a_row - 1), _AVOIDED_SECONDS_MAX),
    )


def _after_own_failure(ended: Ended, retries: Retries, policy: Policy) -> Following:
    named = not retries.exit_codes or ended.exit_code in retries.exit_codes
    if not named or ended.retries_used >= retries.max:
        return Following(
            outcome=Outcome.FAILED,
            sentence=f"it failed with exit code {ended.exit_code}",
            retries_used=ended.retries_used,
        )
    delay = retries.backoff_seconds * 2.0**ended.retries_used
    return Following(
        outcome=Outcome.REQUEUE,
        sentence=f"retry {ended.retries_used + 1} of {retries.max} after exit code {ended.exit_code}",
        delay_seconds=min(delay, policy.retry_backoff_max_seconds),
        retries_used=ended.retries_used + 1,
    )
