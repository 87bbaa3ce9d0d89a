"""Choosing the node for the `frag` strategy: the one whose fragmentation grows least.

Of equal ones the first counts, which is the fullest. Nodes in the same state weigh the same, so each state is weighed
once and remembered; the choice is exactly the one that weighing every node would make. (kube-scheduler, on which the
authors of "Beware of Fragmentation" built, bounds the same work by looking at a sample of the nodes.)
"""

from collections.abc import Iterable, Sequence

from makeway_policy import placement
from makeway_policy.demand import Demand
from makeway_policy.index import Index
from makeway_policy.model import Job, Member
from makeway_policy.rules import Strategy


def least_growth(index: Index, demand: Demand, job: Job, nodes: Iterable[str]) -> Member | None:
    """Place one member on one of the nodes, which come the fullest first; None where it fits on none."""
    listed = list(nodes)
    avoided = {index.state.gpus[gpu_id].node_id for gpu_id in job.avoid_gpus if gpu_id in index.state.gpus}
    known = demand.growths(job.shape)
    weighed: set[int] = set()
    ranked: list[tuple[int, int]] = []
    for place, node_id in enumerate(listed):
        room = index.room(node_id)
        profile = demand.profile(room)
        if profile in weighed:
            continue
        own = node_id in avoided  # it may not take all of this node's cards, so that others tell nothing of it
        growth = None if own else known.get(profile)
        if growth is None:
            found = placement.fit(room, job, index.policy, Strategy.FRAG, later=False)
            if found is None:
                continue
            growth = demand.growth(room, found.member)
        elif not placement.node_allows(room.node, job):
            continue
        if not own:
            known[profile] = growth
            weighed.add(profile)
        ranked.append((growth, place))
    return _first_that_fits(index, demand, job, listed, sorted(ranked))


def _first_that_fits(
    index: Index, demand: Demand, job: Job, nodes: Sequence[str], ranked: Sequence[tuple[int, int]]
) -> Member | None:
    if not ranked:
        return None
    room = index.room(nodes[ranked[0][1]])
    found = placement.fit(room, job, index.policy, Strategy.FRAG, later=False)
    if found is not None:
        return found.member
    # Equal in its cards, yet it does not fit here (memory, topology): then each node must be asked.
    members = [
        (demand.growth(room, found.member), place, found.member)
        for place, node_id in enumerate(nodes)
        if (found := placement.fit(room := index.room(node_id), job, index.policy, Strategy.FRAG, later=False))
    ]
    return min(members, key=lambda each: each[:2])[2] if members else None
