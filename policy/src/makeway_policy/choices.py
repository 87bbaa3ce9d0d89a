"""What `decide` chose: an ordered tuple of values that the caller writes down and carries out.

Each choice is already applied to the state when `decide` returns, so the new jobs and runs can be read there too.
"""

from collections.abc import Mapping
from dataclasses import field

from makeway_policy.copies import value
from makeway_policy.model import Member, Mode, Refusal, Run, StopCause, Trigger


@value(frozen=True, kw_only=True, slots=True)
class Start:
    """A run without new victims: LIVE, or NEXT (PENDING) where it follows runs that leave anyway (`run.after`)."""

    job_id: str
    run: Run
    explanation: Mapping[str, str] = field(default_factory=dict)


@value(frozen=True, kw_only=True, slots=True)
class Victim:
    """A run that is told to stop. `mode` says what becomes of its job.

    `counts`: whether it counts in the daily number of the job's preemptions.
    """

    run_id: str
    job_id: str
    mode: Mode
    cause: StopCause
    grace_seconds: float
    cost_gpu_seconds: float
    counts: bool = True


@value(frozen=True, kw_only=True, slots=True)
class Preempt:
    """A run that needs victims: NEXT on its whole placement, free GPUs included, behind `run.after`.

    Where it takes over another job's hold, that job's NEXT run is among `stopped_holds`: it is told to stop and stays
    NEXT until its end is booked, so this run is PENDING (no leases) and a later `Grant` gives it leases.
    `explanation` says who was considered and who was spared, and why.
    """

    job_id: str
    run: Run
    victims: tuple[Victim, ...]
    stopped_holds: tuple[str, ...]
    trigger: Trigger
    rule: str
    cost_gpu_seconds: float
    explanation: Mapping[str, str]


@value(frozen=True, kw_only=True, slots=True)
class Evict:
    """A run is told to stop for nobody's sake: by hand, or because its node is drained. Its job is put back.

    `explanation` says why, and what protected it where that was overruled.
    """

    job_id: str
    victim: Victim
    trigger: Trigger
    explanation: str


@value(frozen=True, kw_only=True, slots=True)
class Grant:
    """A PENDING run gets its leases: the same run, now NEXT (behind `run.after`) or LIVE."""

    job_id: str
    run: Run


@value(frozen=True, kw_only=True, slots=True)
class Withdraw:
    """A hold ends: its run is to be stopped if it has not started. PENDING runs are gone at once.

    `no_victims_until` and `failed_holds` are the job's new back-off (unchanged where the hold only moves). `to` is what
    is kept for the job on other GPUs until the end is booked and it is decided again.
    """

    job_id: str
    run_id: str
    cause: StopCause
    no_victims_until: float
    failed_holds: int
    to: tuple[Member, ...] = ()


@value(frozen=True, kw_only=True, slots=True)
class Stop:
    """A run is told to stop for its own sake (time limit, deadline, a start that takes too long), with its job's grace.

    `no_victims_until` and `failed_holds` are the job's new back-off where its start took too long (cause OURS).
    """

    job_id: str
    run_id: str
    cause: StopCause
    grace_seconds: float
    no_victims_until: float = 0.0
    failed_holds: int = 0


@value(frozen=True, kw_only=True, slots=True)
class Expire:
    """A waiting job has missed its `deadline` or `max_wait` and ends (state EXPIRED)."""

    job_id: str
    refusal: Refusal


@value(frozen=True, kw_only=True, slots=True)
class Reclass:
    """A waiting job is degraded to a lower class, or promoted as if aged, because it is overdue.

    `limit` is the one that has passed, `deadline` or `max_wait`: it acts once. `own_priority` is what the job keeps of
    its own value.
    """

    job_id: str
    class_name: str
    promoted: bool
    limit: str
    own_priority: int | None


@value(frozen=True, kw_only=True, slots=True)
class Wait:
    """A job does not start now, for a reason that differs from its stored one.

    `unsatisfiable`: nothing registered could ever run it (state UNSATISFIABLE); a later `Wait` without it says that it
    can be satisfied again (state QUEUED).
    """

    job_id: str
    refusal: Refusal
    unsatisfiable: bool = False


Choice = Start | Preempt | Evict | Grant | Withdraw | Stop | Expire | Reclass | Wait


@value(frozen=True, kw_only=True, slots=True)
class Decisions:
    """What one call chose, in order, and when time alone will change something next (None: never)."""

    choices: tuple[Choice, ...]
    next_wake: float | None
