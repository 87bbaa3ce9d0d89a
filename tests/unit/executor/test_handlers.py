"""Plans in: the newest for this node, and a report where the scheduler seems not to know it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from makeway_executor.handlers import PlanHandler
from makeway_runtime.cloudevents import EventHeaders
from makeway_runtime.kafka.messages import Incoming, PoisonFound
from makeway_schemas.plans import PLAN_TYPE, NodePlan
from plans import plan


class Node:
    """Remembers what was applied."""

    def __init__(self) -> None:
        self.applied: list[tuple[int, int]] = []
        self.wants_plan = False
        self.stale = False

    def apply(self, plan: NodePlan) -> bool:
        self.applied.append((plan.epoch, plan.number))
        return not self.stale


def message(value: bytes, *, key: bytes = b"node-a", offset: int = 0, kind: str = PLAN_TYPE) -> Incoming:
    now = datetime.now(UTC)
    event = EventHeaders(id="i", type=kind, source="/s", time=now)
    return Incoming(topic="node.plans", partition=0, offset=offset, received=now, key=key, value=value, event=event)


def plans(*numbers: tuple[int, int]) -> list[Incoming]:
    return [message(plan(epoch=epoch, number=number).model_dump_json().encode()) for epoch, number in numbers]


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def asked() -> list[int]:
    return []


@pytest.fixture
def handler(node: Node, asked: list[int]) -> PlanHandler:
    return PlanHandler(node, node_id="node-a", ask_report=lambda: asked.append(1))


async def test_only_the_newest_plan_of_a_batch_is_applied(handler: PlanHandler, node: Node) -> None:
    await handler.handle(plans((1, 3), (2, 1), (1, 9)))
    assert node.applied == [(2, 1)]


async def test_plans_of_other_nodes_are_passed_over_unread(handler: PlanHandler, node: Node) -> None:
    await handler.handle([message(b"garbage", key=b"node-b"), message(b"garbage", kind="other")])
    assert node.applied == []


async def test_a_plan_that_names_another_node_is_not_applied_whatever_its_key(handler: PlanHandler, node: Node) -> None:
    others = plan().model_copy(update={"node_id": "node-b"})
    await handler.handle([message(others.model_dump_json().encode())])
    assert node.applied == []


async def test_an_unreadable_plan_is_poison_and_the_readable_one_is_applied(handler: PlanHandler, node: Node) -> None:
    with pytest.raises(PoisonFound) as raised:
        await handler.handle([message(b"garbage", offset=7), *plans((1, 1))])
    assert list(raised.value.reasons) == [(0, 7)]
    assert node.applied == [(1, 1)]


@pytest.mark.parametrize(("stale", "wants", "asks"), [(True, False, 1), (False, True, 1), (False, False, 0)])
async def test_a_report_is_asked_for_where_the_scheduler_is_behind(
    handler: PlanHandler, node: Node, asked: list[int], stale: bool, wants: bool, asks: int
) -> None:
    node.stale, node.wants_plan = stale, wants
    await handler.handle(plans((1, 1)))
    assert len(asked) == asks
