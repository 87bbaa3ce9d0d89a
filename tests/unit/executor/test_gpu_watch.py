"""When a GPU counts as empty of a run, and when it may be offered. Law 8: free means proven empty."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from makeway_executor import clock
from makeway_executor.gpu_status import NOT_LOOKED_AT, GpuStatusFile
from makeway_executor.gpu_watch import GpuWatch, WatchOptions
from makeway_executor.reconcile import Phase
from makeway_executor.run import Run
from makeway_executor.run_folder import RunFolder
from makeway_runtime.devices.port import DevicesUnknown, GpuInfo, GpuProcess, GpuSample, HealthEvent
from plans import planned, run_id

GPU = "GPU-0"
NOBODY = 2**22 + 1
"""A process id that no process has."""


class Driver:
    """Answers in turn, then as it did last; None is no answer."""

    simulated = True

    def __init__(self, *answers: tuple[int, ...] | None) -> None:
        self.answers = list(answers)
        self.looks = 0

    async def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        self.looks += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            raise DevicesUnknown("the driver does not answer")
        return tuple(GpuProcess(pid=pid) for pid in answer)

    async def inventory(self) -> tuple[GpuInfo, ...]:
        return ()

    async def samples(self) -> tuple[GpuSample, ...]:
        return ()

    async def health_events(self) -> tuple[HealthEvent, ...]:
        return ()

    async def close(self) -> None:
        return


class Looking:
    """A watch over one card, and what it told."""

    def __init__(self, folder: Path, *answers: tuple[int, ...] | None, quarantine: float = 30.0) -> None:
        self.folder = folder
        self.driver = Driver(*answers)
        self.quarantine = quarantine
        self.runs: dict[str, Run] = {}
        self.told: list[str] = []
        self.restart()

    def restart(self, boot: str = "b") -> None:
        """A watch that follows on this one, as after a restart of the executor."""
        options = WatchOptions(quarantine_after_seconds=self.quarantine, probation_seconds=300.0)
        file = GpuStatusFile(self.folder / "gpus.json", boot_id=boot)
        self.watch = GpuWatch(self.driver, self.runs, options, file)

    def run(self, number: int, phase: Phase, *, pid: int | None = None, shim: int | None = None) -> Run:
        run = Run(folder=RunFolder(self.folder, run_id(number)), planned=planned(number), phase=phase, pid=pid)
        run.shim_pid, run.held_gpus = shim, {GPU}
        self.runs[run.run_id] = run
        return run

    async def prove(self, run: Run) -> list[str]:
        """What was told until the run's card was proven empty."""
        async with asyncio.timeout(20):
            await self.watch.prove_empty(run, self.told.append, on_first_look=lambda: self.told.append("looked"))
        return self.told


@pytest.fixture
def child() -> Iterator[int]:
    """A living process, child of this one."""
    process = subprocess.Popen(["/bin/sleep", "300"])
    yield process.pid
    process.send_signal(signal.SIGKILL)
    process.wait()


async def test_an_empty_card_is_told_at_the_first_look(tmp_path: Path) -> None:
    looking = Looking(tmp_path, ())
    assert await looking.prove(looking.run(1, Phase.ENDED)) == [GPU, "looked"]


async def test_no_answer_of_the_driver_is_no_proof(tmp_path: Path) -> None:
    looking = Looking(tmp_path, None, None, ())
    run = looking.run(1, Phase.ENDED)
    assert await looking.prove(run) == ["looked", GPU]
    assert (looking.driver.looks, run.held_gpus) == (3, set())


async def test_a_process_that_nobody_owns_may_be_the_ended_runs(tmp_path: Path) -> None:
    looking = Looking(tmp_path, (NOBODY,), (NOBODY,), ())
    assert await looking.prove(looking.run(1, Phase.ENDED, pid=NOBODY)) == ["looked", GPU]
    assert looking.driver.looks == 3


@pytest.mark.parametrize("known_by", ["its main process", "its shim"])
async def test_a_process_of_another_live_run_does_not_count(tmp_path: Path, child: int, known_by: str) -> None:
    looking = Looking(tmp_path, (child,))
    looking.run(2, Phase.RUNNING, **{"pid" if known_by == "its main process" else "shim": os.getpid()})
    assert await looking.prove(looking.run(1, Phase.ENDED)) == [GPU, "looked"]


