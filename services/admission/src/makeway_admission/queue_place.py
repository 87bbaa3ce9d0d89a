"""A job's place in the queue, by the policy's own value of every job, without reading every job.

Jobs of one class and with the same priorities differ only by when they came, and the longer one waits the higher is its
value. So the policy is asked, group by group, since when a job must have waited to be worth more than ours, or as much;
the database counts the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from makeway_policy.model import Job
from makeway_policy.priority import queue_value
from makeway_policy.rules import Policy

from makeway_admission.store import Store
from makeway_admission.views import Row

MOST_AHEAD: Final = 20
_CANDIDATES_A_GROUP: Final = 200
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """Place (1 is first) and length of the queue, and the jobs just ahead with their values, in queue order."""

    position: int
    length: int
    ahead: tuple[tuple[int, Row], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Of a group: who waits since `above` or longer is worth more than ours, since `level` at least as much."""

    above: datetime | None
    level: datetime | None


async def place_of(store: Store, job: Row, policy: Policy, now: datetime) -> QueuePlace:
    """The place of a waiting job (a row of `get_job`)."""
    groups = await store.waiting_groups()
    wanted = value_of(job, job["queued_since"], policy, now)
    cuts = [cut_of(group, wanted, policy, now) for group in groups]
    rows = await store.jobs_ahead(
        classes=[group["class_name"] for group in groups],
        own=[group["own_priority"] for group in groups],
        manual=[group["manual_priority"] for group in groups],
        above=[cut.above for cut in cuts],
        level=[cut.level for cut in cuts],
        submitted_at=job["submitted_at"],
        admission_order=job["admission_order"],
        most_a_group=_CANDIDATES_A_GROUP,
    )
    return QueuePlace(
        position=(rows[0]["jobs_ahead"] if rows else 0) + 1,
        length=sum(group["jobs"] for group in groups),
        ahead=tuple(queue_order(rows, policy, now)[-MOST_AHEAD:]),
    )


def queue_order(rows: Sequence[Row], policy: Policy, now: datetime) -> list[tuple[int, Row]]:
    """Waiting jobs with their value, first in the queue first: value, submit time, order of admission."""
    valued = [(value_of(row, row["queued_since"], policy, now), row) for row in rows]
    return sorted(valued, key=lambda each: (-each[0], each[1]["submitted_at"], each[1]["admission_order"]))


def cut_of(group: Row, value: int, policy: Policy, now: datetime) -> Cut:
    """The cut of a group (a row of `waiting_groups`) at a value."""
    return Cut(
        above=_latest_with(group, value + 1, policy, now),
        level=_latest_with(group, value, policy, now),
    )


def value_of(group: Row, since: datetime, policy: Policy, now: datetime) -> int:
    """The queue value of a job of that class and with those priorities that has waited since then."""
    job = Job(
        job_id="",
        order=0,
        team="",
        class_name=group["class_name"],
        submitted_at=since.timestamp(),
        queued_since=since.timestamp(),
        own_priority=group["own_priority"],
        manual_priority=group["manual_priority"],
    )
    return queue_value(job, policy, now.timestamp())[0]


def _latest_with(group: Row, value: int, policy: Policy, now: datetime) -> datetime | None:
    """The latest time since when a job of the group must have waited to be worth `value`; None: none of it is."""
    earliest: datetime = group["first_since"]
    latest: datetime = group["last_since"]
    if value_of(group, earliest, policy, now) < value:
        return None
    while latest > earliest:
        # Rounded up, so that the search ends; the database keeps microseconds.
        middle = earliest + (latest - earliest + _MICROSECOND) // 2
        if value_of(group, middle, policy, now) >= value:
            earliest = middle
        else:
            latest = middle - _MICROSECOND
    return earliest.astimezone(UTC)
