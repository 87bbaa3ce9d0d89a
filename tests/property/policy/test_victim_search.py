"""Looking for victims where it is most promising finds the set that looking everywhere finds."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from makeway_policy import placement, victims
from makeway_policy.model import Shape
from makeway_policy.question import Question
from makeway_policy.rules import Policy, VictimOrder
from makeway_policy.victim_nodes import Host
from makeway_policy.victims import Plan
from policy_history import History

STEPS = 80
GROUPS = 4
SEEDS = 6
_ANYTHING = float("-inf")


class Crowded(History):
    """A history on more and larger nodes, most of whose victims are chosen by v and cost."""

    def draw_policy(self) -> Policy:
        policy = super().draw_policy()
        order = self.random.choice([VictimOrder.PRIORITY_FIRST, VictimOrder.PRIORITY_FIRST, policy.victims])
        return replace(policy, victims=order, hold_expiry_seconds=30.0)

    def node_count(self) -> int:
        return self.random.randint(5, 9)

    def card_count(self) -> int:
        return self.random.choice([4, 8])

    def shape(self) -> Shape:
        if self.random.random() < 0.7:
            return Shape(gpus=self.random.choice([1, 1, 1, 2, 2, 3, 4]))
        return super().shape()


@pytest.mark.parametrize("group", range(GROUPS))
def test_no_better_set_is_overlooked(group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = victims.best_plan
    found = 0

    def compared(question: Question, hosts: Iterable[Host]) -> Plan | None:
        nonlocal found
        plan = searched(question, hosts)
        everywhere = [
            Host(node_id=node_id, v=_ANYTHING, cost=_ANYTHING)
            for node_id, node in sorted(question.state.nodes.items())
            if placement.node_allows(node, question.preemptor.job)
        ]
        with monkeypatch.context() as patch:
            patch.setattr(victims, "loses_more", lambda *_: False)
            other = searched(question, everywhere) if question.preemptor.job.shape.members == 1 else plan
        # Who is over quota looks at its own team's runs only, and not for what leaves anyway.
        if plan is not other and (victims_of(plan) or victims_of(other)):
            assert described(plan) == described(other)
            found += 1
        return plan

    monkeypatch.setattr(victims, "best_plan", compared)
    for seed in range(group * SEEDS, (group + 1) * SEEDS):
        Crowded(seed).live(STEPS)
    assert found


def victims_of(plan: Plan | None) -> list[str]:
    """Who has to leave."""
    return [] if plan is None else [each.run.run_id for each in plan.victims]


def described(plan: Plan | None) -> Any:
    """What a plan comes to."""
    return None if plan is None else (plan.key, plan.members, plan.after, victims_of(plan))
