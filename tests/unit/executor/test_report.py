"""What a report says of runs and GPUs: the scheduler books by it what no other message told."""

from __future__ import annotations

from pathlib import Path

from makeway_executor.facts import Teller
from makeway_executor.gpu_status import GpuStatusFile
from makeway_executor.gpu_watch import GpuWatch, WatchOptions
from makeway_executor.reconcile import Phase
from makeway_executor.report import NodeIdentity, NodeMoment, node_report
from makeway_executor.run import Run
from makeway_executor.run_folder import RunFolder
from makeway_runtime.devices.port import GpuInfo
from makeway_runtime.devices.simulated import SimulatedDevices
from makeway_schemas.facts import NodeReport, RunEnd
from makeway_schemas.plans import LeasedGpu
from plans import planned, run_id

IDENTITY = NodeIdentity(
    teller=Teller(node_id="n", session="s", boot_id="b"), pool="p", simulated=True, cpus=1, memory_mib=1, labels={},
    version="1",
)  # fmt: skip
MOMENT = NodeMoment(sequence=1, applied=(2, 3), wants_plan=False, refusal="")
GPUS = ("GPU-0", "GPU-1")


def a_run(folder: Path, phase: Phase, *held: str) -> Run:
    gpus = tuple(LeasedGpu(gpu_id=gpu, vram_mib=1) for gpu in GPUS)
    run = Run(folder=RunFolder(folder, run_id(1)), planned=planned(1, gpus=gpus), phase=phase)
    run.held_gpus = set(held)
    if phase is Phase.ENDED:
        run.end = RunEnd(outcome="exited", exit_code=0)
    return run


def report(folder: Path, *runs: Run, gone: str = "") -> NodeReport:
    cards = [
        (GpuInfo(uuid=gpu, index=0, name="A", type_name="A", vram_mib=1, reserved_mib=0), gpu != gone) for gpu in GPUS
    ]
    devices = SimulatedDevices("2xA100-80GB", node="n", state_dir=folder)
    options = WatchOptions(quarantine_after_seconds=1, probation_seconds=1)
    watch = GpuWatch(devices, {}, options, GpuStatusFile(folder / "gpus.json", boot_id="b"))
    return node_report(IDENTITY, MOMENT, cards, watch, runs)


def test_a_run_that_lives_is_told_with_the_gpus_that_it_holds_and_none_that_is_empty(tmp_path: Path) -> None:
    (told,) = report(tmp_path, a_run(tmp_path, Phase.RUNNING, *GPUS)).runs
    assert (told.state, told.held_gpus, told.empty_gpus, told.end) == ("running", GPUS, (), None)


def test_a_run_that_waits_proves_no_gpu_empty(tmp_path: Path) -> None:
    (told,) = report(tmp_path, a_run(tmp_path, Phase.WAITING)).runs
    assert (told.held_gpus, told.empty_gpus) == ((), ())


def test_a_run_that_has_ended_is_told_with_those_that_are_empty_and_those_that_are_not(tmp_path: Path) -> None:
    (told,) = report(tmp_path, a_run(tmp_path, Phase.ENDED, "GPU-1")).runs
    assert (told.held_gpus, told.empty_gpus) == (("GPU-1",), ("GPU-0",))


def test_a_run_that_is_booked_is_told_no_more(tmp_path: Path) -> None:
    run = a_run(tmp_path, Phase.ENDED)
    run.booked = True
    assert report(tmp_path, run).runs == ()


def test_a_card_that_is_gone_is_told_as_lost_and_one_that_was_not_looked_at_is_not_offered(tmp_path: Path) -> None:
    assert [gpu.condition for gpu in report(tmp_path, gone="GPU-1").gpus] == ["quarantined", "lost"]
