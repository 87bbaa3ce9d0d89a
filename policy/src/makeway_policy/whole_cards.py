"""What a set of victims comes to where nothing but the number of whole cards decides who is in it.

Said before anything is placed, so that a node whose set would lose more than the best so far is passed over at once.
"""

from collections.abc import Sequence

from makeway_policy import placement
from makeway_policy.candidates import Candidate
from makeway_policy.model import LeaseKind, Topology
from makeway_policy.question import Question, SetKey
from makeway_policy.rooms import NodeRoom
from makeway_policy.rules import VictimOrder
from makeway_policy.victim_room import barred, within_quota

_MORE = 1.0 + 1e-9
"""Costs that are added up in another order may differ by a rounding."""


def only_cards_decide(question: Question) -> bool:
    """Whether nothing about the preemptor but how many cards a member needs decides who has to leave for it."""
    job = question.preemptor.job
    shape = job.shape
    return (
        question.policy.victims is VictimOrder.PRIORITY_FIRST
        and placement.kind_of(shape) is LeaseKind.WHOLE
        and shape.gpus > 0
        and shape.topology is not Topology.REQUIRE
        and not job.avoid_gpus
        and within_quota(question, ())
    )


def loses_more(question: Question, node_id: str, candidates: Sequence[Candidate], best_key: SetKey) -> bool:
    """Whether the node's set certainly has a higher v or cost than another; `only_cards_decide` of the preemptor."""
    room = question.rooms[node_id]
    if (
        best_key[0]
        or not placement.only_cards_count(room, question.preemptor.job.shape)
        or barred(question, candidates)
    ):
        return False
    taken = taken_on(room, candidates, question.preemptor.job.shape.gpus)
    if not taken:
        return False
    highest = float(max(each.run.v for each in taken))
    longest = max(each.grace_seconds for each in taken)
    cost = sum(each.cost_gpu_seconds for each in taken) + question.preemptor.job.shape.gpus * longest
    return highest > best_key[1] or (highest == best_key[1] and cost > best_key[2] * _MORE)


def taken_on(room: NodeRoom, candidates: Sequence[Candidate], needed: int) -> list[Candidate]:
    """Those who leave: one after the other until there are cards enough, then whoever is not needed is put back."""
    here: dict[str, int] = {}
    empty = 0
    for card in room.cards:
        for run in card.runs:
            here[run.run_id] = here.get(run.run_id, 0) + 1
        empty += not card.runs
    taken: list[Candidate] = []
    freed = empty
    for candidate in candidates:
        if freed >= needed:
            break
        taken.append(candidate)
        freed += here.get(candidate.run.run_id, 0)
    if freed < needed:
        return []
    for candidate in sorted(taken, key=lambda each: (-each.run.v, -each.cost_gpu_seconds, each.key[2:])):
        if freed - here.get(candidate.run.run_id, 0) >= needed:
            freed -= here.get(candidate.run.run_id, 0)
            taken.remove(candidate)
    return taken
