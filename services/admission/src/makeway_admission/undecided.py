"""What is said of jobs that wait while nobody decides: no scheduler is there, it hangs, or its broker is away.

The scheduler starts and preempts nothing then, so it has no reason to store; it is told from what can be seen here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar

from makeway_schemas.api import JobView
from makeway_schemas.durations import format_duration
from makeway_schemas.states import JobState

from makeway_admission.explained import has_passed, reason_as_of
from makeway_admission.reads import Record
from makeway_admission.store import Store

NOT_MET: Final = "the scheduler has not looked at it yet"
_NO_OWNER: Final = "no scheduler owns the pool: nothing is decided until one does"
_NO_ANSWER: Final = "the scheduler does not answer (no sign of life for {}): nothing is decided until it does"
_NO_BROKER: Final = "the message broker does not answer: nothing is started or preempted until it does"
_CODE: Final = "undecided"
_MOMENT: Final = timedelta(seconds=2)
"""A decision takes milliseconds; so long nobody needs to be told that there is none yet."""
_FACT_WAITS_SECONDS: Final = 5.0
_SILENT_SECONDS: Final = 10.0
"""An owner gives a sign of life every 3 seconds; one that hangs keeps its session, and with it the pool."""

ViewT = TypeVar("ViewT", bound=JobView)


async def pause_of(store: Store) -> str:
    """Why nothing is decided in the pool now; empty where it is."""
    owner = await store.pool_owner()
    if owner is None or not owner["owner"]:
        return _NO_OWNER
    silent_seconds = silence_of(owner)
    if silent_seconds is not None:
        return _NO_ANSWER.format(format_duration(round(silent_seconds)))
    waiting_seconds = await store.oldest_fact_seconds()
    return _NO_BROKER if waiting_seconds is not None and waiting_seconds > _FACT_WAITS_SECONDS else ""


def silence_of(owner: Record) -> float | None:
    """For how many seconds the pool's owner has not answered, by its row; None where it does."""
    silent_seconds: float | None = owner["silent_seconds"] if owner["owner"] else None
    return silent_seconds if silent_seconds is not None and silent_seconds > _SILENT_SECONDS else None


async def with_reasons(
    store: Store, views: Sequence[ViewT], now: datetime, *, recheck_seconds: float
) -> tuple[ViewT, ...]:
    """The jobs with their reasons as of now; those that have waited undecided for longer than a moment get one."""
    undecided = any(_is_undecided(view, now) for view in views)
    told = {"reason": await pause_of(store) or NOT_MET, "reason_code": _CODE} if undecided else {}

    def said(view: ViewT) -> ViewT:
        if _is_undecided(view, now):
            return view.model_copy(update=told)
        if has_passed(view.reason, now):
            return view.model_copy(update={"reason": reason_as_of(view.reason, now, recheck_seconds)})
        return view

    return tuple(map(said, views))


def _is_undecided(view: JobView, now: datetime) -> bool:
    since = view.queued_since or view.submitted_at
    return view.state is JobState.QUEUED and not view.reason and now - since > _MOMENT
