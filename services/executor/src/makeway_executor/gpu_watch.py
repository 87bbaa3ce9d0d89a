"""Proof that GPUs are empty, and what keeps one from being offered: a process that will not go, or a stranger.

A GPU is free of a run when the run's process tree is gone and the device shows no process that could be the run's. On
a shared card processes of other live runs do not count, and neither do strangers that were there before the run.
It is looked at when the run has ended, then after 2, 5, 10 ms and so on. After `quarantine_after_seconds` the GPU is
quarantined; once proven empty it stays so for a probation. A stranger makes it occupied for as long as it is there.
All this outlives the executor, and a card that was not looked at since its start is not offered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from makeway_runtime.devices.port import Devices, DevicesUnknown

from makeway_executor import clock, orphans
from makeway_executor.gpu_status import GpuStatus, GpuStatusFile
from makeway_executor.run import Run

PAUSES_SECONDS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

Condition = Literal["ok", "occupied", "quarantined", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """See the settings of the same names."""

    quarantine_after_seconds: float
    probation_seconds: float


class GpuWatch:
    """The GPUs of this node. `runs` is a live view of the node's runs."""

    def __init__(self, devices: Devices, runs: Mapping[str, Run], options: WatchOptions, file: GpuStatusFile) -> None:
        """Looks at nothing yet; reads what an earlier executor knew."""
        self._devices = devices
        self._runs = runs
        self._options = options
        self._file = file
        self._status = file.load()

    async def prove_empty(self, run: Run, on_empty: Callable[[str], None], on_first_look: Callable[[], None]) -> None:
        """Looks until each of the run's GPUs is empty. `on_empty` gets each one that is.

        `on_first_look` is called once, when every GPU was looked at for the first time.
        """
        begun_ns = clock.now_ns()
        look = 0
        while True:
            await self._look_at(run, on_empty)
            if look == 0:
                on_first_look()
            if not run.held_gpus:
                return
            if clock.age_seconds(begun_ns) >= self._options.quarantine_after_seconds:
                for gpu_id in run.held_gpus:
                    self._of(gpu_id).stuck_runs.add(run.run_id)
                self._file.keep(self._status)
            await asyncio.sleep(PAUSES_SECONDS[min(look, len(PAUSES_SECONDS) - 1)])
            look += 1

    async def look_for_strangers(self, gpu_ids: Iterable[str]) -> None:
        """Notes for each GPU the processes on it that belong to no run of this node."""
        for gpu_id in gpu_ids:
            status = self._of(gpu_id)
            self._let_go_of_the_unknown(gpu_id)
            try:
                pids = [process.pid for process in await self._devices.processes(gpu_id)]
            except DevicesUnknown as error:
                status.unknown = str(error)
                continue
            status.unknown = ""
            if not self._is_being_left(gpu_id):  # what is still on a card then may be the ended run's own
                status.strangers = frozenset(pid for pid in pids if self._owner_of(pid) is None)
        self._file.keep(self._status)

    def note_lost(self, present: Collection[str]) -> None:
        """To be called with the cards that are there before the others are reported as lost.

        That word releases them from runs that have ended, of which they are not proven empty: should one come back, it
        is quarantined until it is.
        """
        for run in self._runs.values():
            for gpu_id in () if run.alive else run.held_gpus.difference(present):
                self._of(gpu_id).stuck_runs.add(run.run_id)
        self._file.keep(self._status)

    def condition(self, gpu_id: str) -> tuple[Condition, str]:
        """How the GPU may be offered, and a sentence for people when it may not."""
        status = self._of(gpu_id)
        if status.stuck_runs:
            return "quarantined", f"not empty since the end of {', '.join(sorted(status.stuck_runs))}"
        if clock.now_ns() < status.probation_until_ns:
            return "quarantined", "empty again, in probation"
        if status.strangers:
            pids = ", ".join(str(pid) for pid in sorted(status.strangers))
            return "occupied", f"used by processes that are none of makeway's: {pids}"
        if status.unknown:
            # Quarantined, it would be released by an ended run that is not yet proven to be gone from it.
            return "occupied" if self._is_being_left(gpu_id) else "quarantined", status.unknown
        return "ok", ""

    def _is_being_left(self, gpu_id: str) -> bool:
        """Whether a run has ended of which the GPU is not yet proven empty."""
        return any(gpu_id in run.held_gpus and not run.alive for run in self._runs.values())

    def _let_go_of_the_unknown(self, gpu_id: str) -> None:
        """A run that an earlier executor did not see gone, and of which nothing is left here: the probation begins."""
        status = self._of(gpu_id)
        held = {run.run_id for run in self._runs.values() if gpu_id in run.held_gpus}
        if status.stuck_runs - held:
            status.stuck_runs &= held
            self._begin_probation(status)

    def _begin_probation(self, status: GpuStatus) -> None:
        status.probation_until_ns = clock.now_ns() + int(self._options.probation_seconds * 1e9)

    async def _look_at(self, run: Run, on_empty: Callable[[str], None]) -> None:
        for gpu_id in sorted(run.held_gpus):
            try:
                pids = [process.pid for process in await self._devices.processes(gpu_id)]
            except DevicesUnknown:
                continue  # no answer is no proof
            if not any(self._could_be_of(run, pid, gpu_id) for pid in pids):
                self._emptied(run, gpu_id)
                on_empty(gpu_id)

    def _emptied(self, run: Run, gpu_id: str) -> None:
        run.held_gpus.discard(gpu_id)
        status = self._of(gpu_id)
        if run.run_id in status.stuck_runs:
            status.stuck_runs.discard(run.run_id)
            self._begin_probation(status)
            self._file.keep(self._status)

    def _could_be_of(self, run: Run, pid: int, gpu_id: str) -> bool:
        if pid in self._of(gpu_id).strangers:
            return False
        owner = self._owner_of(pid)
        return owner is None or owner == run.run_id

    def _owner_of(self, pid: int) -> str | None:
        """The live run that a process belongs to, by one of its ancestors or by the mark that it was started with.

        Ancestors are the run's main process or its shim. The mark is all there is of what an earlier executor has
        started as long as its shim has not told, and for good where the main process was gone by then.
        """
        alive = [run for run in self._runs.values() if run.alive]
        pids = {run.shim_pid: run.run_id for run in alive} | {run.pid: run.run_id for run in alive}
        marks = {run.control_path: run.run_id for run in alive if run.control_path}
        ancestors = orphans.ancestors(pid)
        known = next((pids[each] for each in ancestors if each in pids), None)
        marked = (marks[mark] for each in ancestors for mark in orphans.marks_of(each) if mark in marks)
        return known or next(marked, None)

    def _of(self, gpu_id: str) -> GpuStatus:
        return self._status.setdefault(gpu_id, GpuStatus())
