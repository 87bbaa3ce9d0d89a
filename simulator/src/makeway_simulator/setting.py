"""What is simulated: a cluster, a policy, what runs cost, and the rights of teams."""

import math
from dataclasses import dataclass, field

from makeway_policy.model import Shape, Team
from makeway_policy.rules import Policy

from makeway_simulator.physics import Physics
from makeway_simulator.rivals.loop import Cost
from makeway_simulator.trace import Cluster


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What is simulated."""

    cluster: Cluster
    policy: Policy
    physics: Physics = field(default_factory=Physics)
    cost: Cost = Cost.RESUME
    teams: tuple[Team, ...] = ()


def shape_of(gpus: int, cluster: Cluster) -> Shape:
    """One member up to a node's GPUs; more are the fewest equal members that fit nodes."""
    if gpus <= cluster.gpus_per_node:
        return Shape(gpus=gpus)
    members = math.ceil(gpus / cluster.gpus_per_node)
    while gpus % members:
        members += 1
    return Shape(gpus=gpus // members, members=members)
