"""Plans and events on their way out: none is lost by a broker that is away, and of plans the newest counts."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from makeway_runtime.errors import PublishUncertain
from makeway_runtime.kafka.messages import Outgoing
from makeway_scheduler import outlet as outlet_module
from makeway_scheduler.outlet import Outlet
from makeway_scheduler.records import Event
from makeway_schemas.states import JobState


class Broker:
    """Takes messages once its gate is open; the first ones not, if it is `away`."""

    def __init__(self) -> None:
        self.sent: list[list[bytes | None]] = []
        self.away = 0
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        self.begun.set()
        await self.gate.wait()
        if self.away:
            self.away -= 1
            raise PublishUncertain("away")
        self.sent.append([each.value if each.topic == "node.plans" else each.key for each in messages])


def event(job_id: str = "00000000zzzz") -> Event:
    return Event(job_id=job_id, kind="queued", state=JobState.QUEUED, at=1.0)


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
async def outlet(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Outlet]:
    monkeypatch.setattr(outlet_module, "_PAUSE_SECONDS", 0.001)
    made = Outlet(broker, pool="default")  # type: ignore[arg-type]
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def sent(broker: Broker, times: int) -> None:
    async with asyncio.timeout(20):
        while len(broker.sent) < times:
            await asyncio.sleep(0)


async def test_of_several_plans_of_a_node_the_newest_goes_out(broker: Broker, outlet: Outlet) -> None:
    outlet.put_plan("a", "1", b"one")
    outlet.put_plan("a", "2", b"two")
    outlet.put_plan("b", "3", b"three")
    await sent(broker, 1)
    assert broker.sent == [[b"two", b"three"]]


async def test_a_plan_that_is_made_while_an_older_one_is_sent_goes_out_next(broker: Broker, outlet: Outlet) -> None:
    broker.gate.clear()
    outlet.put_plan("a", "1", b"one")
    await asyncio.wait_for(broker.begun.wait(), 20)
    outlet.put_plan("a", "2", b"two")
    broker.gate.set()
    await sent(broker, 2)
    assert broker.sent == [[b"one"], [b"two"]]


async def test_what_was_not_acknowledged_goes_out_again(broker: Broker, outlet: Outlet) -> None:
    broker.away = 2
    outlet.put_plan("a", "1", b"one")
    outlet.put_events([(5, event())])
    await sent(broker, 1)
    assert broker.sent == [[b"one", b"00000000zzzz"]]


async def test_an_event_is_on_its_way_until_its_row_says_that_it_was_published(broker: Broker, outlet: Outlet) -> None:
    """Else the sweeper would send it a second time."""
    broker.gate.clear()
    outlet.put_events([(5, event())])
    await asyncio.wait_for(broker.begun.wait(), 20)
    assert (outlet.waiting(5), outlet.published()) == (True, ())
    broker.gate.set()
    await sent(broker, 1)
    while not outlet.published():
        await asyncio.sleep(0)
    assert (outlet.waiting(5), outlet.published()) == (True, (5,))
    outlet.marked([5])
    assert (outlet.waiting(5), outlet.published()) == (False, ())


async def test_what_waits_for_a_broker_is_bounded_and_plans_are_not_left_out(
    broker: Broker, outlet: Outlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweeper finds the events beyond it."""
    monkeypatch.setattr(outlet_module, "_MOST_EVENTS", 2)
    broker.gate.clear()
    outlet.put_events((number, event()) for number in range(5))
    outlet.put_plan("a", "1", b"one")
    assert [number for number in range(5) if outlet.waiting(number)] == [0, 1]
    broker.gate.set()
    await sent(broker, 1)
    assert broker.sent[0][0] == b"one"
