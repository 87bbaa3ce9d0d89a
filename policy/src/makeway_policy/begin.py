"""Jobs that may not begin yet: those with a `begin_at`, and those that wait for their next try after an end."""

from makeway_policy.model import Job, Reason, Refusal


def is_early(job: Job, now: float) -> bool:
    """Whether the job may not begin yet."""
    return job.begin_at is not None and job.begin_at > now


def not_yet(job: Job, now: float) -> Refusal | None:
    """Why the job is not looked at yet; None where it is."""
    if job.begin_at is None or job.begin_at <= now:
        return None
    return Refusal(
        reason=Reason.NOT_YET,
        sentence=f"it may begin in {_span(job.begin_at - now)}",
        detail={"begin_at": f"{job.begin_at:.3f}"},
    )


def _span(seconds: float) -> str:
    """A length of time in the largest unit of which there are two or more."""
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
