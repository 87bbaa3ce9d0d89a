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
from typing import Any, Final

import structlog
from makeway_policy.choices import Choice
from makeway_policy.decide import decide
from makeway_runtime.errors import CommitUncertain
from makeway_runtime.postgres.transient import is_transient
from makeway_schemas.facts import CommandIssued, Fact, JobAdmitted, NodeCommandIssued, NodeFact, PolicyApplied
from makeway_schemas.states import JobState

from makeway_scheduler import apply_nodes, job_moves, meters, releases
from makeway_scheduler.apply import apply
from makeway_scheduler.enact import enact
from makeway_scheduler.errors import Conflict, Fenced, Stale
from makeway_scheduler.explanations import explain_waits
from makeway_scheduler.inbox import Inbox
from makeway_scheduler.ledger import Ledger
from makeway_scheduler.outlet import Outlet
from makeway_scheduler.plans import PlanMaker
from makeway_scheduler.policies import apply_policy, look_for_policy
from makeway_scheduler.policy_values import synchronise
from makeway_scheduler.store import Committed, Store
from makeway_scheduler.writes import Writes, collect, renumber

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
        self._outlet = outlet
        self._dead_letter = dead_letter
        self._plans = PlanMaker()
        self._clock_offset = 0.0
        self._next_wake: float | None = None
        self._decide_again_at: float | None = 0.0
        self.may_decide: Callable[[], bool] = lambda: True
        """Whether the broker answers: without it no start and no preemption is decided."""
        self.hears: Callable[[], bool] = lambda: True
        """Whether our own reading is up to date: else nobody's silence counts."""
        self.busy_since: float | None = None

    def set_clock(self, database_now: float) -> None:
        """Times are the database's, carried by our steady clock between its answers."""
        self._clock_offset = database_now - time.monotonic()

    @property
    def now(self) -> float:
        """The database's clock, seconds since the epoch."""
        return time.monotonic() + self._clock_offset

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
        taken = self._inbox.take()
        try:
            if any(isinstance(fact, PolicyApplied) and fact.policy_id > self._ledger.policy_id for fact in taken):
                await look_for_policy(self._ledger, self._store)
            await self._take_policy()
            await self._look_for_teams(taken)
            facts = await self._complete(taken)
            silent = self._silent()
            if facts or silent or self._is_due() or self._ledger.new_teams:
                await self._batch(facts, silent)
        except BaseException:
            # Whatever was committed of them already is harmless to apply again.
            self._inbox.put_back(taken)
            raise

    async def _look_for_teams(self, facts: Sequence[Fact]) -> None:
        """No job is decided by older rights than those it was admitted by."""
        newest = max((fact.job.teams_version for fact in facts if isinstance(fact, JobAdmitted)), default=0)
        if newest > self._ledger.teams_version:
            teams, self._ledger.teams_version = await self._store.load_teams()
            self._ledger.new_teams = tuple(teams)

    async def _take_policy(self) -> None:
        """Take a newer policy, in a batch of its own: if it cannot be carried out, the former stays and facts go on."""
        newer = self._ledger.new_policy
        if newer is None:
            return
        try:
            past = await self._store.load_past_use(newer.policy)
            await self._with_ledger(lambda: apply_policy(self._ledger, newer, past, self.now))
            _LOG.info("decides by a policy", policy=newer.policy_id, name=newer.policy.name)
        except Conflict:
            self._decide_again_at = self.now + RETRY_SECONDS
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
        self._decide_again_at = 0.0

    def _is_due(self) -> bool:
        now = self.now
        return any(at is not None and at <= now for at in (self._next_wake, self._decide_again_at))

    async def _wait(self) -> None:
        timeout = _TICK_SECONDS
        if self._next_wake is not None:
            timeout = min(timeout, max(0.0, self._next_wake - self.now))
        if self._decide_again_at is not None:
            timeout = min(timeout, max(0.0, self._decide_again_at - self.now))
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

    async def _complete(self, facts: list[Fact]) -> list[Fact]:
        """Ask the database about what memory does not know: commands that come before their job, old admissions."""
        ledger = self._ledger
        admitted = {fact.job.job_id for fact in facts if isinstance(fact, JobAdmitted)}
        unknown = {
            fact.job_id
            for fact in facts
            if isinstance(fact, CommandIssued) and fact.job_id not in ledger.jobs and fact.job_id not in admitted
        } | {
            fact.job.job_id
            for fact in facts
            if isinstance(fact, JobAdmitted)
            and fact.job.job_id not in ledger.jobs
            and (fact.job.order <= ledger.order_floor or fact.job.submitted_at.timestamp() <= ledger.loaded_at)
        }
        commands = [fact.command_id for fact in facts if isinstance(fact, CommandIssued | NodeCommandIssued)]
        if not unknown and not commands:
            return facts
        found, ended = await self._store.admitted(sorted(unknown)) if unknown else ([], set())
        done = await self._store.applied_commands(commands) if commands else set()
        skip = ended | ({fact.job.job_id for fact in facts if isinstance(fact, JobAdmitted)} & unknown)
        rest = [
            fact
            for fact in facts
            if not (isinstance(fact, JobAdmitted) and fact.job.job_id in skip)
            and not (isinstance(fact, CommandIssued | NodeCommandIssued) and fact.command_id in done)
        ]
        return [*found, *rest]

    async def _batch(self, facts: Sequence[Fact], silent: Sequence[str]) -> None:
        try:
            await self._attempt(facts, silent, choose=True, skip_locked=True)
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

    async def _attempt(self, facts: Sequence[Fact], silent: Sequence[str], *, choose: bool, skip_locked: bool) -> None:
        """Apply, decide, commit. On any error memory is as it was."""
        ledger = self._ledger
        now = self.now
        ledger.begin()
        try:
            self._apply(facts, silent, now)
            wake, again = self._next_wake, self._decide_again_at
            if choose:
                wake, again = self._choose(now)
            await self._commit(skip_locked=skip_locked)
        except BaseException:
            ledger.rollback()
            raise
        ledger.new_teams = ()
        self._next_wake = wake
        self._decide_again_at = again

    def _apply(self, facts: Sequence[Fact], silent: Sequence[str], now: float) -> None:
        for fact in facts:
            if isinstance(fact, NodeFact):
                self._ledger.heard_at[fact.node_id] = time.monotonic()
            apply(self._ledger, fact, now)
        changed = [team for team in self._ledger.new_teams if self._ledger.state.teams.get(team.team_id) != team]
        for team in changed:
            self._ledger.state.put_team(team)
        if changed:
            names = {team.team_id for team in changed}
            releases.release_all(self._ledger, "the rights of its team have changed", now, names)
        for node_id in silent:
            apply_nodes.apply_silence(self._ledger, node_id, now)
        synchronise(self._ledger, now)

    def _choose(self, now: float) -> tuple[float | None, float | None]:
        """Decide and write the choices into the ledger. Returns when to wake, and when to decide again."""
        if not self.may_decide():
            return self._next_wake, now + _TICK_SECONDS
        with meters.DECIDE_SECONDS.time():
            decisions = decide(self._ledger.state, self._ledger.policy, now)
        explain_waits(self._ledger, decisions.choices, now)
        for choice in decisions.choices:
            meters.CHOICES.labels(type(choice).__name__.lower()).inc()
            enact(self._ledger, choice, now)
        synchronise(self._ledger, now)
        return decisions.next_wake, None

    async def _commit(self, *, skip_locked: bool) -> None:
        ledger = self._ledger
        if ledger.epoch_heard > ledger.epoch:
            raise Fenced(f"a node has heard of epoch {ledger.epoch_heard}")
        renumber(ledger)
        published = self._outlet.published()
        writes = collect(ledger, published)
        if writes.empty:
            ledger.commit()
            return
        with meters.COMMIT_SECONDS.time():
            committed = await self._store.commit(ledger.epoch, writes, skip_locked=skip_locked)
        self._confirm(writes, committed)
        self._outlet.marked(published)

    def _confirm(self, writes: Writes, committed: Committed) -> None:
        """The database has confirmed: keep memory, publish."""
        ledger = self._ledger
        self.set_clock(committed.now)
        for name in ("new_jobs", "jobs"):
            for row in writes.body.get(name, ()):
                job = ledger.jobs[row["job_id"]]
                ledger.jobs.put(job.job_id, replace(job, version=job.version + 1))
        for row in writes.body.get("new_runs", ()):
            run = ledger.runs[row["run_id"]]
            ledger.runs.put(run.run_id, replace(run, stored=True))
        for gpu_id, version in committed.gpus.items():
            if gpu_id in ledger.gpus:
                ledger.gpus.put(gpu_id, replace(ledger.gpus[gpu_id], version=version))
        for node_id, version in committed.nodes.items():
            if node_id in ledger.nodes:
                ledger.nodes.put(node_id, replace(ledger.nodes[node_id], version=version))
        events = list(zip(committed.event_ids, ledger.batch.events, strict=True))
        plans_for = sorted(ledger.batch.plans_for)
        self._plans.forget([run_id for run_id in ledger.runs.touched() if ledger.runs[run_id].released])
        ledger.commit()
        for node_id in plans_for:
            node = ledger.nodes.get(node_id)
            if node is not None:
                plan_id = f"makeway/plan/{node_id}/{ledger.epoch}.{node.plan_number}"
                self._outlet.put_plan(node_id, plan_id, self._plans.make(ledger, node))
        self._outlet.put_events(events)
        meters.BATCHES.inc()

    async def _facts_alone(self, facts: Sequence[Fact], silent: Sequence[str]) -> None:
        """No fact is lost by a choice that failed."""
        if not facts and not silent:
            return
        try:
            await self._attempt(facts, silent, choose=False, skip_locked=False)
            return
        except (Fenced, Stale, CommitUncertain):
            raise
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
            await self._attempt([fact], (), choose=False, skip_locked=False)
            return True
        except (Fenced, Stale, CommitUncertain):
            raise
        except Exception as error:
            if is_transient(error):
                raise
            attempts = await self._store.count_failing(fact.id, repr(error))
            if isinstance(error, Conflict) or attempts < MOST_ATTEMPTS:
                return False
            meters.DEAD_FACTS.inc()
            _LOG.exception("a fact cannot be applied and is set aside", fact=fact.id, kind=fact.kind)
            await self._dead_letter(fact, repr(error))
            return True

    async def _choices_alone(self) -> None:
        """Decide again; if that fails too, the choices go job by job, and a job whose choice fails is HELD."""
        try:
            await self._attempt((), (), choose=True, skip_locked=True)
            return
        except Conflict:
            self._decide_again_at = self.now + RETRY_SECONDS
            return
        except (Fenced, Stale, CommitUncertain):
            raise
        except Exception as error:
            if is_transient(error):
                raise
            _LOG.exception("choices failed together, trying them job by job")
        for choice in self._look():
            await self._choice_alone(choice)
        self._decide_again_at = self.now + RETRY_SECONDS

    def _look(self) -> tuple[Choice, ...]:
        """What would be chosen now; memory stays as it is."""
        self._ledger.begin()
        try:
            decisions = decide(self._ledger.state, self._ledger.policy, self.now)
            return decisions.choices
        except Exception as error:  # noqa: BLE001 - a policy that fails for one job must not stop the pool
            job_id = getattr(error, "job_id", None)
            _LOG.exception("deciding failed", job=job_id)
            return ()
        finally:
            self._ledger.rollback()

    async def _choice_alone(self, choice: Choice) -> None:
        try:
            await self._with_ledger(lambda: enact(self._ledger, choice, self.now))
        except (Fenced, Stale, CommitUncertain):
            raise
        except Conflict:
            return
        except Exception as error:
            if is_transient(error):
                raise
            sentence = f"its choice could not be carried out: {error}"
            _LOG.exception("a choice failed; its job is held", job=choice.job_id)
            await self._with_ledger(lambda: self._hold(choice.job_id, sentence))

    async def _with_ledger(self, change: Callable[[], Any]) -> None:
        self._ledger.begin()
        try:
            change()
            synchronise(self._ledger, self.now)
            await self._commit(skip_locked=True)
        except BaseException:
            self._ledger.rollback()
            raise

    def _hold(self, job_id: str, sentence: str) -> None:
        job = self._ledger.jobs.get(job_id)
        if job is None or job.state not in (JobState.QUEUED, JobState.UNSATISFIABLE):
            return
        held = job_moves.move(self._ledger, replace(job, reason_code="held", reason=sentence), JobState.HELD)
        self._ledger.tell(held, "held", self.now, reason=sentence)
