"""What stopping a run costs, in GPU-seconds: the work that is lost, and the restart, weighted by progress."""

from makeway_policy.model import Job, Run
from makeway_policy.priority import class_of
from makeway_policy.rules import Policy


def cost_of(job: Job, run: Run, policy: Policy, now: float) -> float:
    """GPU-seconds lost if the run is stopped now."""
    return gpus_of(run) * lost_seconds(job, run, policy, now)


def lost_seconds(job: Job, run: Run, policy: Policy, now: float) -> float:
    """Seconds that each of its GPUs loses: since the last ack, and the restart, weighted by progress."""
    since = run.last_ack_at if run.last_ack_at is not None else run.started_at
    restart = run.restart_seconds or job.restart_seconds or class_of(job, policy).restart_seconds
    lost = (0.0 if since is None else max(0.0, now - since)) + restart
    return lost * (1.0 + policy.progress_weight * progress_of(job, run, now))


def course_of(job: Job, run: Run, policy: Policy, now: float) -> tuple[float, float, float]:
    """(lost, weight, bend): what `lost_seconds` of a run that has started come to, until the next ack.

    `seconds` after now they are (lost + seconds) x min(weight + bend x seconds, `heaviest(policy)`).
    """
    weight = 1.0 + policy.progress_weight * progress_of(job, run, now)
    # The progress grows too, up to the time limit.
    grows = run.progress is None and job.time_limit_seconds and run.started_at is not None
    bend = policy.progress_weight / job.time_limit_seconds if grows and job.time_limit_seconds else 0.0
    return lost_seconds(job, run, policy, now) / weight, weight, bend


def heaviest(policy: Policy) -> float:
    """What a lost second counts at most."""
    return 1.0 + policy.progress_weight


def progress_of(job: Job, run: Run, now: float) -> float:
    """0 to 1: the acked fraction, else elapsed over time limit, else 0."""
    if run.progress is not None:
        return min(1.0, max(0.0, run.progress))
    if not job.time_limit_seconds or run.started_at is None:
        return 0.0
    return min(1.0, (job.used_seconds + now - run.started_at) / job.time_limit_seconds)


def gpus_of(run: Run) -> int:
    """How many GPUs the run is on."""
    leases = run.leases
    return 1 if len(leases) == 1 else len({lease.gpu_id for lease in leases})


def grace_of(job: Job, policy: Policy) -> float:
    """Seconds between the notice and the kill."""
    rules = class_of(job, policy)
    grace = job.grace_seconds if job.grace_seconds is not None else rules.grace_seconds
    return grace if rules.grace_max_seconds is None else min(grace, rules.grace_max_seconds)
