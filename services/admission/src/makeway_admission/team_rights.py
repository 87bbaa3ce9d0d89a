"""What the rights of one team mean beside those of all others: what cannot be, and what should be known.

- Guarantees in per cent come to at most the whole pool: beyond it no pool could ever keep them.
- Guarantees in GPUs may come to more than the pool has, as teams are set up before nodes join: of a new one it is said.
- The first team that is set up takes from all others what nobody set up for them: it is said.
"""

from __future__ import annotations

from collections.abc import Sequence

from makeway_policy.quantities import quantity
from makeway_policy.rules import Policy
from makeway_schemas.amounts import percent_of, percent_text
from makeway_schemas.api import FieldProblem, TeamBody

from makeway_admission.views import Row

_WHOLE_PERCENT = 100.0
_MOST_NAMED = 10


def firm_names(policy: Policy) -> set[str]:
    """What a team needs an allowance for."""
    classes = {name for name, each in policy.classes.items() if each.needs_allowance}
    return classes | {"not_preemptible", "hard_groups"}


def guarantee_objection(team: str, body: TeamBody, teams: Sequence[Row]) -> FieldProblem | None:
    """Why a guarantee in per cent cannot be given beside those of the other teams (rows of `team_rights`)."""
    own = percent_of(body.guarantee)
    if own is None:
        return None
    others = [row for row in teams if row["team_id"] != team and row["guarantee_percent"]]
    total = round(own + sum(row["guarantee_percent"] for row in others), 6)
    if total <= _WHOLE_PERCENT:
        return None
    named = ", ".join(f"{row['team_id']} ({percent_text(row['guarantee_percent'])})" for row in others[:_MOST_NAMED])
    more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    message = f"with those of {named}{more} this is {percent_text(total)} of the pool; together they are at most 100%"
    return FieldProblem(field="guarantee", message=message)


def notes_of(team: str, body: TeamBody, teams: Sequence[Row], pool_gpus: int, policy: Policy) -> tuple[str, ...]:
    """What whoever has set a team up should know; `teams` are the rows of `team_rights` before."""
    notes = (_first_of_all(team, teams, policy), _more_than_the_pool(team, body, teams, pool_gpus))
    return tuple(note for note in notes if note is not None)


def _first_of_all(team: str, teams: Sequence[Row], policy: Policy) -> str | None:
    if any(row["configured"] for row in teams):
        return None
    others = [row["team_id"] for row in teams if row["team_id"] != team]
    named = ", ".join(others[:_MOST_NAMED]) + (f" and {len(others) - _MOST_NAMED} more" if others[_MOST_NAMED:] else "")
    without = f" Without an allowance for {', '.join(sorted(firm_names(policy)))}: {named}." if others else ""
    return (
        "this is the first team that is set up: from now on teams have only what is set up for them."
        f"{without} Teams that are not known may not submit"
    )


def _more_than_the_pool(team: str, body: TeamBody, teams: Sequence[Row], pool_gpus: int) -> str | None:
    """Of a guarantee that is new. Only where the pool has GPUs: one that is being set up has no nodes yet."""
    percent = percent_of(body.guarantee)
    own = float(body.guarantee) if isinstance(body.guarantee, int) else _gpus_of(percent, pool_gpus)
    others = 0.0
    for row in teams:
        guarantee = row["guarantee"] + _gpus_of(row["guarantee_percent"], pool_gpus)
        if row["team_id"] != team:
            others += guarantee
        elif (guarantee, row["guarantee_percent"]) == (own, percent):
            return None
    if not pool_gpus or not body.guarantee or round(own + others, 6) <= pool_gpus:
        return None
    if not others:
        return f"the guarantee is {quantity(own, 'GPU')} and the pool has {pool_gpus}: it cannot be kept in full"
    return (
        f"the guarantees of all teams come to {quantity(own + others, 'GPU')} and the pool has {pool_gpus}: "
        "they cannot all be kept at once"
    )


def _gpus_of(percent: float | None, pool_gpus: int) -> float:
    return (percent or 0.0) * pool_gpus / _WHOLE_PERCENT
