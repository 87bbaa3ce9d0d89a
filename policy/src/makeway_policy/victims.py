"""Who has to leave so that a job fits: one candidate set a node, compared, and nobody in it who could be spared.

On a node, possible victims are added by v, then cost, then newest, then id, until the job fits with what is free; then
whoever is not needed is put back, highest v first, then highest cost. Where somebody in the set may not be taken beside
the others (a hard group, a guarantee), it yields to the next, without them. A gang preemptor goes member by member to
the node whose set compares best, then puts back over all. Sets compare by:
 (a) breaches of soft groups
 (b) highest victim v, lower is better
 (c) cost
 (d) number of victims
 (e) what the preemptor gets: how much it likes the nodes by label, then how far apart the cards are, then what is left
     over of the nodes, by its class's strategy (`left_over`)
 (f) newest submit
 (g) id
Another job's hold is a candidate like a run, at cost 0.
"""

import math
from collections.abc import Iterable, Sequence

from makeway_policy.candidates import Candidate, candidates_on, leaves_by
from makeway_policy.gang_victims import gang_plan
from makeway_policy.least import by_cost_now, cannot_beat, is_worse, loses_as_much
from makeway_policy.question import Question
from makeway_policy.victim_nodes import Host
from makeway_policy.victim_room import Fits, barred, could_fit, legal_plan, place, spare
from makeway_policy.victim_sets import Plan
from makeway_policy.whole_cards import loses_more, only_cards_decide

_TIES = 8
"""So many sets that lose as much (highest v and cost) are compared by the rest of their keys, then the best of them
will do: where everything on thousands of nodes is alike, an eviction must not wait for all of them to be tried."""

_SETS = 8
"""So many sets of a node are tried, each without those who may not be taken beside the others of the one before."""


def best_plan(question: Question, hosts: Iterable[Host]) -> Plan | None:
    """The best set over the given nodes, most promising first; None if no legal set makes the job fit."""
    preemptor = question.preemptor
    if not (preemptor.by_priority or preemptor.by_reclaim):
        return None
    if preemptor.job.shape.members > 1:
        return gang_plan(question, hosts)
    best: Plan | None = None
    soonest: Plan | None = None
    ties = 0
    plain = only_cards_decide(question)
    for host, bound in by_cost_now(question, hosts):
        settled = ties >= _TIES
        if best is not None and cannot_beat(question, host, best.key, settled=settled):
            break
        if best is not None and is_worse(bound, best.key, settled=settled):
            continue
        plan = _node_plan(question, host.node_id, best if plain else None)
        if plan is None:
            continue
        if plan.victims:
            if best is not None and loses_as_much(plan.key, best.key):
                ties += 1
            elif best is None or plan.key < best.key:
                ties = 0
            best = plan if best is None or plan.key < best.key else best
        elif soonest is None or _when(question, plan) < _when(question, soonest):
            soonest = plan
    if best is None or soonest is None:
        # Without victims to take, what drains without a holder is kept for the first that may preempt.
        return best or soonest
    in_time = leaves_by(question, soonest.after) <= question.now + best.longest_grace_seconds
    return soonest if in_time else best


def _when(question: Question, plan: Plan) -> tuple[object, ...]:
    return (leaves_by(question, plan.after), plan.key)


def _node_plan(question: Question, node_id: str, best: Plan | None) -> Plan | None:
    """The node's plan; None also where it would certainly lose more than the best so far, where one is given."""
    candidates = candidates_on(question, (node_id,))
    if best is not None and loses_more(question, node_id, candidates, best.key):
        return None
    found = _with_victims(question, node_id, candidates) if candidates else None
    # Where nobody who may be asked to leave would make room, what drains is waited for as long as it takes.
    return found or _fill(question, node_id, (), math.inf)


def _with_victims(question: Question, node_id: str, candidates: Sequence[Candidate]) -> Plan | None:
    """A set that takes what drains into account as far as it is gone when the victims are."""
    patience = question.now + max(each.grace_seconds for each in candidates)
    for _ in range(3):
        plan = _fill(question, node_id, candidates, patience)
        if plan is None or not plan.victims:
            return plan
        in_time = question.now + plan.longest_grace_seconds
        if leaves_by(question, plan.after - {each.run.run_id for each in plan.victims}) <= in_time:
            return plan
        patience = in_time
    return _fill(question, node_id, candidates, question.now)


def _fill(question: Question, node_id: str, candidates: Sequence[Candidate], patience: float) -> Plan | None:
    """A set that is not legal yields to the next, without whoever may not be taken beside the others."""
    for _ in range(_SETS):
        grown = _grown(question, node_id, candidates, patience)
        if grown is None:
            return None
        fits, needed = spare(question, *grown, patience)
        without = barred(question, needed)
        if not without:
            return legal_plan(question, fits, needed)
        candidates = [each for each in candidates if each not in without]
    return None


def _grown(
    question: Question, node_id: str, candidates: Sequence[Candidate], patience: float
) -> tuple[Fits, list[Candidate]] | None:
    """As many as it takes until the job fits, and where it does then."""
    taken: list[Candidate] = []
    for following in (None, *candidates):
        if following is not None:
            taken.append(following)
        if not could_fit(question, node_id, taken):
            continue
        fits = place(question, (node_id,), taken, patience)
        if fits is not None:
            return fits, taken
    return None
