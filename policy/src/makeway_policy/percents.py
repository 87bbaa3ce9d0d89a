"""Rights in per cent of the pool, as GPUs.

The pool is its registered GPUs, wherever a lease counts against a quota: quarantined, cordoned and lost cards and nodes
that are not heard count, for they may come back; nodes that were declared dead do not. A card in MIG mode counts as its
instances, and an instance that its node no longer reports not at all. Nothing is rounded: 25% of 10 GPUs are 2.5.
"""

from collections.abc import Mapping
from dataclasses import replace

from makeway_policy.journal import Journal
from makeway_policy.model import Gpu, GpuHealth, Node, NodeHealth, Team

_GPUS = "gpus"


def counts(gpu: Gpu | None, node: Node | None) -> bool:
    """Whether the GPU is one of the pool's, as far as per cents of it go."""
    if gpu is None or gpu.in_mig_mode or node is None or node.health is NodeHealth.DEAD:
        return False
    return gpu.mig_profile is None or gpu.health is not GpuHealth.LOST


def in_gpus(team: Team, pool_gpus: int) -> Team:
    """The team with all its figures in GPUs, in a pool of so many; what was given in per cent can still be seen."""
    given = team.percents
    if given is None:
        return team
    allowances = team.allowances
    return replace(
        team,
        guarantee=team.guarantee if given.guarantee is None else _part(given.guarantee, pool_gpus),
        limit=team.limit if given.limit is None else _part(given.limit, pool_gpus),
        user_limit=team.user_limit if given.user_limit is None else _part(given.user_limit, pool_gpus),
        class_limits={**team.class_limits, **_parts(given.class_limits, pool_gpus)},
        allowances=None if allowances is None else {**allowances, **_parts(given.allowances, pool_gpus)},
    )


class PoolSize:
    """How many GPUs the pool has, and the teams whose rights follow it, in GPUs. Changed through the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._counted: dict[str, int] = {}
        self._following: dict[str, None] = {}
        self._found: dict[str, tuple[Team, int, Team]] = {}

    @property
    def following(self) -> tuple[str, ...]:
        """The teams whose rights move with the size of the pool."""
        return tuple(self._following)

    def put_team(self, team: Team) -> None:
        """Note whether the team's rights follow the size of the pool."""
        if team.percents is not None:
            self._journal.put(self._following, team.team_id, None)
        elif team.team_id in self._following:
            self._journal.delete(self._following, team.team_id)

    def grow(self, gpus: int) -> bool:
        """Add so many GPUs, or take them away; whether rights change by it."""
        if gpus:
            self._journal.put(self._counted, _GPUS, self._counted.get(_GPUS, 0) + gpus)
        return bool(gpus and self._following)

    def in_gpus(self, team: Team) -> Team:
        """The team with all its figures in GPUs, as the pool is: the same value until team or pool are others."""
        gpus = self._counted.get(_GPUS, 0)
        known = self._found.get(team.team_id)
        if known is None or known[0] is not team or known[1] != gpus:
            known = self._found[team.team_id] = (team, gpus, in_gpus(team, gpus))
        return known[2]


def _parts(percents: Mapping[str, float], pool_gpus: int) -> dict[str, float]:
    return {name: _part(percent, pool_gpus) for name, percent in percents.items()}


def _part(percent: float, pool_gpus: int) -> float:
    return percent * pool_gpus / 100.0