async def test_a_process_of_another_run_that_has_ended_counts(tmp_path: Path, child: int) -> None:
    """Whose it is nobody can say: its number may have come again."""
    looking = Looking(tmp_path, (child,), ())
    looking.run(2, Phase.ENDED, pid=child)
    assert await looking.prove(looking.run(1, Phase.ENDED)) == ["looked", GPU]


async def test_a_stranger_that_was_there_before_the_end_does_not_count(tmp_path: Path) -> None:
    looking = Looking(tmp_path, (NOBODY,))
    run = looking.run(1, Phase.RUNNING)
    await looking.watch.look_for_strangers([GPU])
    assert looking.watch.condition(GPU)[0] == "occupied"
    run.phase = Phase.ENDED
    assert await looking.prove(run) == [GPU, "looked"]


async def test_what_is_on_the_card_of_an_ended_run_is_no_stranger_yet(tmp_path: Path) -> None:
    """Else what an ended run left behind would be passed over as a stranger's, and its card be free."""
    looking = Looking(tmp_path, (NOBODY,), (NOBODY,), ())
    run = looking.run(1, Phase.ENDED)
    await looking.watch.look_for_strangers([GPU])
    assert looking.watch.condition(GPU) == ("ok", "")
    assert await looking.prove(run) == ["looked", GPU]


async def test_a_card_that_does_not_become_empty_is_quarantined_and_then_in_probation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = Looking(tmp_path, (NOBODY,), (NOBODY,), (NOBODY,), (), quarantine=0.0)
    run = looking.run(1, Phase.ENDED)
    await looking.watch.look_for_strangers([GPU])
    conditions: list[tuple[str, str]] = []
    looks = looking.driver.processes

    async def processes(uuid: str) -> tuple[GpuProcess, ...]:
        conditions.append(looking.watch.condition(GPU))
        return await looks(uuid)

    monkeypatch.setattr(looking.driver, "processes", processes)
    await looking.prove(run)
    assert conditions[0] == ("ok", "")
    assert conditions[-1] == ("quarantined", f"not empty since the end of {run.run_id}")
    assert looking.watch.condition(GPU) == ("quarantined", "empty again, in probation")
    later = clock.now_ns() + 301 * 10**9
    monkeypatch.setattr(clock, "now_ns", lambda: later)
    assert looking.watch.condition(GPU) == ("ok", "")


async def test_a_card_whose_processes_the_driver_does_not_tell_is_not_offered_until_it_does(tmp_path: Path) -> None:
    looking = Looking(tmp_path, None, ())
    await looking.watch.look_for_strangers([GPU])
    assert looking.watch.condition(GPU) == ("quarantined", "the driver does not answer")
    await looking.watch.look_for_strangers([GPU])
    assert looking.watch.condition(GPU) == ("ok", "")


async def test_a_driver_that_stops_answering_takes_back_no_stranger_that_it_told(tmp_path: Path) -> None:
    looking = Looking(tmp_path, (NOBODY,), None)
    await looking.watch.look_for_strangers([GPU])
    await looking.watch.look_for_strangers([GPU])
    assert looking.watch.condition(GPU)[0] == "occupied"


async def test_a_card_that_was_not_looked_at_since_the_start_is_not_offered(tmp_path: Path) -> None:
    looking = Looking(tmp_path, ())
    assert looking.watch.condition(GPU) == ("quarantined", NOT_LOOKED_AT)
    await looking.watch.look_for_strangers([GPU])
    assert looking.watch.condition(GPU) == ("ok", "")


async def test_a_card_that_the_driver_does_not_tell_of_is_not_let_go_of_by_a_run_that_has_ended_on_it(
    tmp_path: Path,
) -> None:
    """A quarantined card is given up by the ended runs that had it: of this one nothing is proven yet."""
    looking = Looking(tmp_path, None)
    run = looking.run(1, Phase.RUNNING)
    await looking.watch.look_for_strangers([GPU])
    assert looking.watch.condition(GPU) == ("quarantined", "the driver does not answer")
    run.phase = Phase.ENDED
    assert looking.watch.condition(GPU) == ("occupied", "the driver does not answer")


