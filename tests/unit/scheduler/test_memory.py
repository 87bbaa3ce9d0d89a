"""The owner's memory: kept or taken back as one; facts wait in order; of plans only the newest goes out."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from makeway_runtime.cloudevents import EventHeaders
from makeway_runtime.errors import PublishUncertain
from makeway_runtime.kafka.messages import Incoming, Outgoing, PoisonFound
from makeway_scheduler.inbox import MOST_IN_A_BATCH, Inbox
from makeway_scheduler.journal import Table
from makeway_scheduler.outlet import Outlet
from makeway_scheduler.records import Event
from makeway_schemas.facts import BATCH_TYPE, FactBatch, RunStarted
from makeway_schemas.states import JobState


def started(number: int) -> RunStarted:
    return RunStarted(id=f"n/{number}", node_id="n", session="1", run_id="000000000001.1", pid=number, age_seconds=0.0)


def message(value: bytes, *, key: bytes = b"default", event_type: str = BATCH_TYPE, offset: int = 0) -> Incoming:
    event = EventHeaders(id="1", type=event_type, source="test", time=datetime(2026, 1, 1, tzinfo=UTC))
    return Incoming(
        topic="scheduler.inbox", partition=0, offset=offset, received=event.time, key=key, value=value, event=event
    )


def batch(*numbers: int) -> bytes:
    return FactBatch(source="n", facts=tuple(started(number) for number in numbers)).model_dump_json().encode()


class Posts:
    """Refuses as often as it is told, then takes everything."""

    def __init__(self, refusals: int = 0) -> None:
        self.refusals = refusals
        self.taken: list[Outgoing] = []

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise PublishUncertain("no broker")
        self.taken += messages


def test_a_rollback_restores_what_was_replaced_added_and_removed() -> None:
    table: Table[int] = Table()
    table.put("kept", 1)
    table.put("removed", 2)
    table.commit()
    table.put("kept", 10)
    table.put("kept", 11)
    table.put("added", 3)
    table.remove("removed")
    assert table.touched() == {"kept": 1, "added": None, "removed": 2}
    table.rollback()
    assert (table["kept"], table["removed"], "added" in table) == (1, 2, False)
    assert not table.touched()


async def test_facts_are_taken_in_order_and_a_batch_is_bounded() -> None:
    inbox = Inbox("default")
    await inbox.handle([message(batch(*range(MOST_IN_A_BATCH))), message(batch(9_000), offset=1)])
    assert [fact.id for fact in inbox.take()] == [f"n/{number}" for number in range(MOST_IN_A_BATCH)]
    assert inbox.wake.is_set()
    assert [fact.id for fact in inbox.take()] == ["n/9000"]
    assert not inbox.wake.is_set()


async def test_facts_that_are_put_back_come_first_again() -> None:
    inbox = Inbox("default")
    inbox.put([started(3)])
    inbox.put_back([started(1), started(2)])
    assert [fact.id for fact in inbox.take()] == ["n/1", "n/2", "n/3"]


async def test_another_pools_messages_are_not_ours() -> None:
    inbox = Inbox("default")
    await inbox.handle([message(batch(1), key=b"other"), message(b"{}", event_type="something.else")])
    assert len(inbox) == 0


@pytest.mark.parametrize("value", [b"", b"{", b'{"source": "n", "facts": [{"kind": "nonsense"}]}', b"\xff"])
async def test_what_cannot_be_read_is_named_and_nothing_of_its_batch_is_kept_twice(value: bytes) -> None:
    inbox = Inbox("default")
    with pytest.raises(PoisonFound) as caught:
        await inbox.handle([message(batch(1)), message(value, offset=7)])
    assert list(caught.value.reasons) == [(0, 7)]
    assert len(inbox) == 0


async def test_of_a_nodes_plans_that_wait_only_the_newest_is_sent() -> None:
    posts = Posts()
    outlet = Outlet(posts, pool="default")  # type: ignore[arg-type]
    outlet.put_plan("a", "1", b"old")
    outlet.put_plan("a", "2", b"new")
    outlet.put_plan("b", "3", b"other")
    await outlet._send()
    assert [(post.key, post.value) for post in posts.taken] == [(b"a", b"new"), (b"b", b"other")]
    await outlet._send()
    assert len(posts.taken) == 2


async def test_what_was_not_acknowledged_is_sent_again_and_marked_only_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makeway_scheduler.outlet._PAUSE_SECONDS", 0.0)
    posts = Posts(refusals=1)
    outlet = Outlet(posts, pool="default")  # type: ignore[arg-type]
    event = Event(job_id="000000000001", kind="queued", state=JobState.QUEUED, at=1.0)
    outlet.put_plan("a", "1", b"plan")
    outlet.put_events([(5, event)])
    await outlet._send()
    assert outlet.published() == ()
    assert outlet.waiting(5)
    await outlet._send()
    assert outlet.published() == (5,)
    assert len(posts.taken) == 2
    outlet.marked((5,))
    assert not outlet.waiting(5)
