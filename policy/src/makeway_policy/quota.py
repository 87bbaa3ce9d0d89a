"""What a team may use: limits, guarantees, and which of its runs are borrowed.

Order of checks (the first that fails is the reason shown):
 1. the team's limit
 2. the user's limit
 3. the team's limit for the class
 4. GPU-hours of the month
 5. allowances: the class, not preemptible jobs, hard groups
Usage is what live leases say, each GPU once a team, also while one of its runs leaves for another.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from makeway_policy import placement
from makeway_policy.model import Job, LeaseKind, Member, Mode, Percents, Reason, Refusal, Run, Team
from makeway_policy.priority import class_of
from makeway_policy.quantities import quantity, verb
from makeway_policy.rules import JobClass, Policy
from makeway_policy.state import UNITS_PER_GPU, PoolState, is_leaving, units_of

_WHOLE = LeaseKind.WHOLE
_OFF = Mode.OFF


class Limit(NamedTuple):
    """What is counted, how many GPUs of it are allowed, the reason and words if they are used, and where the figure is
    given in per cent of the pool, how many."""

    key: tuple[str, ...]
    gpus: float
    reason: Reason
    what: str
    percent: float | None = None

    @property
    def words(self) -> str:
        """What it is, for people."""
        return self.what if self.percent is None else f"{self.what}, {self.percent:g}% of the pool,"


_NO_PERCENTS = Percents()


def needed_units(job: Job, run: Run | None, state: PoolState) -> int:
    """Millionths of a GPU that the job takes: by its placement where it is known, else by its shape (a share: 0)."""
    if run is not None:
        return units_of_members(state, run.members)
    if placement.kind_of(job.shape) is _WHOLE:
        return job.shape.gpus * job.shape.members * UNITS_PER_GPU
    return 0


def units_of_members(state: PoolState, members: Collection[Member]) -> int:
    """Millionths of a GPU that a placement takes."""
    return sum(
        units_of(state.gpus[lease.gpu_id], lease.vram_mib, lease.slots) for each in members for lease in each.leases
    )


def refusal_of(
    state: PoolState,
    policy: Policy,
    job: Job,
    units: int,
    gone: Collection[str] | None = None,
    *,
    instead_of: Run | None = None,
) -> Refusal | None:
    """Why the team may not use `units` more for this job; None if it may.

    With `gone` (runs that will have left) it is judged as it will be then, else as it is now, with `instead_of` as if
    that run were not there.
    """
    team = state.team(job.team)
    if _is_unlimited(team):
        return None
    borrows = not job.preemptible and not within_guarantee(state, job, units, gone or ())
    allowed = _allowance_limits(job, team, class_of(job, policy), borrows=borrows, hard=state.in_hard_group(job))
    for limit in (*_limits(job, team), *allowed):
        used = state.used(limit.key, later=gone is not None) - _leaving_units(state, limit.key, gone or ())
        if instead_of is not None:
            used = state.used_without(limit.key, instead_of)
        if used + units > round(limit.gpus * UNITS_PER_GPU):
            in_use = used / UNITS_PER_GPU
            return Refusal(
                reason=limit.reason,
                sentence=(
                    f"{limit.words} is {quantity(limit.gpus, 'GPU')}: {in_use:g} {verb(in_use)} in use and the job "
                    f"asks for {units / UNITS_PER_GPU:g}"
                ),
                detail={
                    "limit": f"{limit.gpus:g}",
                    "used": f"{used / UNITS_PER_GPU:g}",
                    "asked": f"{units / UNITS_PER_GPU:g}",
                },
            )
    if team.gpu_hours_per_month is not None and team.gpu_hours_used >= team.gpu_hours_per_month:
        return Refusal(
            reason=Reason.TEAM_LIMIT,
            sentence=(
                f"team {job.team} has used {team.gpu_hours_used:g} of its {team.gpu_hours_per_month:g} GPU-hours "
                "of this month"
            ),
        )
    return None


def _allowance_limits(job: Job, team: Team, rules: JobClass, *, borrows: bool, hard: bool) -> Iterator[Limit]:
    """Limits that hold where a team needs leave; none where everything is allowed."""
    if team.allowances is None:
        return
    percents = (team.percents or _NO_PERCENTS).allowances
    needed = (
        (rules.needs_allowance, ("class", job.class_name), rules.name, f"for class {rules.name}"),
        (
            borrows and not job.preemptible,
            ("fixed", ""),
            "not_preemptible",
            "to borrow for jobs that are not preemptible",
        ),
        (hard, ("hard", ""), "hard_groups", "for hard groups"),
    )
    for needs, key, name, what in needed:
        if needs:
            yield Limit(
                (team.team_id, *key),
                team.allowances.get(name, 0.0),
                Reason.ALLOWANCE,
                f"the allowance of team {team.team_id} {what}",
                percents.get(name),
            )


def may_use_class(team: Team, rules: JobClass) -> bool:
    """Whether the team may submit to the class at all: a class limit above 0, and an allowance where one is needed."""
    if team.class_limits.get(rules.name) == 0 and rules.name not in (team.percents or _NO_PERCENTS).class_limits:
        return False
    return not rules.needs_allowance or has_allowance(team, rules.name)


def has_allowance(team: Team, name: str) -> bool:
    """Whether the team may have any GPUs for what needs leave; in per cent of the pool also while that is empty."""
    if team.allowances is None or name in (team.percents or _NO_PERCENTS).allowances:
        return True
    return team.allowances.get(name, 0.0) > 0


def can_ever(state: PoolState, policy: Policy, job: Job, *, whatever_the_pool: bool = False) -> Refusal | None:
    """Why the team's limits and allowances can never take the job, however idle the team is; None if they can.

    `whatever_the_pool`: by limits in GPUs alone, as the pool may grow.
    """
    units = needed_units(job, None, state)
    team = state.team(job.team)
    if _is_unlimited(team):
        return None
    borrows = not job.preemptible and units > round(team.guarantee * UNITS_PER_GPU)
    allowed = _allowance_limits(job, team, class_of(job, policy), borrows=borrows, hard=state.in_hard_group(job))
    for limit in (*_limits(job, team), *allowed):
        if whatever_the_pool and limit.percent is not None:
            continue
        if units > round(limit.gpus * UNITS_PER_GPU):
            asked = units / UNITS_PER_GPU
            return Refusal(
                reason=limit.reason,
                sentence=f"{limit.words} is {quantity(limit.gpus, 'GPU')} and the job asks for {asked:g}",
                detail={"limit": f"{limit.gpus:g}", "asked": f"{asked:g}", "ever": "no"},
            )
    return None


def within_guarantee(state: PoolState, job: Job, units: int, gone: Collection[str] = ()) -> bool:
    """Whether the team is within its guarantee with the job included, once `gone` have left."""
    return units <= guarantee_left(state, job.team) + _leaving_units(state, (job.team,), gone)


def guarantee_left(state: PoolState, team_id: str) -> int:
    """What of the guarantee is left once what is leaving has left, in millionths of a GPU; below 0 if more is used."""
    return round(state.team(team_id).guarantee * UNITS_PER_GPU) - state.used((team_id,), later=True)


def would_borrow(state: PoolState, job: Job, v: int) -> bool:
    """Whether a run of the job with this v would be beyond the guarantee, whoever of lower v leaves for it."""
    above = state.standing(job.team).of_at_least(v)
    return above + needed_units(job, None, state) > round(state.team(job.team).guarantee * UNITS_PER_GPU)


def borrowed_runs(state: PoolState, team_id: str) -> list[str]:
    """The team's runs beyond its guarantee: they add up by v, highest first, then start; the first that overflows and
    all after it are borrowed. What is leaving is out."""
    guarantee = round(state.team(team_id).guarantee * UNITS_PER_GPU)
    if state.used((team_id,), later=True) <= guarantee:
        return []
    # Without a guarantee runs of CPU and memory alone are borrowed, too.
    return state.standing(team_id).beyond(guarantee or -1)


def is_borrowed(state: PoolState, run: Run, gone: Collection[str] = ()) -> bool:
    """Whether a run that stays is one of its team's `borrowed_runs`, once the runs `gone` have left."""
    team_id = state.jobs[run.job_id].team
    guarantee = round(state.team(team_id).guarantee * UNITS_PER_GPU)
    if state.used((team_id,), later=True) <= guarantee or is_leaving(run) or run.run_id in gone:
        return False
    if guarantee == 0:
        return True
    standing = state.standing(team_id)
    place = standing.place_of(run.run_id)
    return place is not None and standing.up_to(place, gone) > guarantee


