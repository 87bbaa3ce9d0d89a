"""What the placement that a preemptor gets leaves of its nodes, scored as `placement` scores nodes by their strategy.

`binpack`: how many cards that would fit the job are left over; `spread`: the same, more is better; `frag`: how much
fragmentation grows. All as it will be when the victims have left.
"""

from collections.abc import Collection, Sequence

from makeway_policy import placement
from makeway_policy.model import Member, Topology
from makeway_policy.priority import class_of
from makeway_policy.question import Question
from makeway_policy.reach import FREE, CardReach, NodeReach
from makeway_policy.rooms import trial_room
from makeway_policy.rules import Strategy


def left_over(question: Question, members: Sequence[Member], gone: Collection[str]) -> int:
    """The score of these placements once the runs `gone` have left; less is better."""
    job = question.preemptor.job
    strategy = class_of(job, question.policy).placement
    total = 0
    for node_id in dict.fromkeys(member.node_id for member in members):
        room = trial_room(question.state, question.rooms[node_id], gone, ())
        if strategy is Strategy.FRAG and question.demand is not None:
            total += question.demand.growth(room, _together(node_id, members), later=True)
        else:
            total += placement.fitting_cards(room, job.shape, question.policy, later=True)
    return -total if strategy is Strategy.SPREAD else total


def least_left_over(question: Question, reach: NodeReach, taken: Sequence[CardReach]) -> float:
    """What no set of victims for whole cards can go below on a node, of which `taken` are the cards to be freed."""
    strategy = class_of(question.preemptor.job, question.policy).placement
    if strategy is Strategy.FRAG and question.demand is not None:
        return float("-inf")
    if strategy is Strategy.SPREAD:
        return -_most_empty(question, reach, taken)
    return question.preemptor.job.shape.gpus


def _most_empty(question: Question, reach: NodeReach, taken: Sequence[CardReach]) -> int:
    """The most cards that can be empty at last: nobody in a set could be spared, so its last run only just suffices.

    That is said only where nothing but cards decides who is needed.
    """
    job = question.preemptor.job
    shape = job.shape
    if reach.counts_host or job.avoid_gpus or not reach.room.uniform or shape.topology is Topology.REQUIRE:
        return len(reach.cards)
    here: dict[str, int] = {}
    for card in taken:
        for run_id in card.card.staying:
            here[run_id] = here.get(run_id, 0) + 1
    overrides = question.preemptor.overrides
    free = sum((card.override if overrides else card.plain) == FREE for card in reach.cards)
    leaving = sum((card.override if overrides else card.plain)[0] < 0 for card in reach.cards) - free
    return min(len(reach.cards), shape.gpus - 1 + max(here.values(), default=1) + leaving)


def _together(node_id: str, members: Sequence[Member]) -> Member:
    """All that the job gets on the node, as one member."""
    here = [member for member in members if member.node_id == node_id]
    return Member(
        node_id=node_id,
        leases=tuple(lease for member in here for lease in member.leases),
        cpus=sum(member.cpus for member in here),
        memory_mib=sum(member.memory_mib for member in here),
    )
