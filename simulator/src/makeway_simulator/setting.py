"""What is simulated: a cluster, a policy, what runs cost, and the rights of teams."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from makeway_policy.model import Gpu, Group, Node, Shape, Team
from makeway_policy.rules import Policy

from makeway_simulator.physics import Physics
from makeway_simulator.rivals.loop import Cost
from makeway_simulator.trace import Cluster

SILENCE_SECONDS: Final = 15.0
"""A node that is not heard for so long is UNKNOWN."""

VRAM_MIB: Final = 81_920
"""What a card has where nothing says so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What is simulated.

    The hardware is `cluster`, unless `nodes` and `gpus` are given. On a node of `start_seconds` a start takes so long.
    A node that is cut off counts as silent after `silence_seconds`.
    """

    cluster: Cluster
    policy: Policy
    physics: Physics = field(default_factory=Physics)
    cost: Cost = Cost.RESUME
    teams: tuple[Team, ...] = ()
    groups: tuple[Group, ...] = ()
    nodes: tuple[Node, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    start_seconds: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    silence_seconds: float = SILENCE_SECONDS

    def hardware(self) -> tuple[tuple[Node, ...], tuple[Gpu, ...]]:
        """The nodes and their GPUs."""
        if self.nodes:
            return self.nodes, self.gpus
        nodes = tuple(Node(node_id=f"node-{number:04d}") for number in range(self.cluster.nodes))
        gpus = tuple(
            Gpu(
                gpu_id=f"{node.node_id}/{index}", node_id=node.node_id, index=index, type_name="simulated",
                vram_mib=VRAM_MIB, slots=self.policy.max_shares,
            )
            for node in nodes
            for index in range(self.cluster.gpus_per_node)
        )  # fmt: skip
        return nodes, gpus


def shape_of(gpus: int, cluster: Cluster) -> Shape:
    """One member up to a node's GPUs; more are the fewest equal members that fit nodes."""
    if gpus <= cluster.gpus_per_node:
        return Shape(gpus=gpus)
    members = math.ceil(gpus / cluster.gpus_per_node)
    while gpus % members:
        members += 1
    return Shape(gpus=gpus // members, members=members)
