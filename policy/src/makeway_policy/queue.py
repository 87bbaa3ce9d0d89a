"""The waiting jobs in queue order, identical ones together, so that they are judged once.

A bucket holds jobs that ask for the same with the same rights; only its first is judged, and what is refused to it is
refused to all. Teams are told apart only where it matters whose a job is. Queue order: q, then (where the policy says
`fair`) the team's fair-share key, then submit time, then admission number. Among jobs whose boost is at its cap, submit
time comes before fair share.
"""

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from makeway_policy import costs, past_use, priority, quota
from makeway_policy.model import Job, Reason, Refusal
from makeway_policy.quota import is_preemptible
from makeway_policy.rules import Order, Policy
from makeway_policy.state import PoolState

_STEPS_AN_OCTAVE = 8

Entry = tuple[int, float, int, str]
"""(-q, submit time, admission number, job id): the order inside a bucket."""

Key = tuple[float, ...]
"""A place in the queue; smaller is first. Under fair order it moves with what the team uses."""

Owner = tuple[str, ...]
"""Whose a job is, as far as it matters for a judgement: (), (team,) or (team, user)."""

Lane = str | None
"""The team whose fair share has a say in a bucket's place; None where none has. In a lane entries never swap places."""


@dataclass(slots=True, eq=False)
class Bucket:
    """Identical waiting jobs, first in queue order first. `blocked` is why the first does not start; None: to judge.

    `cap` is the q at which aging ends for them (None: it adds nothing). When the last search for victims, for the job
    `searched`, found none, there had been `offers`: only what was offered since is worth searching (None: search all).
    `told` is the reason that its first jobs were told last.
    """

    key: tuple[object, ...]
    team: str
    cap: int | None = None
    entries: list[Entry] = field(default_factory=list)
    blocked: Refusal | None = None
    told: Reason | None = None
    offers: int | None = None
    searched: str | None = None
    listed_at: Key | None = None

    @property
    def head(self) -> str:
        """The id of its first job."""
        return self.entries[0][3]

    def capped(self, entry: Entry) -> bool:
        """Whether the boost of a job of it has reached its cap."""
        return -entry[0] == self.cap


class WaitingQueue:
    """All waiting jobs in buckets. `owner_of` gives whose a job is, as far as that matters."""

    def __init__(self, policy: Policy, owner_of: Callable[[Job], Owner]) -> None:
        self.buckets: dict[tuple[object, ...], Bucket] = {}
        self.place: dict[str, tuple[Bucket, Entry]] = {}
        self._of_team: dict[str, dict[tuple[object, ...], Bucket]] = {}
        self._moves: Counter[str] = Counter()
        self._policy = policy
        self._owner_of = owner_of

    def put(self, job: Job, now: float) -> Bucket | None:
        """Put a job in its place; returns its bucket if that has to be judged again, None if nothing moved."""
        place = self.place_for(job, now)
        old = self.place.get(job.job_id)
        if old is not None:
            if old[0].key == place[0].key and old[1] == place[1]:
                return None
            self.remove(job.job_id)
        bucket, entry = place
        if not bucket.entries:
            self.buckets[bucket.key] = bucket
            self._of_team.setdefault(bucket.team, {})[bucket.key] = bucket
        if not bucket.entries or bucket.entries[-1] < entry:
            bucket.entries.append(entry)
        else:
            insort(bucket.entries, entry)
        self.place[job.job_id] = (bucket, entry)
        self._moves[bucket.team] += 1
        return bucket

    def place_for(self, job: Job, now: float) -> tuple[Bucket, Entry]:
        """Where the job belongs: its bucket (a new one if there is none yet), and its entry in it."""
        key = bucket_key(job, self._policy, now, self._owner_of(job))
        bucket = self.buckets.get(key)
        if bucket is None:
            bucket = Bucket(key=key, team=job.team, cap=priority.cap_of(job, self._policy))
        q = priority.queue_value(job, self._policy, now)[0]
        return bucket, (-q, job.submitted_at, job.order, job.job_id)

    def remove(self, job_id: str) -> None:
        """Take a job out; unknown ids are ignored."""
        found = self.place.pop(job_id, None)
        if found is None:
            return
        bucket, entry = found
        self._moves[bucket.team] += 1
        # Most come last and leave first.
        first = bucket.entries[0] is entry
        del bucket.entries[0 if first else bisect_left(bucket.entries, entry)]
        if not bucket.entries:
            del self.buckets[bucket.key]
            del self._of_team[bucket.team][bucket.key]

    def buckets_of(self, team: str) -> Collection[Bucket]:
        """The team's buckets, where it matters whose a job is."""
        return self._of_team.get(team, {}).values()

    def moves_of(self, team: str) -> int:
        """How often one of the team's jobs has come, gone or moved: while it is the same, so are its buckets."""
        return self._moves[team]


