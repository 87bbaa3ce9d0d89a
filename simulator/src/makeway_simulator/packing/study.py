"""The packing experiment by name: which placement, which workload, which orders."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import Final

from makeway_simulator.errors import UnknownChoice
from makeway_simulator.packing.demand import Fragmentation, typical
from makeway_simulator.packing.fleet import Fleet, NodeSpec, PodShape
from makeway_simulator.packing.product import ProductFrag
from makeway_simulator.packing.replay import Order, PackingResult, replay_orders
from makeway_simulator.packing.rivals import (
    BestFit,
    Clustering,
    DotProduct,
    FirstFit,
    FragmentationGradientDescent,
    Packing,
    Placement,
    RandomFit,
)

Make = Callable[[Fleet, Order, Sequence[PodShape]], Placement]

PLACEMENTS: Final[Mapping[str, Make]] = MappingProxyType(
    {
        "random": lambda fleet, order, pods: RandomFit(Random(1000 * order.seed + order.lot)),  # noqa: S311
        "dotprod": lambda fleet, order, pods: DotProduct(),
        "clustering": lambda fleet, order, pods: Clustering(),
        "packing": lambda fleet, order, pods: Packing(),
        "bestfit": lambda fleet, order, pods: BestFit(),
        "fgd": lambda fleet, order, pods: FragmentationGradientDescent(Fragmentation(fleet, typical(pods))),
        "first-fit": lambda fleet, order, pods: FirstFit(),
        "frag": lambda fleet, order, pods: ProductFrag(fleet),
    }
)
"""The placements by name; `frag` is makeway's own."""


_LOTS: Final = 5
"""A placement by lot is replayed so often for each order: one lot alone is off by a third of a point."""


def study(
    nodes: Sequence[NodeSpec],
    pods: Sequence[PodShape],
    orders: Sequence[Order],
    policy: str,
    progress: Callable[[int], None] | None = None,
) -> PackingResult:
    """Replay every order under one placement (random: under five lots each). Raises UnknownChoice."""
    make = PLACEMENTS.get(policy)
    if make is None:
        raise UnknownChoice("placement", policy, tuple(PLACEMENTS))
    lots = _LOTS if policy == "random" else 1
    drawn = [replace(order, lot=lot) for order in orders for lot in range(lots)]
    return replay_orders(nodes, pods, drawn, lambda fleet, order: make(fleet, order, pods), progress)
