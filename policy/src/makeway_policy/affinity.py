"""Which nodes a job would rather have, and which it would rather not, by label.

A node has a label if it carries it itself, or if a job that does is on it and stays. Each of a job's affinities that a
node meets counts one for it, each anti-affinity one against it; more comes first, before fullness or fragmentation is
asked. It is a wish: a node that meets none of it is still better than none at all.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from makeway_policy.model import Shape
from makeway_policy.state import PoolState, is_leaving

Label = tuple[str, str]


def has_wishes(shape: Shape) -> bool:
    """Whether the shape asks for any node rather than another."""
    return bool(shape.affinity or shape.anti_affinity)


def labels_on(state: PoolState, node_id: str, gone: Collection[str] = ()) -> frozenset[Label]:
    """The labels that a node has, its own and those of the jobs that stay on it; runs in `gone` do not."""
    node = state.nodes.get(node_id)
    if node is None:
        return frozenset()
    staying = (run for run in state.runs_on_node(node_id) if not is_leaving(run) and run.run_id not in gone)
    return frozenset([*node.labels.items(), *(label for run in staying for label in state.jobs[run.job_id].labels)])


def score(labels: Collection[Label], shape: Shape) -> int:
    """How much the shape likes a node with these labels; 0 for neither way."""
    return sum(label in labels for label in shape.affinity) - sum(label in labels for label in shape.anti_affinity)


def score_of_nodes(state: PoolState, node_ids: Iterable[str], shape: Shape, gone: Collection[str] = ()) -> int:
    """How much the shape likes these nodes together, once `gone` have left."""
    if not has_wishes(shape):
        return 0
    return sum(score(labels_on(state, node_id, gone), shape) for node_id in node_ids)


class NodeLabels:
    """Which nodes have a label, kept from call to call; brought up to date when asked."""

    def __init__(self, state: PoolState) -> None:
        self._state = state
        self._stale: set[str] = set()
        self._of_node: dict[str, frozenset[Label]] = {}
        self._nodes: dict[Label, set[str]] = {}

    def node_changed(self, node_id: str) -> None:
        """Something on a node has changed: it is looked at anew when asked for."""
        self._stale.add(node_id)

    def scores(self, shape: Shape) -> Mapping[str, int]:
        """How much the shape likes each node; nodes that it is indifferent to are left out."""
        self._refresh()
        counts: Counter[str] = Counter()
        for label in shape.affinity:
            counts.update(self._nodes.get(label, ()))
        for label in shape.anti_affinity:
            counts.subtract(self._nodes.get(label, ()))
        return {node_id: liked for node_id, liked in counts.items() if liked}

    def _refresh(self) -> None:
        for node_id in self._stale:
            old = self._of_node.pop(node_id, frozenset())
            new = labels_on(self._state, node_id)
            for label in old - new:
                self._nodes[label].discard(node_id)
            for label in new - old:
                self._nodes.setdefault(label, set()).add(node_id)
            if new:
                self._of_node[node_id] = new
        self._stale.clear()
