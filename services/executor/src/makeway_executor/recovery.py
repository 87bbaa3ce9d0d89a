"""Runs that an earlier executor left, and runs whose shim hung up.

An end lies in the folder: it is taken as it is. The lock is held: a shim lives, and is followed again. The lock is free
and there is no end: whoever finds it so writes the end. Without a usable intent nothing was started; the next plan says
on which GPUs. After a new boot no process can be left; within the same boot
the shim died alone, and what is left of its tree is stopped with the run's grace first.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import Final

import structlog
from makeway_runtime.devices.proc import is_alive
from makeway_schemas.facts import RunEnd
from makeway_schemas.plans import PlannedRun
from pydantic import ValidationError

from makeway_executor import clock, ends, orphans, shim
from makeway_executor.errors import InvalidIntent
from makeway_executor.node import Node
from makeway_executor.reconcile import Phase
from makeway_executor.run import Run
from makeway_executor.run_events import RunEvents
from makeway_executor.run_folder import Record, RunFolder, existing_folders

_LOG: Final = structlog.get_logger(__name__)

_PAUSE_SECONDS: Final = 0.05


class Recovery:
    """Finds out what became of runs whose shim is not followed now."""

    def __init__(self, node: Node, events: RunEvents) -> None:
        """Takes over the runs whose shims hang up."""
        self._node = node
        self._events = events
        events.on_shim_gone = lambda run: node.spawn_task(self.find_out(run))

    def adopt_all(self, run_root: Path) -> None:
        """Takes in every run folder. What has to wait for something goes on beside."""
        for folder in existing_folders(run_root):
            run = _remembered(folder)
            self._events.runs[run.run_id] = run
            record = folder.read_end()
            if record is None:
                self._node.spawn_task(self.find_out(run))
            else:
                self._take_end(run, record)

    async def find_out(self, run: Run) -> None:
        """Follows the run's shim again, or learns or writes its end."""
        while True:
            lock = run.folder.try_lock()
            if lock is not None:
                break
            connection = shim.connect(run.control_path)
            if connection is not None and self._attach(run, connection):
                self._node.resume(run)
                return
            await asyncio.sleep(_PAUSE_SECONDS)  # it has closed its socket and is about to end
        record = run.folder.read_end()
        if record is None:
            await self._write_end(run, lock)
        else:
            os.close(lock)
            self._take_end(run, record)

    def _attach(self, run: Run, connection: socket.socket) -> bool:
        try:
            self._events.attach(run, connection)
        except OSError as error:
            _LOG.warning("a run is not followed yet", run_id=run.run_id, error=str(error))
            connection.close()
            return False
        return True

    def _take_end(self, run: Run, record: Record) -> None:
        if run.planned is None and record.get("planned") is not None:
            run.planned = PlannedRun.model_validate(record["planned"])
        end = ends.end_of(record, run.planned)
        if end.outcome == "never_started":
            run.held_gpus.clear()
        same_boot = record.get("boot_id") == self._events.teller.boot_id
        self._events.ended_without_shim(run)
        self._node.end_run(run, end, ended_ns=ends.ended_at_ns(record) if same_boot else None)

    async def _write_end(self, run: Run, lock: int) -> None:
        started = run.folder.read_started()
        if run.planned is None and started is None:
            # The intent is whole before a shim is made, so there never was one.
            self._end(run, ends.never_started(None, "its executor ended before it could be started"), lock)
            return
        why, until_ns = "the node was restarted", None
        if run.boot_id == self._events.teller.boot_id:
            why, until_ns = "its shim died", clock.now_ns()
            await self._stop_what_is_left(run, started)
        _LOG.warning("a run was lost", run_id=run.run_id, why=why)
        journal = run.folder.read_journal()
        ran_seconds = ends.seconds_known(started, journal, until_ns=until_ns)
        self._end(run, ends.lost(why, journal, run.folder.log_size(), ran_seconds), lock)

    def _end(self, run: Run, end: RunEnd, lock: int) -> None:
        self._node.write_end(run, end, lock)
        self._events.ended_without_shim(run)
        self._node.end_run(run, end)

    async def _stop_what_is_left(self, run: Run, started: Record | None) -> None:
        main = None if started is None else (int(started["pid"]), int(started["start_ticks"]))
        marks = orphans.Marks(control_path=run.control_path, cgroup=run.cgroup, main=main)
        grace_seconds, number = 0.0, signal.SIGTERM.value
        if run.planned is not None:
            grace_seconds = run.planned.grace_seconds
            number = signal.Signals[run.planned.signal.value].value
        await orphans.stop_tree(marks, grace_seconds=grace_seconds, signal_number=number)


def _remembered(folder: RunFolder) -> Run:
    run = Run(folder=folder, planned=None, phase=Phase.STARTING)
    try:
        kept = folder.read_intent()
        run.planned = PlannedRun.model_validate_json(kept.planned)
    except (InvalidIntent, FileNotFoundError, ValidationError) as error:
        _LOG.info("a run folder without a usable intent", run_id=folder.run_id, error=str(error))
        return run
    run.key, run.control_path, run.cgroup, run.boot_id = kept.key, kept.control_path, kept.cgroup, kept.boot_id
    run.held_gpus = {gpu.gpu_id for gpu in run.planned.gpus}
    started = folder.read_started()
    if started is not None and is_alive(int(started["pid"]), int(started["start_ticks"])):
        run.pid = int(started["pid"])  # its shim will say so too, but the cards are looked at before
        run.shim_pid = orphans.parent_of(run.pid, int(started["start_ticks"]))
    return run
