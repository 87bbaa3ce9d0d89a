"""Plans in: the newest one that is for this node is applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from makeway_runtime.kafka.messages import Incoming, PoisonFound
from makeway_schemas.plans import PLAN_TYPE, NodePlan
from pydantic import ValidationError


class Applying(Protocol):
    """What applies a plan."""

    wants_plan: bool

    def apply(self, plan: NodePlan) -> bool:
        """False when the plan is stale."""


class PlanHandler:
    """Several nodes share a partition: what is for others is passed over unread."""

    def __init__(self, node: Applying, *, node_id: str, ask_report: Callable[[], None]) -> None:
        """`ask_report` is called when the scheduler seems not to know this node as it is."""
        self._node = node
        self._node_id = node_id
        self._key = node_id.encode()
        self._ask_report = ask_report

    async def handle(self, batch: Sequence[Incoming]) -> None:
        """Raises PoisonFound for plans that cannot be read."""
        newest: NodePlan | None = None
        poison: dict[tuple[int, int], str] = {}
        for message in batch:
            if message.key != self._key or message.event.type != PLAN_TYPE:
                continue
            try:
                plan = NodePlan.model_validate_json(message.value)
            except ValidationError as error:
                poison[message.partition, message.offset] = str(error)[:500]
                continue
            if newest is None or (plan.epoch, plan.number) >= (newest.epoch, newest.number):
                newest = plan
        if newest is not None and newest.node_id == self._node_id:
            self._apply(newest)
        if poison:
            raise PoisonFound(poison)

    def _apply(self, plan: NodePlan) -> None:
        applied = self._node.apply(plan)
        if not applied or self._node.wants_plan:
            self._ask_report()
