"""Jobs that may not begin yet: those with a `begin_at`, and those that wait for their next try after an end."""

import math
from datetime import UTC, datetime

from makeway_policy.model import Job, Reason, Refusal


def is_early(job: Job, now: float) -> bool:
    """Whether the job may not begin yet."""
    return job.begin_at is not None and job.begin_at > now


def not_yet(job: Job, now: float) -> Refusal | None:
    """Why the job is not looked at yet; None where it is."""
    if job.begin_at is None or job.begin_at <= now:
        return None
    at = _moment(job.begin_at)
    return Refusal(
        reason=Reason.NOT_YET,
        sentence=f"it backs off after its last end: its next try is at {at}"
        if job.backs_off
        else f"it may begin at {at}",
        detail={"begin_at": at},
    )


def _moment(at: float) -> str:
    """A moment to the second, UTC: a length of time would be wrong a second after it is stored."""
    try:
        return datetime.fromtimestamp(math.ceil(at), UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{at:.0f} s after 1970"
