"""A set of victims with what the preemptor gets for it, and the key by which sets are compared (see `victims`)."""

from collections.abc import Sequence

from makeway_policy import affinity, placement, protection
from makeway_policy.candidates import Candidate, groups_of
from makeway_policy.copies import value
from makeway_policy.left_over import left_over
from makeway_policy.model import Member
from makeway_policy.question import Question, SetKey
from makeway_policy.rules import VictimOrder
from makeway_policy.state import PoolState


@value(frozen=True, kw_only=True, slots=True)
class Plan:
    """A whole placement and who must leave for it; `after` are all runs that must be gone first, victims included."""

    members: tuple[Member, ...]
    after: frozenset[str]
    victims: tuple[Candidate, ...]
    key: SetKey
    cost_gpu_seconds: float
    longest_grace_seconds: float

    @property
    def nodes(self) -> tuple[str, ...]:
        """The node of each member."""
        return tuple(member.node_id for member in self.members)


def plan_of(question: Question, fits: Sequence[placement.Fit], taken: Sequence[Candidate]) -> Plan:
    """The plan by which `taken` leave for these placements."""
    members = tuple(each.member for each in fits)
    after = frozenset(run_id for each in fits for run_id in each.after)
    longest = max((each.grace_seconds for each in taken), default=0.0)
    gpus = sum(len(member.leases) for member in members)
    cost = sum(each.cost_gpu_seconds for each in taken) + gpus * longest
    return Plan(
        members=members,
        after=after | {each.run.run_id for each in taken},
        victims=tuple(sorted(taken, key=lambda each: each.key)),
        key=_set_key(question, members, taken, cost),
        cost_gpu_seconds=cost,
        longest_grace_seconds=longest,
    )


def _set_key(question: Question, members: Sequence[Member], taken: Sequence[Candidate], cost: float) -> SetKey:
    state, policy = question.state, question.policy
    gone = [each.run.run_id for each in taken]
    breaches = sum(max(0, count - protection.group_room(state, group)) for group, count in groups_of(question, taken))
    highest = float(max((each.run.v for each in taken), default=-1))
    jobs = [state.jobs[each.run.job_id] for each in taken]
    oldest = min((job.submitted_at for job in jobs), default=0.0)
    tail = (
        len(taken),
        -affinity.score_of_nodes(state, _node_key(members), question.preemptor.job.shape, gone),
        _scatter(state, members),
        left_over(question, members, gone),
        -oldest,
        tuple(sorted(-job.order for job in jobs)),
        _node_key(members),
    )
    if policy.victims is VictimOrder.COST_FIRST:
        return (breaches, cost, highest, *tail)
    if policy.victims is VictimOrder.WEIGHTED:
        top = float(max(each.own_value_max for each in policy.classes.values()) or 1)
        hours = cost / 3600.0
        weights = policy.victim_weights
        return (breaches, weights.get("v", 0.0) * highest / top + weights.get("cost", 0.0) * hours, 0.0, *tail)
    return (breaches, highest, cost, *tail)


def _scatter(state: PoolState, members: Sequence[Member]) -> tuple[int, int]:
    """How far apart the cards of each member are: NVLink groups beyond the first, then indices; less is better."""
    groups = distance = 0
    for member in members:
        cards = [state.gpus[lease.gpu_id] for lease in member.leases]
        if cards:
            groups += len({card.link_group for card in cards}) - 1
            distance += max(card.index for card in cards) - min(card.index for card in cards)
    return groups, distance


def _node_key(members: Sequence[Member]) -> tuple[str, ...]:
    return tuple(member.node_id for member in members)
