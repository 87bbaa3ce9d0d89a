"""Facts on their way: in order, batched, none dropped, ages at the time of sending."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from makeway_executor import clock
from makeway_executor.outlet import MAX_FACTS, Outlet
from makeway_runtime.errors import PublishUncertain
from makeway_runtime.kafka.messages import Outgoing
from makeway_schemas.facts import Ack, CheckpointAcked, FactBatch, NodeReport, PlanNumber, RunStarted
from makeway_schemas.topics import SCHEDULER_INBOX
from plans import run_id


class Broker:
    """Takes messages when it is there."""

    def __init__(self) -> None:
        self.batches: list[FactBatch] = []
        self.away = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.tries = 0

    async def publish(self, messages: list[Outgoing]) -> None:
        self.tries += 1
        await self.gate.wait()
        if self.away:
            raise PublishUncertain("away")
        for message in messages:
            assert message.partition == SCHEDULER_INBOX.partition_of("pool")
            self.batches.append(FactBatch.model_validate_json(message.value or b""))

    @property
    def numbers(self) -> list[int]:
        return [fact.pid for batch in self.batches for fact in batch.facts if isinstance(fact, RunStarted)]


def started(number: int) -> RunStarted:
    return RunStarted(id=f"s{number}", node_id="n", session="s", run_id=run_id(1), pid=number, age_seconds=0.0)


def report() -> NodeReport:
    return NodeReport(
        id="r",
        node_id="n",
        session="s",
        pool="pool",
        boot_id="b",
        sequence=1,
        plan=PlanNumber(epoch=0, number=0),
        cpus=1,
        memory_mib=1,
    )


@asynccontextmanager
async def running(broker: Broker) -> AsyncIterator[Outlet]:
    outlet = Outlet(broker, node_id="n", pool="pool", build_report=report)
    task = asyncio.create_task(outlet.run())
    yield outlet
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_single_fact_goes_at_once_and_what_comes_meanwhile_goes_together() -> None:
    broker = Broker()
    async with running(broker) as outlet:
        broker.gate.clear()
        outlet.put(started(1), at_ns=clock.now_ns())
        while not broker.tries:
            await asyncio.sleep(0)
        for number in range(2, 6):
            outlet.put(started(number), at_ns=clock.now_ns())
        broker.gate.set()
        await asyncio.wait_for(outlet.flushed(), 5)
    assert broker.numbers == [1, 2, 3, 4, 5]
    assert [len(batch.facts) for batch in broker.batches] == [1, 4]


async def test_a_message_is_bounded() -> None:
    broker = Broker()
    async with running(broker) as outlet:
        for number in range(MAX_FACTS + 1):
            outlet.put(started(number), at_ns=clock.now_ns())
        await asyncio.wait_for(outlet.flushed(), 5)
    assert [len(batch.facts) for batch in broker.batches] == [MAX_FACTS, 1]


async def test_facts_wait_for_a_broker_that_is_away_and_tell_their_age() -> None:
    broker = Broker()
    broker.away = True
    async with running(broker) as outlet:
        outlet.put(started(1), at_ns=clock.now_ns() - 5_000_000_000)
        ack = CheckpointAcked(id="a", node_id="n", session="s", run_id=run_id(1), ack=Ack(step=1))
        outlet.put(ack, at_ns=clock.now_ns() - 7_000_000_000)
        outlet.ask_report()
        while broker.tries < 2:
            await asyncio.sleep(0.01)
        broker.away = False
        await asyncio.wait_for(outlet.flushed(), 10)
        assert outlet.waiting == 0
    facts = [fact for batch in broker.batches for fact in batch.facts]
    assert [fact.kind for fact in facts] == ["run_started", "checkpoint_acked", "node_report"]
    assert isinstance(facts[0], RunStarted)
    assert isinstance(facts[1], CheckpointAcked)
    assert 5 <= facts[0].age_seconds < 20
    assert 7 <= facts[1].ack.age_seconds < 22


async def test_reports_that_nobody_took_are_one() -> None:
    broker = Broker()
    async with running(broker) as outlet:
        for _ in range(5):
            outlet.ask_report()
        await asyncio.wait_for(outlet.flushed(), 5)
    assert [len(batch.facts) for batch in broker.batches] == [1]


async def test_a_report_comes_after_all_facts_that_it_tells_of() -> None:
    broker = Broker()
    async with running(broker) as outlet:
        outlet.ask_report()
        for number in range(MAX_FACTS + 1):
            outlet.put(started(number), at_ns=clock.now_ns())
        await asyncio.wait_for(outlet.flushed(), 5)
    kinds = [fact.kind for batch in broker.batches for fact in batch.facts]
    assert kinds == ["run_started"] * (MAX_FACTS + 1) + ["node_report"]
