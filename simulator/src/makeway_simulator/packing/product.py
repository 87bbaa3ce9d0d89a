"""makeway's own `frag` placement in array form.

It knows no workload ahead: the demand is the shapes of the last 1,000 arrivals. The node is chosen whose fragmentation
grows least (`makeway_policy.fragmentation` says by which measure and in which steps); of equal ones the fullest node
wins, then the smallest name. Inside a node a pod takes the tightest GPUs.
"""

from collections import deque
from typing import Final

import numpy as np
from makeway_policy.fragmentation import STEP_MILLI, WINDOW

from makeway_simulator.packing.demand import FilledFragmentation, Options, typical
from makeway_simulator.packing.fleet import MILLI, Fleet, Floats, Ints, PodShape
from makeway_simulator.packing.rivals import Scored

_RENEWED_EVERY: Final = 250


class ProductFrag(Scored):
    """The `frag` strategy of `makeway_policy.placement`, over arrays of nodes."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._window: deque[PodShape] = deque(maxlen=WINDOW)
        self._arrivals = 0
        self._fragmentation = FilledFragmentation(fleet, ())

    def arrived(self, shape: PodShape) -> bool:
        """The demand is taken anew while few have come, then every 250 arrivals."""
        self._window.append(shape)
        self._arrivals += 1
        young = self._arrivals < WINDOW and self._arrivals & (self._arrivals - 1) == 0
        if not young and self._arrivals % _RENEWED_EVERY:
            return False
        self._fragmentation = FilledFragmentation(self._fleet, typical(self._window, coverage=1.0))
        return True

    def choose(self, fleet: Fleet, scores: Floats, fitting: Ints) -> int:
        """The best score, then the smallest name."""
        return int(fitting[np.argmax(scores[fitting])])

    def scores(self, fleet: Fleet, nodes: Ints, shape: PodShape) -> Floats:
        """Steps of fragmentation saved on the tightest GPUs, then fullness."""
        steps: Floats = -_steps(self._tightest(fleet, self._fragmentation.options(nodes, shape)))
        fullness: Floats = 1.0 - fleet.total[nodes] / (MILLI * (fleet.free.shape[1] + 1))
        return steps + fullness

    def _tightest(self, fleet: Fleet, options: Options) -> Options:
        """The one option of each node on its tightest GPU; options come by node."""
        left = fleet.free[options.nodes, options.cards]
        order = np.lexsort((options.cards, left, options.nodes))
        nodes = options.nodes[order]
        first = order[np.concatenate(([True], nodes[1:] != nodes[:-1]))]
        return Options(
            nodes=options.nodes[first],
            cards=options.cards[first],
            before=options.before[first],
            after=options.after[first],
        )

    def placed(self, node: int) -> None:
        """The node's sums are taken anew."""
        self._fragmentation.changed(np.array([node]))


def _steps(options: Options) -> Floats:
    # Rounded at 1e-6 first: what is equal but for the order of a sum must stay equal.
    return np.round(np.round(options.after - options.before, 6) / STEP_MILLI)
