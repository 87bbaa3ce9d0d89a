"""All runs of this node, and the one place where they change.

1. A plan comes (`apply`): refused when older than the last one, else `reconcile.decide` says what to do.
2. A start: folder, lock, intent, shim. From then on the shim tells what happens (`run_events`).
3. An end: the GPUs are proven empty, RunExited goes out, and runs that waited for it start by themselves.
4. A plan without an ended run: it is booked; its folder goes once its log is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog
from makeway_schemas.facts import RunEnd
from makeway_schemas.plans import NodePlan, PlannedRun, Stop, Verb
from makeway_schemas.states import StopCause

from makeway_executor import clock, ends, launch, orphans, reconcile, shim
from makeway_executor.errors import InvalidIntent, SpawnFailed
from makeway_executor.gpu_watch import GpuWatch
from makeway_executor.plan_number import PlanNumberFile
from makeway_executor.reconcile import Phase
from makeway_executor.run import Run
from makeway_executor.run_events import RunEvents
from makeway_executor.run_folder import RunFolder

_LOG: Final = structlog.get_logger(__name__)

FIRST_LOOK_SECONDS: Final = 0.2
"""A driver that takes longer to answer does not hold up the news that a run has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParts:
    """What a node stands on. `refusal` says why a run may not start here now, empty when it may."""

    run_root: Path
    folders: launch.NodeFolders
    spawner: shim.Spawner
    watch: GpuWatch
    plan_number: PlanNumberFile
    refusal: Callable[[PlannedRun], str]
    start_delay_seconds: float = 0.0


