"""From a plan and what the node knows to what has to be done. Pure: no clock, no files, no processes.

For each run of the plan, in its order:

1. RUN, not known here: start it once its predecessors are settled; until then it waits. Not from a plan that was made
   for another session: whoever made it does not know what is here. If it has started, as the scheduler knows, a
   tombstone: its time here is over.
2. RUN, waiting: start it as soon as its predecessors are settled.
3. RUN, alive: only its time limit may have changed. RUN, ended: nothing; the scheduler has not booked the end yet.
4. STOP, not started: a tombstone, for whatever session the plan was made. STOP, alive: the notice. Ended: nothing.
5. WITHDRAW, not started: a tombstone. WITHDRAW, started: nothing; RunStarted is the answer.

Then, for each run that is known and not in the plan: settled, it is booked; waiting, it was never wanted after all;
alive, it is left alone and goes on being reported, since an outage of ours stops nobody's work.

A predecessor is a run named in `after`, and any other run that still holds a GPU that this run needs whole, or whole
itself: the node checks for itself that nothing is oversold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from makeway_schemas.plans import NodePlan, PlannedRun, Verb


class Phase(StrEnum):
    """Where a run is on its node."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    NOTICED = "noticed"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRun:
    """What the node knows of a run. `planned` is None where only its end is left."""

    phase: Phase
    planned: PlannedRun | None
    held_gpus: frozenset[str]
    """GPUs that are not yet proven empty of it."""

    @property
    def settled(self) -> bool:
        """Ended, and each of its GPUs is proven empty."""
        return self.phase is Phase.ENDED and not self.held_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start this run now."""

    planned: PlannedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Remember this run: it starts once its predecessors are settled."""

    planned: PlannedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveNotice:
    """Ask the run's shim to stop it."""

    planned: PlannedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class BuryUnstarted:
    """Write a tombstone: the run never starts here."""

    planned: PlannedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTimeLimit:
    """The run's time limit, counted from its start, is another one now."""

    planned: PlannedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """The run is booked, or was never wanted: it may go."""

    run_id: str


Action = Start | Wait | GiveNotice | BuryUnstarted | ChangeTimeLimit | Forget


def is_stale(plan: NodePlan, applied: tuple[int, int]) -> bool:
    """Whether a plan is older than the (epoch, number) that was applied last."""
    return (plan.epoch, plan.number) < applied


def decide(plan: NodePlan, known: Mapping[str, KnownRun], *, session: str) -> tuple[Action, ...]:
    """Returns what to do, in order. Applying the same plan again gives only what is still to be done."""
    held = {run_id: run for run_id, run in known.items() if not run.settled}
    coming = {run.run_id for run in plan.runs if run.run_id not in known}
    actions: list[Action] = []
    for planned in plan.runs:
        action = _for_planned(planned, known.get(planned.run_id), may_start=plan.session == session)
        if isinstance(action, Wait) and not _blocked(planned, held, coming - {planned.run_id}):
            action = Start(planned=planned)
        if isinstance(action, Start):
            held[planned.run_id] = _as_started(planned)
        if isinstance(action, Start | BuryUnstarted):
            coming.discard(planned.run_id)
        if action is not None and not (isinstance(action, Wait) and planned.run_id in known):
            actions.append(action)
    wanted = {planned.run_id for planned in plan.runs}
    actions += [Forget(run_id=run_id) for run_id, run in known.items() if run_id not in wanted and _may_go(run)]
    return tuple(actions)


def startable(known: Mapping[str, KnownRun]) -> tuple[PlannedRun, ...]:
    """The waiting runs whose predecessors are settled by now, in the order in which they came to be known."""
    held = {run_id: run for run_id, run in known.items() if not run.settled}
    found: list[PlannedRun] = []
    for run in known.values():
        if run.phase is Phase.WAITING and run.planned is not None and not _blocked(run.planned, held, ()):
            found.append(run.planned)
            held[run.planned.run_id] = _as_started(run.planned)
    return tuple(found)


def _for_planned(planned: PlannedRun, run: KnownRun | None, *, may_start: bool) -> Action | None:
    unstarted = run is None or run.phase is Phase.WAITING
    if planned.verb is Verb.RUN:
        if run is not None and run.phase in (Phase.STARTING, Phase.RUNNING):
            changed = run.planned is not None and run.planned.time_limit_seconds != planned.time_limit_seconds
            return ChangeTimeLimit(planned=planned) if changed else None
        if not unstarted or not may_start:
            return None
        # It ran here and was booked since: the scheduler's database was set back. No run starts twice.
        return BuryUnstarted(planned=planned) if run is None and planned.started else Wait(planned=planned)
    if unstarted:
        return BuryUnstarted(planned=planned)
    if planned.verb is Verb.STOP and run is not None and run.phase is not Phase.ENDED:
        return GiveNotice(planned=planned)
    return None


def _blocked(planned: PlannedRun, held: Mapping[str, KnownRun], coming: Iterable[str]) -> bool:
    if any(run_id in held or run_id in coming for run_id in planned.after):
        return True
    return any(_in_the_way(planned, run) for run_id, run in held.items() if run_id != planned.run_id)


def _in_the_way(planned: PlannedRun, other: KnownRun) -> bool:
    if other.phase is Phase.WAITING:
        return False
    for gpu in planned.gpus:
        if gpu.gpu_id not in other.held_gpus:
            continue
        others = () if other.planned is None else other.planned.gpus
        if gpu.whole or any(its.whole for its in others if its.gpu_id == gpu.gpu_id):
            return True
    return False


def _may_go(run: KnownRun) -> bool:
    return run.phase is Phase.WAITING or run.settled


def _as_started(planned: PlannedRun) -> KnownRun:
    return KnownRun(phase=Phase.STARTING, planned=planned, held_gpus=frozenset(gpu.gpu_id for gpu in planned.gpus))
