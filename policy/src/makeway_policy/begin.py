"""Jobs that may not begin yet: those with a `begin_at`, and those that wait for their next try after an end."""

from makeway_policy.model import Job, Reason, Refusal
from makeway_policy.moments import moment


def is_early(job: Job, now: float) -> bool:
    """Whether the job may not begin yet."""
    return job.begin_at is not None and job.begin_at > now


def not_yet(job: Job, now: float) -> Refusal | None:
    """Why the job is not looked at yet; None where it is."""
    if job.begin_at is None or job.begin_at <= now:
        return None
    at = moment(job.begin_at)
    tried_again = f"it backs off after its last end: its next try is at {at}"
    return Refusal(
        reason=Reason.NOT_YET,
        sentence=tried_again if job.backs_off else f"it may begin at {at}",
        detail={"begin_at": at},
    )
