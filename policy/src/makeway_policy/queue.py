"""The waiting jobs in queue order, identical ones together, so that they are judged once.

A bucket holds jobs that ask for the same with the same rights; only its first is judged, and what is refused to it is
refused to all. Queue order: q, then (where the policy says `fair`) the team's fair-share key, then submit time, then
admission number. Among jobs whose boost is at its cap, submit time comes before fair share.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from makeway_policy import priority
from makeway_policy.model import Job, Reason, Refusal
from makeway_policy.quota import is_preemptible
from makeway_policy.rules import Policy

Entry = tuple[int, float, int, str]
"""(-q, submit time, admission number, job id): the order inside a bucket."""


@dataclass(slots=True, eq=False)
class Bucket:
    """Identical waiting jobs, first in queue order first. `blocked` is why the first does not start; None: to judge.

    `hints` are the only nodes worth searching for victims since the last search found none (None: search all).
    `told` is the reason that its first jobs were told last.
    """

    key: tuple[object, ...]
    team: str
    entries: list[Entry] = field(default_factory=list)
    blocked: Refusal | None = None
    capped: bool = False
    told: Reason | None = None
    hints: set[str] | None = None

    @property
    def head(self) -> str:
        """The id of its first job."""
        return self.entries[0][3]


class WaitingQueue:
    """All waiting jobs in buckets."""

    def __init__(self) -> None:
        self.buckets: dict[tuple[object, ...], Bucket] = {}
        self.place: dict[str, tuple[Bucket, Entry]] = {}

    def put(self, job: Job, policy: Policy, now: float) -> Bucket | None:
        """Put a job in its place; returns its bucket if that has to be judged again, None if nothing moved."""
        key = bucket_key(job, policy, now)
        q, capped = priority.queue_value(job, policy, now)
        entry = (-q, job.submitted_at, job.order, job.job_id)
        old = self.place.get(job.job_id)
        if old is not None:
            if old[0].key == key and old[1] == entry:
                return None
            self.remove(job.job_id)
        bucket = self.buckets.get(key)
        if bucket is None:
            bucket = self.buckets[key] = Bucket(key=key, team=job.team, capped=capped)
        insort(bucket.entries, entry)
        self.place[job.job_id] = (bucket, entry)
        if bucket.entries[0] is entry:
            bucket.capped = capped
        return bucket

    def remove(self, job_id: str) -> None:
        """Take a job out; unknown ids are ignored."""
        found = self.place.pop(job_id, None)
        if found is None:
            return
        bucket, entry = found
        del bucket.entries[bisect_left(bucket.entries, entry)]
        if not bucket.entries:
            del self.buckets[bucket.key]


def bucket_key(job: Job, policy: Policy, now: float) -> tuple[object, ...]:
    """Everything that a judgement reads from a job, but its place in the queue."""
    return (
        job.shape,
        job.team,
        job.user,
        job.class_name,
        priority.base(job, policy),
        priority.is_aged(job, policy, now),
        is_preemptible(job, policy),
        job.no_victims_until > now,
        job.deadline,
        job.time_limit_seconds,
        job.group,
        job.labels,
        job.avoid_nodes,
        job.avoid_gpus,
        job.resume_node,
    )
