"""Simulated cards: real processes on pretended devices, and a hook that changes what they show."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from makeway_runtime.devices.port import DevicesUnknown, HealthKind
from makeway_runtime.devices.proc import is_alive, read_stat
from makeway_runtime.devices.select import open_devices
from makeway_runtime.devices.simulated import HOOKS_FILE, SimulatedDevices, parse, register, unregister, uuid_of
from makeway_runtime.devices.types import type_name_of

CARD = uuid_of("node-a", 0)


def devices(state_dir: Path, specification: str = "2xA100-80GB") -> SimulatedDevices:
    return SimulatedDevices(specification, node="node-a", state_dir=state_dir)


def hook(state_dir: Path, value: object) -> None:
    (state_dir / "sim").mkdir(exist_ok=True)
    (state_dir / "sim" / HOOKS_FILE).write_text(json.dumps({CARD: value}))


@contextmanager
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("specification", "cards"),
    [
        ("1xA100-80GB", ("A100-80GB",)),
        ("2xh100-80gb, 1xT4", ("H100-80GB", "H100-80GB", "T4-16GB")),
    ],
)
def test_a_specification_gives_a_type_for_each_card(specification: str, cards: tuple[str, ...]) -> None:
    assert parse(specification) == cards


@pytest.mark.parametrize(
    ("specification", "says"),
    [
        ("4", "as in 4xA100-80GB"),
        ("0xA100-80GB", "as in 4xA100-80GB"),
        ("1xA100-81GB", "did you mean A100-80GB"),
        ("1xA100", "A100-40GB or A100-80GB"),
        ("9999xA100-80GB", "more than 1024"),
    ],
)
def test_a_wrong_specification_is_refused_with_its_mend(specification: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse(specification)


async def test_uuids_stay_the_same_and_differ_by_node_and_index(tmp_path: Path) -> None:
    first, second = await devices(tmp_path).inventory()
    assert first.uuid == CARD == uuid_of("node-a", 0)
    assert len({first.uuid, second.uuid, uuid_of("node-b", 0)}) == 3
    assert (first.type_name, first.vram_mib) == ("A100-80GB", 81920)


async def test_a_registered_process_shows_until_it_is_gone(tmp_path: Path) -> None:
    cards = devices(tmp_path)
    with child() as process:
        register(tmp_path, CARD, "run-1", {process.pid: 512})
        assert [(p.pid, p.used_mib) for p in await cards.processes(CARD)] == [(process.pid, 512)]
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not is_alive(process.pid), "a zombie holds no device"
        assert await cards.processes(CARD) == ()
    assert await cards.processes(CARD) == ()


async def test_a_number_that_was_used_again_does_not_count(tmp_path: Path) -> None:
    stat = read_stat(os.getpid())
    folder = tmp_path / "sim" / CARD
    folder.mkdir(parents=True)
    (folder / "run-1").write_text(f"{os.getpid()} {(stat.start_ticks if stat else 0) - 1} 10\n")
    assert await devices(tmp_path).processes(CARD) == ()


async def test_an_unregistered_run_no_longer_shows(tmp_path: Path) -> None:
    register(tmp_path, CARD, "run-1", {os.getpid(): 1})
    unregister(tmp_path, CARD, "run-1")
    unregister(tmp_path, CARD, "run-1")
    assert await devices(tmp_path).processes(CARD) == ()


async def test_the_hook_adds_stuck_and_foreign_processes(tmp_path: Path) -> None:
    hook(tmp_path, {"processes": [{"pid": os.getpid(), "used_mib": 7}, {"pid": 2**22 + 1, "stuck": True}]})
    assert [p.pid for p in await devices(tmp_path).processes(CARD)] == [os.getpid(), 2**22 + 1]


async def test_unknown_readings_are_none_not_zero(tmp_path: Path) -> None:
    hook(tmp_path, {"readings": {"utilisation_percent": 55.5, "vram_used_mib": None}})
    sample = (await devices(tmp_path).samples())[0]
    assert sample.utilisation_percent == 55.5
    assert sample.vram_used_mib is None
    assert "vram_used_mib" in sample.missing
    assert "temperature_celsius" in sample.missing
    assert "utilisation_percent" not in sample.missing


async def test_a_card_is_as_busy_as_its_processes(tmp_path: Path) -> None:
    cards = devices(tmp_path)
    register(tmp_path, CARD, "run-1", {os.getpid(): 3})
    first = (await cards.samples())[0]
    deadline = time.monotonic() + 0.1
    while time.monotonic() < deadline:
        pass
    second = (await cards.samples())[0]
    assert first.utilisation_percent is None
    assert second.utilisation_percent is not None
    assert second.utilisation_percent > 0
    assert second.vram_used_mib == 3


async def test_health_events_are_told_once_each(tmp_path: Path) -> None:
    cards = devices(tmp_path)
    events = [{"kind": "xid", "code": 79, "fatal": True, "detail": "fell off the bus"}]
    hook(tmp_path, {"events": events})
    assert [(e.uuid, e.kind, e.code) for e in await cards.health_events()] == [(CARD, HealthKind.XID, 79)]
    assert await cards.health_events() == ()
    hook(tmp_path, {"events": [*events, {"kind": "recovered", "fatal": False}]})
    assert [e.kind for e in await cards.health_events()] == [HealthKind.RECOVERED]


@pytest.mark.parametrize("left", [None, {}, {"events": []}])
async def test_a_card_whose_faults_are_taken_from_the_hook_is_well_again(tmp_path: Path, left: object) -> None:
    cards = devices(tmp_path)
    fault = {"kind": "xid", "code": 79, "fatal": True}
    hook(tmp_path, {"events": [fault, fault]})
    assert len(await cards.health_events()) == 2
    if left is None:
        (tmp_path / "sim" / HOOKS_FILE).unlink()
    else:
        hook(tmp_path, left)
    assert [(e.uuid, e.kind, e.fatal) for e in await cards.health_events()] == [(CARD, HealthKind.RECOVERED, False)]
    assert await cards.health_events() == ()
    hook(tmp_path, {"events": [fault]})
    assert [e.kind for e in await cards.health_events()] == [HealthKind.XID]


async def test_a_lost_card_is_unknown_not_empty(tmp_path: Path) -> None:
    hook(tmp_path, {"lost": True})
    cards = devices(tmp_path)
    assert len(await cards.inventory()) == 1
    with pytest.raises(DevicesUnknown):
        await cards.processes(CARD)


@pytest.mark.parametrize(("file", "text"), [(HOOKS_FILE, "{"), (f"{CARD}/run-1", "1 2\n")])
async def test_a_broken_file_is_unknown_not_empty(file: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "sim" / CARD).mkdir(parents=True)
    (tmp_path / "sim" / file).write_text(text)
    with pytest.raises(DevicesUnknown):
        await devices(tmp_path).processes(CARD)


async def test_simulated_devices_load_no_driver_module(tmp_path: Path) -> None:
    opened = await open_devices(simulate="1xT4", node="node-a", state_dir=tmp_path)
    assert opened.simulated
    code = "import makeway_runtime.devices.select, sys; sys.exit('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "vram_mib", "type_name"),
    [
        ("NVIDIA A100-SXM4-80GB", 81920, "A100-80GB"),
        ("NVIDIA A100-PCIE-40GB", 40960, "A100-40GB"),
        ("NVIDIA H100 80GB HBM3", 81559, "H100-80GB"),
        ("NVIDIA H100 NVL", 95830, "H100-94GB"),
        ("NVIDIA H200", 143771, "H200-141GB"),
        ("Tesla T4", 15360, "T4-16GB"),
        ("Tesla V100-SXM2-16GB", 16384, "V100-16GB"),
        ("NVIDIA GeForce RTX 4090", 24564, "RTX4090-24GB"),
        ("NVIDIA L40S", 46068, "L40S-48GB"),
        ("NVIDIA Unheard 9", 10240, "Unheard9-10GB"),
        ("", 1024, "GPU-1GB"),
    ],
)
def test_type_names_are_model_and_nominal_size(name: str, vram_mib: int, type_name: str) -> None:
    assert type_name_of(name, vram_mib) == type_name