def beyond_guarantee(state: PoolState, team_id: str) -> float:
    """How many GPUs the team uses beyond its guarantee."""
    return max(0.0, state.used((team_id,)) / UNITS_PER_GPU - state.team(team_id).guarantee)


def fair_share_key(state: PoolState, team_id: str, past: float = 0.0) -> tuple[float, float]:
    """The team's place among equals: what it uses beyond its guarantee, by weight, smaller first.

    Weight 0 is last as soon as nothing of the guarantee is left, so also where there is none and the team is idle.
    `past` is what it used beyond its guarantee on average so far, in GPUs, where the policy lets that count too.
    """
    team = state.team(team_id)
    beyond = beyond_guarantee(state, team_id) + past
    if team.weight == 0 and (beyond > 0 or state.used((team_id,)) / UNITS_PER_GPU >= team.guarantee):
        return (1.0, 0.0)
    return (0.0, beyond / team.weight if beyond else 0.0)


def is_preemptible(job: Job, policy: Policy) -> bool:
    """Whether the job may be evicted at all, by its own word and its class's."""
    return is_preemptible_under(class_of(job, policy), job)


def is_preemptible_under(rules: JobClass, job: Job) -> bool:
    """The same where the rules of its class are at hand."""
    return job.preemptible and (job.mode or rules.mode) is not _OFF


