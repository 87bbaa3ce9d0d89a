"""Who owns the pool: a session advisory lock picks the owner, the epoch fences the former one.

1. hold the pool's advisory lock on a connection of its own; a standby waits for it
2. raise the epoch (waits for the former owner's transaction), load everything
3. read the inbox from some seconds ago, and what nobody told from the database
4. run the cycle until the lock's session ends (give up), or a commit is uncertain, stale or fenced by a number that a
   node has heard of (take over again from oneself: step 2)
"""

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog
from makeway_policy.rules import Policy
from makeway_runtime import retry
from makeway_runtime.cloudevents import EventHeaders, to_headers
from makeway_runtime.errors import CommitUncertain
from makeway_runtime.kafka.dead_letters import EVENT_TYPE, DeadLetters
from makeway_runtime.kafka.delivery import Delivery
from makeway_runtime.kafka.loop import HotLoop, LoopOptions
from makeway_runtime.kafka.messages import Outgoing
from makeway_runtime.kafka.publisher import Publisher
from makeway_runtime.postgres.pool import DedicatedConnection
from makeway_runtime.postgres.transient import is_transient
from makeway_schemas.facts import Fact, FactBatch
from makeway_schemas.topics import DEAD_LETTERS, SCHEDULER_INBOX

from makeway_scheduler import meters
from makeway_scheduler.cycle import Cycle
from makeway_scheduler.errors import Fenced, Stale
from makeway_scheduler.inbox import MOST_IN_A_BATCH, Inbox
from makeway_scheduler.ledger import Ledger
from makeway_scheduler.memory import Memory
from makeway_scheduler.outlet import Outlet
from makeway_scheduler.policies import begin_with_policy, look_for_policy
from makeway_scheduler.records import Event
from makeway_scheduler.settings import SchedulerSettings
from makeway_scheduler.store import MOST_UNAPPLIED, Store

_LOG: Final = structlog.get_logger(__name__)
STANDBY_SECONDS: Final = 0.5
_DEAF_SECONDS: Final = 5.0
SIGN_SECONDS: Final = 3.0
"""How often an owner says that it lives. After three that are missing, admission says that it does not answer."""