class Turns:
    """Places in the queue, as keys. `fair` says whether teams' fair shares have a say, `now` when past use is asked."""

    def __init__(self, state: PoolState, policy: Policy) -> None:
        self.fair = False
        self.now = 0.0
        self._state = state
        self._policy = policy

    def orders_fairly(self) -> bool:
        """Whether fair shares are to have a say, as the policy and the teams' weights are."""
        order = self._policy.order
        return order is Order.FAIR or (order is Order.AUTO and self._state.weighs_teams)

    def share_of(self, team: str) -> tuple[float, float]:
        """The team's fair-share key now."""
        half_life = self._policy.usage_half_life_seconds
        if half_life is None:
            return quota.fair_share_key(self._state, team)
        past = past_use.average_at(self._state.past_use_of(team), self.now, half_life)
        return quota.fair_share_key(self._state, team, past)

    def lane(self, bucket: Bucket) -> Lane:
        """The lane of a bucket's first job."""
        return bucket.team if self.fair and not bucket.capped(bucket.entries[0]) else None

    def of(self, bucket: Bucket, entry: Entry | None = None) -> Key:
        """The place of a bucket's first job, or of another of its entries."""
        turn = entry or bucket.entries[0]
        return self.key(bucket.team if self.fair and not bucket.capped(turn) else None, turn)

    def of_job(self, job: Job, now: float) -> Key:
        """The place that a job has, or would have."""
        q, capped = priority.queue_value(job, self._policy, now)
        return self.key(job.team if self.fair and not capped else None, (-q, job.submitted_at, job.order, job.job_id))

    def of_run(self, run_id: str) -> Key | None:
        """The place that the job of a run would have; None if the run is gone."""
        run = self._state.runs.get(run_id)
        return None if run is None else self.of_job(self._state.jobs[run.job_id], self.now)

    def key(self, lane: Lane, entry: Entry) -> Key:
        """The place of an entry of a lane, as things are now."""
        if lane is None:
            return (entry[0], 0, 0.0, 0.0, entry[1], entry[2])
        return (entry[0], 1, *self.share_of(lane), entry[1], entry[2])


def bucket_key(job: Job, policy: Policy, now: float, owner: Owner) -> tuple[object, ...]:
    """Everything that a judgement reads from a job, but its place in the queue."""
    return (
        job.shape,
        owner,
        job.class_name,
        priority.base(job, policy),
        priority.is_aged(job, policy, now),
        is_preemptible(job, policy),
        job.preemptible,
        job.no_victims_until > now,
        job.deadline,
        _time_left(job),
        costs.grace_of(job, policy),
        len(job.preempted_at),
        job.group,
        job.labels,
        job.avoid_nodes,
        job.avoid_gpus,
        job.resume_node,
    )


def _time_left(job: Job) -> float | None:
    """What is left of the time limit; in steps of a tenth once the job has run, else each would be judged by itself."""
    if job.time_limit_seconds is None or not job.used_seconds:
        return job.time_limit_seconds
    left = max(1.0, job.time_limit_seconds - job.used_seconds)
    return math.exp2(math.ceil(math.log2(left) * _STEPS_AN_OCTAVE) / _STEPS_AN_OCTAVE)