def mode_of(job: Job, policy: Policy) -> Mode:
    """What a preemption does to the job."""
    return job.mode or class_of(job, policy).mode


def _is_unlimited(team: Team) -> bool:
    """Whether nothing limits the team whatever it asks for."""
    return (
        team.limit is None
        and team.user_limit is None
        and not team.class_limits
        and team.allowances is None
        and team.gpu_hours_per_month is None
    )


def _limits(job: Job, team: Team) -> Iterator[Limit]:
    """The limits that the team has."""
    name, percents = team.team_id, team.percents or _NO_PERCENTS
    if team.limit is not None:
        yield Limit((name,), team.limit, Reason.TEAM_LIMIT, f"the limit of team {name}", percents.limit)
    if team.user_limit is not None:
        yield Limit(
            (name, "user", job.user),
            team.user_limit,
            Reason.TEAM_LIMIT,
            f"the limit of each user of team {name}",
            percents.user_limit,
        )
    of_class = team.class_limits.get(job.class_name)
    if of_class is not None:
        yield Limit(
            (name, "class", job.class_name),
            of_class,
            Reason.CLASS_LIMIT,
            f"the limit of team {name} for class {job.class_name}",
            percents.class_limits.get(job.class_name),
        )


def _leaving_units(state: PoolState, key: tuple[str, ...], gone: Collection[str]) -> int:
    """What runs that are not leaving yet would take off the team's later usage by going."""
    total = 0
    for run_id in gone:
        run = state.runs[run_id]
        job = state.jobs[run.job_id]
        if is_leaving(run) or job.team != key[0]:
            continue
        if len(key) == 1 or _counts_under(state, job, key):
            total += needed_units(job, run, state)
    return total


def _counts_under(state: PoolState, job: Job, key: tuple[str, ...]) -> bool:
    if key[1] == "hard":
        return state.in_hard_group(job)
    if key[1] == "fixed":
        return not job.preemptible
    return key[2] == (job.class_name if key[1] == "class" else job.user)
