"""The cycle of a pool's owner: facts in, decide, commit, publish; and what happens when a step fails.

One batch at a time (protocol.md in docs has the reasons):

1. facts are applied and ``decide()`` runs in memory, no lock held
2. one call commits everything; only then memory is kept and plans and events go out
3. a conflict, or choices that the database refuses: memory is rolled back, the facts are committed alone with
   ordinary locks, and it is decided again; choices then go job by job, and a job whose choice fails is HELD
4. facts that fail together go one by one; one that fails alone is counted and set aside as a dead letter
5. a commit whose answer is lost: nothing is published; the caller takes the pool over from itself
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

import structlog
from makeway_policy.choices import Choice
from makeway_runtime.errors import CommitUncertain
from makeway_runtime.postgres.transient import is_transient
from makeway_schemas.facts import Fact, PolicyApplied
from makeway_schemas.states import JobState

from makeway_scheduler import apply_nodes, job_moves, meters
from makeway_scheduler.enact import enact
from makeway_scheduler.errors import Conflict, Fenced, Stale
from makeway_scheduler.inbox import Inbox
from makeway_scheduler.ledger import Ledger
from makeway_scheduler.outlet import Outlet
from makeway_scheduler.policies import apply_policy, look_for_policy
from makeway_scheduler.recall import complete, look_for_teams
from makeway_scheduler.steps import Steps
from makeway_scheduler.store import Store

_LOG: Final = structlog.get_logger(__name__)
MOST_ATTEMPTS: Final = 3
RETRY_SECONDS: Final = 0.2
_TICK_SECONDS: Final = 1.0

DeadLetter = Callable[[Fact, str], Awaitable[None]]


class Cycle:
    """Runs one pool for as long as this process owns it."""

    def __init__(self, ledger: Ledger, store: Store, inbox: Inbox, outlet: Outlet, dead_letter: DeadLetter) -> None:
        """``ledger`` is loaded and has its epoch; ``dead_letter`` keeps a fact that cannot be applied."""
        self._ledger = ledger
        self._store = store
        self._inbox = inbox
        self._dead_letter = dead_letter
        self.steps = Steps(ledger, store, outlet)
        self.hears: Callable[[], bool] = lambda: True
        """Whether our own reading is up to date: else nobody's silence counts."""
        self.busy_since: float | None = None
        self._replayed: int | None = None
        """So many facts were put into the inbox until our reading first was up to date; None: it is not yet."""

    async def run(self) -> None:
        """Work until cancelled. Raises Fenced, Stale or CommitUncertain: then take over again."""
        while True:
            await self._wait()
            self.busy_since = time.monotonic()
            try:
                await self.turn()
            finally:
                self.busy_since = None

    async def turn(self) -> None:
        """One batch of whatever waits, and of whatever time has made due."""
        if self._replayed is None and self.hears():
            self._replayed = self._inbox.put_so_far
        self._ledger.replays = self._replayed is None or self._inbox.taken_so_far < self._replayed
        taken = self._inbox.take()
        try:
            if any(isinstance(fact, PolicyApplied) and fact.policy_id > self._ledger.policy_id for fact in taken):
                await look_for_policy(self._ledger, self._store)
            await self._take_policy()
            await look_for_teams(self._ledger, self._store, taken)
            facts = await complete(self._ledger, self._store, taken)
            silent = self._silent()
            if facts or silent or self._is_due() or self._ledger.new_teams:
                await self._batch(facts, silent)
        except BaseException:
            # Whatever was committed of them already is harmless to apply again.
            self._inbox.put_back(taken)
            raise

    async def _take_policy(self) -> None:
        """Take a newer policy, in a batch of its own: if it cannot be carried out, the former stays and facts go on."""
        newer = self._ledger.new_policy
        if newer is None:
            return
        try:
            past = await self._store.load_past_use(newer.policy, self._ledger.state.team)
            await self.steps.change(lambda: apply_policy(self._ledger, newer, past, self.steps.now))
            _LOG.info("decides by a policy", policy=newer.policy_id, name=newer.policy.name)
        except Conflict:
            self.steps.decide_again(RETRY_SECONDS)
            return
        except (Fenced, Stale, CommitUncertain):
            raise
        except Exception as error:
            if is_transient(error):
                raise
            _LOG.exception("a policy cannot be carried out; the former one stays", policy=newer.policy_id)
        self._ledger.policy_id = newer.policy_id
        if self._ledger.new_policy is newer:
            self._ledger.new_policy = None
        self.steps.decide_again()

    def _is_due(self) -> bool:
        at = self.steps.due_at
        return at is not None and at <= self.steps.now

    async def _wait(self) -> None:
        timeout = _TICK_SECONDS
        if self.steps.due_at is not None:
            timeout = min(timeout, max(0.0, self.steps.due_at - self.steps.now))
        try:
            async with asyncio.timeout(timeout):
                await self._inbox.wake.wait()
        except TimeoutError:
            return

    def _silent(self) -> list[str]:
        steady = time.monotonic()
        if not self.hears():
            # Our own outage ages nobody: every count starts anew from the moment we hear again.
            self._ledger.heard_at = dict.fromkeys(self._ledger.heard_at, steady)
            return []
        for node in self._ledger.nodes:
            self._ledger.heard_at.setdefault(node.node_id, steady)
        return apply_nodes.silent_nodes(self._ledger, self._ledger.heard_at, steady)

    async def _batch(self, facts: Sequence[Fact], silent: Sequence[str]) -> None:
        try:
            await self.steps.attempt(facts, silent, choose=True, skip_locked=True)
            return
        except Conflict as error:
            meters.CONFLICTS.labels("locked").inc()
            _LOG.warning("a row was held by somebody else", error=str(error))
        except (Fenced, Stale, CommitUncertain) as error:
            meters.CONFLICTS.labels(type(error).__name__.lower()).inc()
            raise
        except Exception as error:
            if is_transient(error):
                raise
            meters.CONFLICTS.labels("refused").inc()
            _LOG.exception("a batch was refused")
        await self._facts_alone(facts, silent)
        await self._choices_alone()

    async def _facts_alone(self, facts: Sequence[Fact], silent: Sequence[str]) -> None:
        """No fact is lost by a choice that failed."""
        if not facts and not silent:
            return
        try:
            await self.steps.attempt(facts, silent, choose=False, skip_locked=False)
            return
        except (Fenced, Stale, CommitUncertain):
            raise
        except Conflict as error:
            _LOG.warning("facts wait for a row that somebody else holds, trying them one by one", error=str(error))
        except Exception as error:
            if is_transient(error):
                raise
            _LOG.exception("facts failed together, trying them one by one")
        for position, fact in enumerate(facts):
            if not await self._fact_alone(fact):
                self._inbox.put_back(facts[position:])
                await asyncio.sleep(RETRY_SECONDS)
                return

    async def _fact_alone(self, fact: Fact) -> bool:
        """Apply one fact. False when it must be tried again later; after the last attempt it is set aside."""
        try:
            await self.steps.attempt([fact], (), choose=False, skip_locked=False)
            return True
        except (Fenced, Stale, CommitUncertain):
            raise
        except Conflict:
            return False  # not the fact's fault, however often
        except Exception as error:
            if is_transient(error):
                raise
            if await self._store.count_failing(fact.id, repr(error)) < MOST_ATTEMPTS:
                return False
            meters.DEAD_FACTS.inc()
            _LOG.exception("a fact cannot be applied and is set aside", fact=fact.id, kind=fact.kind)
            await self._dead_letter(fact, repr(error))
            return True

    async def _choices_alone(self) -> None:
        """Decide again; if that fails too, the choices go job by job, and a job whose choice fails is HELD."""
        try:
            await self.steps.attempt((), (), choose=True, skip_locked=True)
            return
        except Conflict:
            self.steps.decide_again(RETRY_SECONDS)
            return
        except (Fenced, Stale, CommitUncertain):
            raise
        except Exception as error:
            if is_transient(error):
                raise
            _LOG.exception("choices failed together, trying them job by job")
        for choice in self.steps.look():
            await self._choice_alone(choice)
        self.steps.decide_again(RETRY_SECONDS)

    async def _choice_alone(self, choice: Choice) -> None:
        try:
            await self.steps.change(lambda: enact(self._ledger, choice, self.steps.now))
        except (Fenced, Stale, CommitUncertain):
            raise
        except Conflict:
            return
        except Exception as error:
            if is_transient(error):
                raise
            sentence = f"its choice could not be carried out: {error}"
            _LOG.exception("a choice failed; its job is held", job=choice.job_id)
            await self.steps.change(lambda: self._hold(choice.job_id, sentence))

    def _hold(self, job_id: str, sentence: str) -> None:
        job = self._ledger.jobs.get(job_id)
        if job is None or job.state not in (JobState.QUEUED, JobState.UNSATISFIABLE):
            return
        held = job_moves.move(self._ledger, replace(job, reason_code="held", reason=sentence), JobState.HELD)
        self._ledger.tell(held, "held", self.steps.now, reason=sentence)