class Owner:
    """Stands by, takes the pool, runs its cycle, gives it up; for ever."""

    def __init__(self, settings: SchedulerSettings, store: Store, publisher: Publisher, policy: Policy) -> None:
        """Nothing happens before ``run``."""
        self._settings = settings
        self._store = store
        self._publisher = publisher
        self._policy = policy
        self._name = settings.owner_name or f"{socket.gethostname()}/{os.getpid()}"
        self._heard_epoch = 0
        self._memory = Memory()
        self.cycle: Cycle | None = None
        self.loop: HotLoop | None = None
        self.state = "standby"

    async def run(self) -> None:
        """Own the pool whenever nobody else does, until cancelled."""
        while True:
            async for attempt in retry.backoff(initial_seconds=0.2, longest_seconds=3.0, retry_on=is_transient):
                with attempt:
                    await self._stand_by()

    async def _stand_by(self) -> None:
        lost = asyncio.Event()
        session = await DedicatedConnection.open(self._settings, service="scheduler-owner", on_lost=lost.set)
        try:
            while not await session.try_lock(f"pool/{self._settings.pool}"):  # noqa: ASYNC110 - another process has it
                await asyncio.sleep(STANDBY_SECONDS)
            await self._own(lost)
        finally:
            self.state = "standby"
            meters.OWNER.set(0)
            await session.close()

    async def _own(self, lost: asyncio.Event) -> None:
        """Run the pool until the session with the lock ends; take over from oneself as often as it takes."""
        while not lost.is_set():
            term = asyncio.create_task(self._term())
            ended = asyncio.create_task(lost.wait())
            try:
                await asyncio.wait([term, ended], return_when=asyncio.FIRST_COMPLETED)
                if term.done():
                    term.result()
            except (CommitUncertain, Stale, Fenced) as error:
                meters.CONFLICTS.labels("takeover").inc()
                _LOG.warning("taking the pool over again", reason=str(error))
            finally:
                for task in (term, ended):
                    task.cancel()
                await asyncio.gather(term, ended, return_exceptions=True)

    async def _term(self) -> None:
        """One epoch, from taking the pool to the first thing that ends it."""
        self.state = "taking over"
        ledger = Ledger(self._settings.pool, self._policy)
        ledger.epoch = await self._store.take_pool(self._name, self._heard_epoch)
        await begin_with_policy(ledger, self._store, self._policy)
        await self._store.load(ledger)
        self._memory.look_through()
        inbox = Inbox(self._settings.pool)
        outlet = Outlet(self._publisher, pool=self._settings.pool)
        cycle = Cycle(ledger, self._store, inbox, outlet, self._set_aside)
        cycle.steps.set_clock(await self._store.clock())
        inbox.put(await self._store.unapplied(ever=True))
        loop = self._reader(inbox)
        cycle.steps.may_decide = lambda: loop.last_poll_at is not None and _fresh(loop.last_poll_at)
        cycle.hears = lambda: loop.caught_up
        self.cycle, self.loop = cycle, loop
        self.state = "owner"
        meters.OWNER.set(1)
        _LOG.info("owns the pool", epoch=ledger.epoch, jobs=len(ledger.jobs), runs=len(ledger.runs))
        try:
            async with asyncio.TaskGroup() as group:
                for work in (loop.run(), outlet.run(), self._patiently(cycle), self._sweep(ledger, inbox, outlet)):
                    group.create_task(work)
                group.create_task(self._give_signs())
        except ExceptionGroup as errors:
            self._heard_epoch = max(self._heard_epoch, ledger.epoch_heard)
            ours = errors.subgroup((CommitUncertain, Stale, Fenced))
            raise (ours or errors).exceptions[0] from errors
        finally:
            self.cycle = self.loop = None

    async def _patiently(self, cycle: Cycle) -> None:
        """The cycle, through a database that is away for a while."""
        while True:
            async for attempt in retry.backoff(initial_seconds=0.1, longest_seconds=2.0, retry_on=is_transient):
                with attempt:
                    await cycle.run()

    async def _give_signs(self) -> None:
        """Say that this process lives: the pool's lock stays with one that hangs."""
        while True:
            async for attempt in retry.backoff(initial_seconds=0.5, longest_seconds=3.0, retry_on=is_transient):
                with attempt:
                    await self._store.give_sign()
            await asyncio.sleep(SIGN_SECONDS)

    def _reader(self, inbox: Inbox) -> HotLoop:
        options = LoopOptions(
            topic=SCHEDULER_INBOX,
            partitions=(SCHEDULER_INBOX.partition_of(self._settings.pool),),
            start=datetime.now(UTC) - timedelta(seconds=self._settings.replay_seconds),
        )
        letters = DeadLetters(self._publisher, topic=DEAD_LETTERS.name, source=self._source)
        delivery = Delivery(handler=inbox.handle, on_poison=letters)
        return HotLoop(self._settings, options, delivery, client=f"scheduler-{self._settings.pool}")

    @property
    def _source(self) -> str:
        return f"makeway/scheduler/{self._settings.pool}"

    async def _sweep(self, ledger: Ledger, inbox: Inbox, outlet: Outlet) -> None:
        """What nobody told: unapplied jobs and commands, unpublished events, teams, the policy; and old history."""
        round_number = 0
        ever = True  # until a page is not full: more may have waited for an owner than taking over has read
        while True:
            await asyncio.sleep(self._settings.sweep_seconds)
            async for attempt in retry.backoff(initial_seconds=0.5, longest_seconds=5.0, retry_on=is_transient):
                with attempt:
                    await self._refresh_teams(ledger, inbox)
                    if len(inbox) < MOST_IN_A_BATCH:  # else most of what would be found is waiting there already
                        found = await self._store.unapplied(ever=ever)
                        ever = len(found) >= MOST_UNAPPLIED
                        inbox.put([fact for fact in found if not _is_known(ledger, fact)])
                    await self._sweep_events(outlet)
                    if await look_for_policy(ledger, self._store):
                        inbox.wake.set()
                    if round_number % 60 == 0:
                        await self._store.delete_old(
                            events_days=self._settings.events_days, decisions_days=self._settings.decisions_days
                        )
            self._memory.set_apart(idle=not len(inbox))
            round_number += 1

    async def _sweep_events(self, outlet: Outlet) -> None:
        rows = [row for row in await self._store.unpublished_events() if not outlet.waiting(row["event_id"])]
        outlet.put_events([(row["event_id"], _event(dict(row))) for row in rows])
        published = outlet.published()
        if published:
            await self._store.mark_published(published)
            outlet.marked(published)

    async def _refresh_teams(self, ledger: Ledger, inbox: Inbox) -> None:
        teams, ledger.teams_version = await self._store.load_teams()
        if any(ledger.state.teams.get(team.team_id) != team for team in teams):
            ledger.new_teams = tuple(teams)
            inbox.wake.set()

    async def _set_aside(self, fact: Fact, reason: str) -> None:
        headers = to_headers(
            EventHeaders(
                id=f"dead-letter/{fact.id}",
                type=EVENT_TYPE,
                source=self._source,
                time=datetime.now(UTC),
                subject=fact.id,
                extensions={"reason": reason[:900]},
            )
        )
        body = FactBatch(source=self._source, facts=(fact,)).model_dump_json().encode()
        await self._publisher.publish(
            [Outgoing(topic=DEAD_LETTERS.name, key=SCHEDULER_INBOX.name.encode(), value=body, headers=headers)]
        )


def _fresh(last_poll_at: float) -> bool:
    return time.monotonic() - last_poll_at < _DEAF_SECONDS


def _is_known(ledger: Ledger, fact: Fact) -> bool:
    return fact.kind == "job_admitted" and (fact.job.job_id in ledger.jobs or fact.job.job_id in ledger.ended)


def _event(row: Mapping[str, Any]) -> Event:
    names = ("job_id", "kind", "state", "at", "run_number", "data", "causation_id", "traceparent")
    return Event(**{name: row[name] for name in names})
