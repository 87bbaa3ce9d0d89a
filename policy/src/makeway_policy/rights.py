"""Teams' rights as far as they decide who is judged apart, and who again when they change."""

from collections.abc import Iterable
from dataclasses import dataclass

from makeway_policy.model import Job, Team
from makeway_policy.queue import Owner, Turns
from makeway_policy.state import PoolState


@dataclass(frozen=True, kw_only=True, slots=True)
class Effects:
    """Whom a change of rights concerns: whether jobs are told apart otherwise, and whether all teams are concerned."""

    owners: bool
    everybody: bool


class Rights:
    """What was last seen of each team. `guaranteed` are the teams with a guarantee."""

    def __init__(self, state: PoolState, turns: Turns) -> None:
        self._state = state
        self._turns = turns
        self._seen: dict[str, Team] = {}
        self.guaranteed: tuple[str, ...] = ()

    def owner_of(self, job: Job) -> Owner:
        """Whose the job is, as far as a judgement asks: where nobody has rights, jobs of all teams are the same."""
        team = self._of(job.team)
        if team.user_limit is not None:
            return (job.team, job.user)
        return (job.team,) if self._turns.fair or self.guaranteed or _is_limited(team) else ()

    def limit(self, team_id: str) -> bool:
        """Whether the team has any limit, allowance or guarantee."""
        return _is_limited(self._of(team_id))

    def take(self, teams: Iterable[str]) -> Effects | None:
        """Look at teams of which something has changed; None if it was not their rights."""
        known = self._state.teams
        now = [(self._seen.get(each), self._state.team(each) if each in known else None) for each in teams]
        changed = [each for each in now if each[0] is not each[1]]
        if not changed:
            return None
        before = (bool(self._seen), bool(self.guaranteed))
        for old, new in changed:
            if new is not None:
                self._seen[new.team_id] = new
            elif old is not None:
                del self._seen[old.team_id]
        self.guaranteed = tuple(sorted(team.team_id for team in self._seen.values() if team.guarantee > 0))
        same = before == (bool(self._seen), bool(self.guaranteed))
        return Effects(
            owners=not same or any(_apart(old) != _apart(new) for old, new in changed),
            everybody=not same or any(_taken(old) != _taken(new) for old, new in changed),
        )

    def _of(self, team_id: str) -> Team:
        return self._seen.get(team_id) or self._state.team(team_id)


def _is_limited(team: Team) -> bool:
    limits = (team.limit, team.user_limit, team.allowances, team.gpu_hours_per_month)
    return bool(team.class_limits) or team.guarantee > 0 or any(each is not None for each in limits)


def _apart(team: Team | None) -> tuple[bool, bool]:
    return (False, False) if team is None else (_is_limited(team), team.user_limit is not None)


def _taken(team: Team | None) -> tuple[float, float]:
    """What of a team's rights others feel: what they may take from it, and whom they come after."""
    return (0.0, 1.0) if team is None else (team.guarantee, team.weight)