class Node:
    """Holds the runs. Every method belongs to the event loop's thread."""

    def __init__(self, events: RunEvents, parts: NodeParts) -> None:
        """`events.runs` is shared with whoever looks at the runs; only this class adds and removes."""
        self.runs = events.runs
        self._events = events
        self._parts = parts
        self._tasks: set[asyncio.Task[None]] = set()
        self._delayed: set[str] = set()
        self._changed = asyncio.Event()
        self._doomed: list[Run] = []
        self.applied = parts.plan_number.read()
        """(epoch, number) of the newest plan that was applied."""
        self.wants_plan = True
        """No plan was applied yet that was made for this session."""
        self.on_ended: Callable[[Run], None] = lambda run: None
        """Called when a run's end is known: its log is complete."""
        self.on_booked: Callable[[Run], None] = self.remove
        """Called when a run is booked; `remove` is to be called once its folder may go."""
        events.on_end = self.end_run

    def apply(self, plan: NodePlan) -> bool:
        """Makes true what the plan says, as far as that can be now. False when it is stale and nothing was done."""
        if reconcile.is_stale(plan, self.applied):
            _LOG.info("a stale plan was refused", plan=(plan.epoch, plan.number), applied=self.applied)
            return False
        if (plan.epoch, plan.number) != self.applied:
            self.applied = (plan.epoch, plan.number)
            self._remember_number()
        self.wants_plan = plan.session != self._events.session
        for planned in plan.runs:
            self._learn(planned)
        known = {run_id: run.known() for run_id, run in self.runs.items()}
        for action in reconcile.decide(plan, known, session=self._events.session):
            self._perform(action)
        self._start_waiting()
        return True

    def end_run(self, run: Run, end: RunEnd, *, ended_ns: int | None = None) -> None:
        """A run is over and no process of its tree is left: prove its GPUs empty and tell."""
        run.end = end
        run.ended_ns = ended_ns or clock.now_ns()
        run.phase = Phase.ENDED
        self._changed.set()
        self.on_ended(run)
        self.spawn_task(self._prove_empty(run))

    def remove(self, run: Run) -> None:
        """A booked run's folder goes."""
        self.runs.pop(run.run_id, None)
        self._doomed.append(run)
        if len(self._doomed) == 1:
            self.spawn_task(self._remove_folders())

    def resume(self, run: Run) -> None:
        """A shim is followed again: it is asked for everything, and told what it may have missed."""
        if run.link is None:
            return
        run.link.send(shim.watch_line(run.key))
        self._send_time_limit(run)
        if run.stop_wanted is not None:
            run.stop_sent = None
            self._send_stop(run)

    async def drain(self, grace_seconds: float) -> None:
        """Stops every run, as ours, and returns once all have ended."""
        for run in list(self.runs.values()):
            stop = Stop(cause=StopCause.DRAIN, grace_seconds=grace_seconds)
            if run.planned is not None:
                stop = stop.model_copy(update={"signal": run.planned.signal})
            if run.phase is Phase.WAITING and run.planned is not None:
                self._bury(run.planned.model_copy(update={"verb": Verb.STOP, "stop": stop}))
            elif run.alive:
                run.stop_wanted = stop
                self._send_stop(run)
        while any(run.phase is not Phase.ENDED for run in self.runs.values()):
            self._changed.clear()
            await self._changed.wait()

    def spawn_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` beside everything else; what it raises is logged."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def close(self) -> None:
        """Lets go of all runs, which live on."""
        for task in list(self._tasks):
            task.cancel()
        for run in self.runs.values():
            if run.link is not None:
                run.link.close()
        self._parts.spawner.close()
        self._parts.plan_number.close()
        if self._parts.folders.cgroup is not None:
            with contextlib.suppress(OSError):  # in use by the runs that live on, or gone
                self._parts.folders.cgroup.rmdir()

    def _remember_number(self) -> None:
        try:
            self._parts.plan_number.write(self.applied)
        except OSError as error:  # a full disk must not keep a stop from being obeyed
            _LOG.warning("the plan's number is kept in memory alone", error=str(error))

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("a task of the node failed", exc_info=task.exception())

    def _learn(self, planned: PlannedRun) -> None:
        """A run of which only its end was left here: the plan knows its GPUs, which are proven empty and told now."""
        run = self.runs.get(planned.run_id)
        if run is not None:
            run.limit_wanted = None  # what an older plan wanted
        if run is None or run.planned is not None or run.end is None:
            return
        run.planned = planned
        if run.end.outcome != "never_started":
            run.held_gpus = {gpu.gpu_id for gpu in planned.gpus}
        run.exit_told = False
        self.spawn_task(self._prove_empty(run))

    def _perform(self, action: reconcile.Action) -> None:
        match action:
            case reconcile.Start(planned=planned):
                self._start(planned)
            case reconcile.Wait(planned=planned):
                self.runs[planned.run_id] = self._new_run(planned, Phase.WAITING)
            case reconcile.GiveNotice(planned=planned):
                self._give_notice(planned)
            case reconcile.BuryUnstarted(planned=planned):
                self._bury(planned)
            case reconcile.ChangeTimeLimit(planned=planned):
                self._change_time_limit(planned)
            case reconcile.Forget(run_id=run_id):
                self._forget(self.runs[run_id])

    def _new_run(self, planned: PlannedRun, phase: Phase) -> Run:
        return Run(
            folder=RunFolder(self._parts.run_root, planned.run_id),
            planned=planned,
            phase=phase,
            held_gpus=set() if phase is Phase.WAITING else {gpu.gpu_id for gpu in planned.gpus},
        )

    def _start_waiting(self) -> None:
        known = {run_id: run.known() for run_id, run in self.runs.items()}
        for planned in reconcile.startable(known):
            self._start(planned)

    def _start(self, planned: PlannedRun) -> None:
        if planned.run_id in self._delayed:
            return
        refusal = self._parts.refusal(planned)
        if refusal:
            self._bury(planned, refusal)
        elif self._parts.start_delay_seconds > 0:
            self._delayed.add(planned.run_id)
            self.runs[planned.run_id] = self._new_run(planned, Phase.WAITING)
            asyncio.get_running_loop().call_later(self._parts.start_delay_seconds, self._start_delayed, planned)
        else:
            self._launch(planned)

    def _start_delayed(self, planned: PlannedRun) -> None:
        self._delayed.discard(planned.run_id)
        run = self.runs.get(planned.run_id)
        if run is not None and run.phase is Phase.WAITING:
            self._launch(planned)

    def _launch(self, planned: PlannedRun) -> None:
        run = self._new_run(planned, Phase.STARTING)
        self.runs[planned.run_id] = run
        lock = -1
        try:
            lock = run.folder.create()
            key = secrets.token_hex(8)
            intent = launch.prepare(
                planned, run.folder, self._parts.folders, key=key, boot_id=self._events.teller.boot_id
            )
            run.folder.write_intent(intent)
            run.boot_id, run.key = intent.boot_id, key
            run.control_path, run.cgroup = intent.control_path, intent.cgroup
            spawning, lock = lock, -1  # closed by the spawner, whatever happens
            run.shim_pid, connection = self._parts.spawner.spawn(run.folder, spawning, intent.control_path)
        except (InvalidIntent, SpawnFailed, OSError) as error:
            _LOG.warning("a run could not be started", run_id=planned.run_id, error=str(error))
            # What is wrong with the job ends it; what is wrong with this node is not its fault.
            failed = ends.start_failed if isinstance(error, InvalidIntent) else ends.start_lost
            self._end_unstarted(run, failed(str(error)), lock=lock if lock >= 0 else None)
            return
        try:
            self._events.attach(run, connection)
        except OSError as error:
            # Out of descriptors, say: the run goes on, and its shim is asked again until it answers.
            _LOG.warning("a run is not followed yet", run_id=planned.run_id, error=str(error))
            connection.close()
            self._events.on_shim_gone(run)

    def _bury(self, planned: PlannedRun, message: str = "") -> None:
        self._delayed.discard(planned.run_id)
        run = self._new_run(planned, Phase.WAITING)
        self.runs[planned.run_id] = run
        lock = None
        try:
            lock = run.folder.create()
        except OSError as error:
            _LOG.warning("a tombstone is kept in memory alone", run_id=run.run_id, error=str(error))
        cause = None if planned.stop is None else planned.stop.cause
        self._end_unstarted(run, ends.never_started(cause, message), lock=lock)

    def _end_unstarted(self, run: Run, end: RunEnd, *, lock: int | None) -> None:
        run.held_gpus.clear()
        if lock is not None:
            self.write_end(run, end, lock)
        self.end_run(run, end)

    def write_end(self, run: Run, end: RunEnd, lock: int) -> None:
        """Writes the end of a run without a shim, and lets its lock go. A full disk leaves it in memory alone."""
        try:
            run.folder.write_end(ends.record_of(end, run.planned))
        except OSError as error:
            _LOG.warning("an end is kept in memory alone", run_id=run.run_id, error=str(error))
        finally:
            os.close(lock)

    def _give_notice(self, planned: PlannedRun) -> None:
        run = self.runs[planned.run_id]
        run.stop_wanted = planned.stop
        self._send_stop(run)

    def _send_stop(self, run: Run) -> None:
        stop = run.stop_wanted
        if stop is None or run.stop_sent is stop.cause:
            return
        number = signal.Signals[stop.signal.value].value
        if run.link is not None and run.link.send(shim.stop_line(stop.cause.value, stop.grace_seconds, number)):
            run.stop_sent = stop.cause

    def _change_time_limit(self, planned: PlannedRun) -> None:
        run = self.runs[planned.run_id]
        run.limit_wanted = planned
        self._send_time_limit(run)

    def _send_time_limit(self, run: Run) -> None:
        planned = run.limit_wanted
        if planned is None:
            return
        remaining, started_ns = planned.time_limit_seconds, run.started_ns or run.folder.started_ns()
        if remaining is not None and started_ns is not None:
            remaining = max(0.0, remaining - clock.age_seconds(started_ns))
        if run.link is not None and run.link.send(shim.time_limit_line(remaining)):
            run.planned, run.limit_wanted = planned, None

    def _forget(self, run: Run) -> None:
        if run.booked:
            return
        if run.phase is Phase.WAITING:
            self._delayed.discard(run.run_id)
            del self.runs[run.run_id]
            return
        run.booked = True
        if run.planned is not None and run.end is not None:
            launch.mark_finished(run.planned, run.end, self._parts.folders.checkpoints)
        self.on_booked(run)

    async def _remove_folders(self) -> None:
        while self._doomed:
            going = list(self._doomed)
            await asyncio.to_thread(_remove_files, going)
            del self._doomed[: len(going)]

    async def _prove_empty(self, run: Run) -> None:
        timer = asyncio.get_running_loop().call_later(FIRST_LOOK_SECONDS, self._events.tell_exited, run)
        try:
            await self._parts.watch.prove_empty(
                run,
                on_empty=lambda gpu_id: self._events.tell_empty(run, gpu_id),
                on_first_look=lambda: self._events.tell_exited(run),
            )
        finally:
            timer.cancel()
        self._start_waiting()


def _remove_files(runs: list[Run]) -> None:
    """In a thread: a file system that is busy takes milliseconds for a folder."""
    for run in runs:
        if run.control_path:
            Path(run.control_path).unlink(missing_ok=True)
        if run.cgroup is not None:
            orphans.remove_cgroup(Path(run.cgroup))
        run.folder.remove()