async def test_a_run_that_does_not_go_keeps_its_card_quarantined_over_a_restart(tmp_path: Path) -> None:
    looking = Looking(tmp_path, (NOBODY,), quarantine=0.0)
    run = looking.run(1, Phase.ENDED)
    proving = asyncio.create_task(looking.prove(run))
    async with asyncio.timeout(10):
        while looking.watch.condition(GPU)[0] != "quarantined" or not (tmp_path / "gpus.json").exists():
            await asyncio.sleep(0.001)
    proving.cancel()
    looking.quarantine = 30.0
    looking.restart()
    await looking.watch.look_for_strangers([GPU])
    assert looking.watch.condition(GPU) == ("quarantined", f"not empty since the end of {run.run_id}")
    del looking.runs[run.run_id]  # its folder was removed by hand
    looking.restart()
    await looking.watch.look_for_strangers([GPU])
    assert looking.watch.condition(GPU) == ("quarantined", "empty again, in probation")
    looking.restart()
    looking.driver.answers = [()]
    await looking.watch.look_for_strangers([GPU])
    assert looking.watch.condition(GPU) == ("quarantined", "empty again, in probation")
    looking.restart(boot="another")
    await looking.watch.look_for_strangers([GPU])
    assert looking.watch.condition(GPU) == ("ok", "")


async def test_a_stranger_is_known_again_after_a_restart_though_a_run_has_ended_beside_it(
    tmp_path: Path, child: int
) -> None:
    looking = Looking(tmp_path, (child,))
    await looking.watch.look_for_strangers([GPU])
    run = looking.run(1, Phase.ENDED)
    looking.restart()
    await looking.watch.look_for_strangers([GPU])
    assert looking.watch.condition(GPU)[0] == "occupied"
    assert await looking.prove(run) == [GPU, "looked"]


async def test_another_process_with_a_strangers_number_is_none_that_was_there_before(
    tmp_path: Path, child: int
) -> None:
    looking = Looking(tmp_path, (child,), (child,), ())
    await looking.watch.look_for_strangers([GPU])
    file = tmp_path / "gpus.json"
    file.write_text(re.sub(r'("start_ticks":)\d+', r"\g<1>1", file.read_text()))
    looking.restart()
    assert await looking.prove(looking.run(1, Phase.ENDED)) == ["looked", GPU]


async def test_a_process_is_known_by_the_mark_of_a_live_run_while_its_shim_has_not_told(tmp_path: Path) -> None:
    process = subprocess.Popen(
        ["/bin/cat"], env={"MAKEWAY_CONTROL": "/run/of-2"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        # Before it answers it may not have its environment yet.
        process.stdin.write(b"there\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"there\n"
        looking = Looking(tmp_path, (process.pid,), (process.pid,), ())
        looking.run(2, Phase.STARTING).control_path = "/run/of-2"
        await looking.watch.look_for_strangers([GPU])
        assert looking.watch.condition(GPU) == ("ok", "")
        assert await looking.prove(looking.run(1, Phase.ENDED)) == [GPU, "looked"]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("text", ["", "[]", '{"boot_id": "b"}', '{"boot_id": "b", "gpus": {"GPU-0": 1}}'])
async def test_a_file_that_cannot_be_read_is_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "gpus.json").write_text(text)
    looking = Looking(tmp_path, ())
    await looking.watch.look_for_strangers([GPU])
    assert looking.watch.condition(GPU) == ("ok", "")


async def test_a_card_that_is_gone_and_comes_back_is_quarantined_until_the_ended_run_is_proven_gone(
    tmp_path: Path,
) -> None:
    looking = Looking(tmp_path, ())
    ended, alive = looking.run(1, Phase.ENDED), looking.run(2, Phase.RUNNING)
    looking.watch.note_lost(frozenset())
    await looking.watch.look_for_strangers([GPU])
    assert looking.watch.condition(GPU) == ("quarantined", f"not empty since the end of {ended.run_id}")
    await looking.prove(ended)
    assert looking.watch.condition(GPU) == ("quarantined", "empty again, in probation")
    assert alive.held_gpus == {GPU}


async def test_a_card_that_is_there_is_not_taken_for_lost(tmp_path: Path) -> None:
    looking = Looking(tmp_path, ())
    looking.run(1, Phase.ENDED)
    looking.watch.note_lost(frozenset({GPU}))
    await looking.watch.look_for_strangers([GPU])
    assert looking.watch.condition(GPU) == ("ok", "")
