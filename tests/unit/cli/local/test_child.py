"""Keeping one process running: real processes, probes made up."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from makeway.local.child import Child, ChildPlan, Pace, Trouble
from makeway.local.processes import Launch
from makeway.local.state_file import ChildState, ChildStatus

FAST = Pace(
    first_delay_seconds=0.01,
    start_seconds=0.2,
    silent_seconds=0.2,
    probe_starting_seconds=0.01,
    probe_healthy_seconds=0.01,
)
Start = Callable[..., Child]


class Probe:
    """Answers what it was told last."""

    def __init__(self, trouble: Trouble | None) -> None:
        self.trouble = trouble

    async def __call__(self) -> Trouble | None:
        return self.trouble


SILENT = Trouble(sentence="says nothing", silent=True)
AILING = Trouble(sentence="has no broker", silent=False)


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    started: list[Child] = []

    def begin(probe: Probe, script: str = "exec sleep 60", heard: list[ChildStatus] | None = None) -> Child:
        launch = Launch(
            command=("sh", "-c", script),
            environment={"PATH": "/usr/bin:/bin"},
            working_dir=tmp_path,
            log_path=tmp_path / "log",
            stop_seconds=0.3,
        )
        plan = ChildPlan(name="it", launch=lambda: launch, probe=probe, pace=FAST)
        child = Child(plan, (heard if heard is not None else []).append)
        child.start()
        started.append(child)
        return child

    yield begin
    for child in started:
        await child.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_process_that_never_answers_is_replaced(start: Start) -> None:
    child = start(Probe(SILENT))
    await until(lambda: child.status.restarts >= 1)
    assert child.status.reason == "gave no answer for 0.2 s (says nothing) and was killed"


async def test_a_process_that_falls_silent_is_replaced_but_an_ailing_one_is_not(start: Start) -> None:
    probe = Probe(None)
    heard: list[ChildStatus] = []
    child = start(probe, heard=heard)
    await child.until_healthy()
    first = child.status.process
    probe.trouble = AILING
    await until(lambda: child.status.state is ChildState.UNHEALTHY)
    async with asyncio.timeout(5):
        for _ in range(2 * round(FAST.silent_seconds / FAST.probe_healthy_seconds)):
            await asyncio.sleep(FAST.probe_healthy_seconds)
    assert child.status.process == first
    probe.trouble = SILENT
    await until(lambda: child.status.restarts == 1)
    probe.trouble = None
    await until(lambda: child.status.state is ChildState.HEALTHY)
    assert child.status.process != first
    assert [status.state for status in heard].count(ChildState.UNHEALTHY) >= 1


async def test_what_ignores_the_stop_signal_is_killed_after_its_time(start: Start, tmp_path: Path) -> None:
    child = start(Probe(None), script="trap '' TERM; touch ready; while :; do sleep 0.05; done")
    await until((tmp_path / "ready").exists)
    process = child._process
    assert process is not None
    await child.stop()
    assert process.returncode == -9
    assert child.status.state is ChildState.STOPPED


async def test_a_stopped_child_is_not_started_again(start: Start) -> None:
    child = start(Probe(None))
    await child.until_healthy()
    await child.stop()
    assert child.status.process is None
    assert child.status.restarts == 0
