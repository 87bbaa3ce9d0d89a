"""One step of a pool, in memory and in the database together: all of it or nothing.

Memory is changed under the ledger's undo journal, `decide()` runs on it, one call commits what is different, and only
then memory is kept and plans and events go out. On any error memory is as it was.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import structlog
from makeway_policy.choices import Choice
from makeway_policy.decide import decide
from makeway_schemas.facts import Fact, GpuHealthChanged, NodeFact

from makeway_scheduler import apply_nodes, meters, releases
from makeway_scheduler.apply import apply
from makeway_scheduler.drains import explain_stays
from makeway_scheduler.enact import enact
from makeway_scheduler.errors import Fenced
from makeway_scheduler.explanations import explain_waits
from makeway_scheduler.ledger import Ledger
from makeway_scheduler.memory import made_to_last
from makeway_scheduler.outlet import Outlet
from makeway_scheduler.plans import PlanMaker
from makeway_scheduler.policy_values import synchronise
from makeway_scheduler.store import Committed, Store
from makeway_scheduler.writes import Writes, collect, renumber

_LOG: Final = structlog.get_logger(__name__)
PAUSED_SECONDS: Final = 1.0
"""How soon it is tried again where nothing may be decided now."""
MOST_CHOICES: Final = 128
"""So many choices are committed together; an urgent job that comes meanwhile waits for no more of them."""


class Steps:
    """Carries steps out for as long as this process owns the pool."""

    def __init__(self, ledger: Ledger, store: Store, outlet: Outlet) -> None:
        """``ledger`` is loaded and has its epoch."""
        self._ledger = ledger
        self._store = store
        self._outlet = outlet
        self._plans = PlanMaker()
        self._clock_offset = 0.0
        self._next_wake: float | None = None
        self._decide_again_at: float | None = 0.0
        self.may_decide: Callable[[], bool] = lambda: True
        """Whether the broker answers: without it no start and no preemption is decided."""

    def set_clock(self, database_now: float) -> None:
        """Times are the database's, carried by our steady clock between its answers."""
        self._clock_offset = database_now - time.monotonic()

    @property
    def now(self) -> float:
        """The database's clock, seconds since the epoch."""
        return time.monotonic() + self._clock_offset

    @property
    def due_at(self) -> float | None:
        """When time alone asks for a step; None: only facts do."""
        return min((at for at in (self._next_wake, self._decide_again_at) if at is not None), default=None)

    def decide_again(self, after_seconds: float = 0.0) -> None:
        """Have the next step come soon, whether or not facts do."""
        self._decide_again_at = self.now + after_seconds

    async def attempt(self, facts: Sequence[Fact], silent: Sequence[str], *, choose: bool, skip_locked: bool) -> None:
        """Apply, decide, commit. On any error memory is as it was."""
        ledger = self._ledger
        now = self.now
        ledger.begin()
        try:
            wake, again = self._next_wake, self._decide_again_at
            with made_to_last():
                self._apply(facts, silent, now)
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
            # The sampler speaks of a card also where nobody is there to start or stop anything.
            if isinstance(fact, NodeFact) and not isinstance(fact, GpuHealthChanged):
                self._ledger.heard_at[fact.node_id] = time.monotonic()
            apply(self._ledger, fact, now)
        names: set[str] = set()
        for team in self._ledger.new_teams:
            known = self._ledger.state.teams.get(team.team_id)
            if known == team:
                continue
            # What a team has used this month grows by itself: no right of it has changed by that.
            if known is None or replace(known, gpu_hours_used=team.gpu_hours_used) != team:
                names.add(team.team_id)
            self._ledger.state.put_team(team)
        if names:
            releases.release_all(self._ledger, "the rights of its team have changed", now, names)
        for node_id in silent:
            apply_nodes.apply_silence(self._ledger, node_id, now)
        synchronise(self._ledger, now)

    def _choose(self, now: float) -> tuple[float | None, float | None]:
        """Decide and write the choices into the ledger. Returns when to wake, and when to decide again."""
        if not self.may_decide():
            return self._next_wake, now + PAUSED_SECONDS
        with meters.DECIDE_SECONDS.time():
            decisions = decide(self._ledger.state, self._ledger.policy, now, most=MOST_CHOICES)
        explain_waits(self._ledger, decisions.choices, now)
        for choice in decisions.choices:
            meters.CHOICES.labels(type(choice).__name__.lower()).inc()
            enact(self._ledger, choice, now)
        synchronise(self._ledger, now)
        explain_stays(self._ledger, now)
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

    def look(self) -> tuple[Choice, ...]:
        """What would be chosen now; memory stays as it is."""
        self._ledger.begin()
        try:
            decisions = decide(self._ledger.state, self._ledger.policy, self.now, most=MOST_CHOICES)
            return decisions.choices
        except Exception as error:  # noqa: BLE001 - a policy that fails for one job must not stop the pool
            job_id = getattr(error, "job_id", None)
            _LOG.exception("deciding failed", job=job_id)
            return ()
        finally:
            self._ledger.rollback()

    async def change(self, change: Callable[[], Any]) -> None:
        """One change of the ledger, committed by itself."""
        self._ledger.begin()
        try:
            change()
            synchronise(self._ledger, self.now)
            await self._commit(skip_locked=True)
        except BaseException:
            self._ledger.rollback()
            raise
