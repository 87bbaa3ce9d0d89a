"""What a new executor says of its cards before the scheduler may place anything: never better than it was."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from desk import Desk
from makeway_runtime.devices.simulated import uuid_of
from node_runs import run_id, shell


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is none of makeway's."""
    made = subprocess.Popen(["/bin/sleep", "300"])
    yield made
    made.kill()
    made.wait()


def put_on_the_card(desk: Desk, *pids: int, lost: bool = False) -> None:
    (desk.folder / "sim").mkdir(exist_ok=True)
    hooks = {uuid_of(desk.node, 0): {"processes": [{"pid": pid} for pid in pids], "lost": lost}}
    temporary = desk.folder / "sim" / "hooks.new"
    temporary.write_text(json.dumps(hooks))
    temporary.replace(desk.folder / "sim" / "hooks.json")


def the_card(report: Any) -> tuple[str, str]:
    return report.gpus[0].condition, report.gpus[0].reason


async def restarted(desk: Desk, **environment: str) -> tuple[str, str]:
    """Kills the executor and starts another; what its very first report says of the card."""
    await desk.kill()
    desk.start(**environment)
    session = await desk.session()
    return the_card(next(fact for fact in desk.facts if fact.kind == "node_report" and fact.session == session))


async def test_a_card_with_a_strangers_process_on_it_is_not_free_in_the_first_report(
    desk: Desk, process: subprocess.Popen[bytes]
) -> None:
    put_on_the_card(desk, process.pid)
    desk.start()
    report = await desk.report(lambda report: the_card(report)[0] == "occupied")
    assert await restarted(desk) == the_card(report)


async def test_a_card_that_did_not_become_empty_stays_out_of_use_over_restarts_and_so_does_its_probation(
    desk: Desk, process: subprocess.Popen[bytes]
) -> None:
    at_once = {"MAKEWAY_QUARANTINE_AFTER_SECONDS": "0.2"}
    desk.start(**at_once)
    gate = desk.folder / "gate"
    await desk.plan(await desk.session(), desk.planned(1, shell(f"until [ -e {gate} ]; do sleep 0.05; done")))
    await desk.fact(1, "run_started")
    await desk.kill()
    put_on_the_card(desk, process.pid)
    gate.touch()
    await desk.until((desk.folder / "runs" / run_id(1) / "end.json").exists)
    desk.start(**at_once)
    report = await desk.report(lambda report: the_card(report)[0] == "quarantined")
    await desk.plan(report.session)  # its lease is released: it is in no plan any more
    assert await restarted(desk) == the_card(report)
    process.kill()
    process.wait()
    await desk.report(lambda report: the_card(report) == ("quarantined", "empty again, in probation"))
    assert await restarted(desk) == ("quarantined", "empty again, in probation")


async def test_a_card_that_was_gone_when_its_run_had_ended_comes_back_only_when_it_is_proven_empty(
    desk: Desk, process: subprocess.Popen[bytes]
) -> None:
    """While it is gone, its run's lease is released."""
    desk.start()
    gate = desk.folder / "gate"
    await desk.plan(await desk.session(), desk.planned(1, shell(f"until [ -e {gate} ]; do sleep 0.05; done")))
    await desk.fact(1, "run_started")
    await desk.kill()
    put_on_the_card(desk, process.pid, lost=True)
    gate.touch()
    await desk.until((desk.folder / "runs" / run_id(1) / "end.json").exists)
    desk.start()
    report = await desk.report(lambda report: report.runs and report.runs[0].end)
    assert uuid_of(desk.node, 0) not in [gpu.gpu_id for gpu in report.gpus]
    put_on_the_card(desk, process.pid)
    assert await restarted(desk) == ("quarantined", f"not empty since the end of {run_id(1)}")
    process.kill()
    process.wait()
    await desk.report(lambda report: the_card(report) == ("quarantined", "empty again, in probation"))


async def test_the_card_of_a_run_that_lives_on_is_well_in_the_first_report(desk: Desk) -> None:
    """Its process is known to be no stranger's before its shim has said so."""
    desk.start()
    await desk.plan(await desk.session(), desk.planned(1))
    await desk.fact(1, "run_started")
    assert await restarted(desk) == ("ok", "")
