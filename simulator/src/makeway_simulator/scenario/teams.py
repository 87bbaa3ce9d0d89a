"""A scenario's teams as the policy knows them."""

from collections.abc import Mapping

from makeway_policy.model import Percents, Team
from makeway_schemas.amounts import percent_of

from makeway_simulator.scenario.document import TeamEntry


def team_value(name: str, entry: TeamEntry) -> Team:
    """A team's rights; allowances for everything."""
    limit = entry.quota if entry.limit is None and not entry.borrow else entry.limit
    percents = Percents(
        guarantee=percent_of(entry.quota),
        limit=percent_of(limit),
        user_limit=percent_of(entry.user_limit),
        class_limits=_percents(entry.class_limits),
    )
    return Team(
        team_id=name,
        guarantee=_gpus(entry.quota) or 0.0,
        limit=_gpus(limit),
        weight=1.0 if entry.weight is None else entry.weight,
        class_limits={each: gpus for each, amount in entry.class_limits.items() if (gpus := _gpus(amount)) is not None},
        user_limit=_gpus(entry.user_limit),
        allowances=None,
        percents=None if percents == Percents() else percents,
    )


def _gpus(amount: float | str | None) -> float | None:
    return None if isinstance(amount, str) else amount


def _percents(amounts: Mapping[str, float | str]) -> dict[str, float]:
    found = {name: percent_of(amount) for name, amount in amounts.items()}
    return {name: percent for name, percent in found.items() if percent is not None}
