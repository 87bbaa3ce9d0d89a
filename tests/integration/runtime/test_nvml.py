"""The real pynvml on a fake driver library: what drivers of all ages and moods answer."""

import asyncio
import ctypes
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import nvml_library
import pynvml
import pytest
from makeway_runtime.devices import nvml
from makeway_runtime.devices.nvml import NvmlDevices
from makeway_runtime.devices.port import DevicesUnknown, DriverMissing, HealthEvent, HealthKind
from makeway_runtime.devices.select import open_devices

A100 = (
    "card uuid=GPU-a name=NVIDIA_A100-SXM4-80GB bus=00000000:07:00.0 total=81920 reserved=500 used=1000"
    " gpu=55 mem=12 power=250500 temp=41 sm=1410 memclk=1215 numa=1 mig=0 events=0x8"
)
BARE = "card uuid=GPU-b name=Tesla_T4 total=15360 used=0"
MIG = "card uuid=GPU-m name=NVIDIA_H200 bus=00000000:09:00.0 total=143771 reserved=600 used=0 mig=1 gpu=70 power=300000"
NOBODY = 2**22 + 1

Load = Callable[..., Path]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    built: dict[tuple[str, ...], Path] = {}

    def get(*defines: str) -> Path:
        if defines not in built:
            built[defines] = nvml_library.build(tmp_path_factory.mktemp("nvml"), *defines)
        return built[defines]

    return get


@pytest.fixture
def load(libraries: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Gives pynvml a library of this test's own, and a state to rewrite; returns the state's path."""

    def loaded(*lines: str, defines: tuple[str, ...] = ()) -> Path:
        # A copy is another library to the loader, with variables of its own.
        own = tmp_path / "own.so"
        own.write_bytes(libraries(*defines).read_bytes())
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(own)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        state = tmp_path / "state"
        nvml_library.write_state(state, *lines)
        monkeypatch.setenv("FAKE_NVML_STATE", str(state))
        monkeypatch.setattr(nvml, "EVENT_WAIT_MS", 20)
        return state

    return loaded


@asynccontextmanager
async def opened(**options: float) -> AsyncIterator[NvmlDevices]:
    devices = await NvmlDevices.open(**options)
    try:
        yield devices
    finally:
        await devices.close()


async def events_of(devices: NvmlDevices, count: int) -> list[HealthEvent]:
    heard: list[HealthEvent] = []
    async with asyncio.timeout(10):
        while len(heard) < count:
            heard.extend(await devices.health_events())
            await asyncio.sleep(0.01)
    return heard


async def test_cards_are_listed_with_what_is_known_of_them(load: Load) -> None:
    load(A100, BARE)
    async with opened() as devices:
        first, second = await devices.inventory()
    assert not devices.simulated
    assert (first.uuid, first.index, first.type_name) == ("GPU-a", 0, "A100-80GB")
    assert (first.vram_mib, first.reserved_mib, first.numa_node) == (81920, 500, 1)
    assert first.pci_bus_id == "00000000:07:00.0"
    assert (second.uuid, second.type_name) == ("GPU-b", "T4-16GB")
    assert (second.reserved_mib, second.pci_bus_id, second.numa_node, second.link_group) == (0, None, None, None)


async def test_readings_are_in_percent_mib_watts_and_celsius(load: Load) -> None:
    load(A100)
    async with opened() as devices:
        (sample,) = await devices.samples()
    assert sample.utilisation_percent == 55
    assert sample.memory_utilisation_percent == 12
    assert (sample.vram_used_mib, sample.vram_total_mib) == (1000, 81920)
    assert sample.power_watts == 250.5
    assert sample.temperature_celsius == 41
    assert (sample.sm_clock_mhz, sample.memory_clock_mhz) == (1410, 1215)
    assert sample.processes == 0
    assert sample.missing == ()


async def test_what_a_card_does_not_support_is_missing_not_zero(load: Load) -> None:
    load(BARE, A100.replace("gpu=55", "gpu=na").replace("used=1000", "used=na"))
    async with opened() as devices:
        bare, half = await devices.samples()
    assert bare.power_watts is None
    assert set(bare.missing) >= {"utilisation_percent", "power_watts", "temperature_celsius", "sm_clock_mhz"}
    assert bare.vram_used_mib == 0, "a known nought stays one"
    assert half.utilisation_percent is None
    assert half.vram_used_mib is None
    assert half.temperature_celsius == 41


async def test_a_rate_out_of_range_is_missing(load: Load) -> None:
    load(A100.replace("gpu=55", "gpu=4294967295"))
    async with opened() as devices:
        (sample,) = await devices.samples()
    assert sample.utilisation_percent is None


async def test_processes_come_and_go(load: Load) -> None:
    state = load(A100, f"process card=0 pid={os.getpid()} used=512", f"process card=0 pid={os.getppid()} used=na")
    async with opened() as devices:
        found = {process.pid: process.used_mib for process in await devices.processes("GPU-a")}
        assert found == {os.getpid(): 512, os.getppid(): None}
        nvml_library.write_state(state, A100)
        assert await devices.processes("GPU-a") == ()


async def test_graphics_processes_count_too(load: Load) -> None:
    load(A100, f"process card=0 pid={os.getpid()} used=5 graphics=1")
    async with opened() as devices:
        assert [process.pid for process in await devices.processes("GPU-a")] == [os.getpid()]


async def test_old_drivers_without_version_3_are_asked_by_version_2(load: Load) -> None:
    load(A100, f"process card=0 pid={os.getpid()} used=512", defines=("WITHOUT_V3",))
    async with opened() as devices:
        assert [process.pid for process in await devices.processes("GPU-a")] == [os.getpid()]


async def test_a_process_that_is_gone_is_dropped_when_the_memory_agrees(load: Load) -> None:
    load(A100.replace("used=1000", "used=4"), f"process card=0 pid={NOBODY} used=512")
    async with opened() as devices:
        assert await devices.processes("GPU-a") == ()


async def test_numbers_that_mean_nothing_here_are_unknown_while_memory_is_in_use(load: Load) -> None:
    load(A100.replace("used=1000", "used=40000"), f"process card=0 pid={NOBODY} used=512")
    async with opened() as devices:
        with pytest.raises(DevicesUnknown, match="does not have"):
            await devices.processes("GPU-a")
        (sample,) = await devices.samples()
    assert sample.processes is None


@pytest.mark.parametrize("code", [15, 999])
async def test_a_failing_process_list_is_unknown_not_empty(code: int, load: Load) -> None:
    load(A100, f"fail function=nvmlDeviceGetComputeRunningProcesses_v3 code={code}")
    async with opened() as devices:
        with pytest.raises(DevicesUnknown):
            await devices.processes("GPU-a")


async def test_a_call_that_hangs_is_given_up_and_others_go_on(load: Load) -> None:
    state = load(A100)
    async with opened(call_limit_seconds=0.3) as devices:
        nvml_library.write_state(state, A100, "hang function=nvmlDeviceGetUtilizationRates")
        with pytest.raises(DevicesUnknown, match="did not answer within"):
            await asyncio.wait_for(devices.samples(), 5)
        assert await devices.processes("GPU-a") == ()
        nvml_library.write_state(state, A100)
        assert len(await devices.samples()) == 1


async def test_a_driver_that_first_has_to_set_its_cards_up_is_waited_for(load: Load) -> None:
    state = load(A100, "slow function=nvmlDeviceGetHandleByIndex ms=600")
    async with opened(call_limit_seconds=0.3) as devices:
        assert len(await devices.samples()) == 1
        with pytest.raises(DevicesUnknown, match=r"within 0\.3 s"):
            await devices.inventory()
        nvml_library.write_state(state, A100)
        assert len(await devices.inventory()) == 1


async def test_mig_instances_are_devices_and_their_card_is_not(load: Load) -> None:
    load(
        A100,
        MIG,
        "instance card=1 number=0 uuid=MIG-x name=NVIDIA_H200_MIG_3g.71gb total=70912 used=100",
        "instance card=1 number=4 uuid=MIG-y name=NVIDIA_H200_MIG_1g.18gb total=16384 used=0",
        f"process card=1 instance=0 pid={os.getpid()} used=90",
    )
    async with opened() as devices:
        whole, big, small = await devices.inventory()
        assert [p.pid for p in await devices.processes("MIG-x")] == [os.getpid()]
        assert await devices.processes("MIG-y") == ()
        _, sample, _ = await devices.samples()
    assert whole.mig_profile is None
    assert (big.uuid, big.mig_profile, big.parent_uuid, big.index) == ("MIG-x", "3g.71gb", "GPU-m", 1)
    assert (small.mig_profile, small.vram_mib) == ("1g.18gb", 16384)
    assert big.type_name == "H200-141GB"
    assert sample.vram_used_mib == 100
    assert sample.utilisation_percent is None, "the card's rate is no instance's"
    assert sample.power_watts is None


async def test_cards_joined_by_nvlink_or_its_switches_are_one_group(load: Load) -> None:
    def card(name: str, bus: str, link: str) -> str:
        return f"card uuid={name} name=NVIDIA_H100_80GB_HBM3 bus={bus} total=81559 used=0 link={link}"

    load(
        card("GPU-0", "0:01:00.0", "0:02:00.0"),
        card("GPU-1", "0:02:00.0", "0:01:00.0"),
        card("GPU-2", "0:03:00.0", "0:aa:00.0,0:ab:00.0"),
        card("GPU-3", "0:04:00.0", "0:ab:00.0"),
        card("GPU-4", "0:05:00.0", "na"),
    )
    async with opened() as devices:
        groups = [card.link_group for card in await devices.inventory()]
    assert groups == [0, 0, 1, 1, None]


async def test_health_events_arrive_and_an_applications_fault_is_not_the_cards(load: Load) -> None:
    state = load(A100)
    async with opened() as devices:
        nvml_library.write_state(state, A100, "event card=0 type=8 data=79", "event card=0 type=8 data=13")
        fatal, application = await events_of(devices, 2)
    assert (fatal.uuid, fatal.kind, fatal.code, fatal.fatal) == ("GPU-a", HealthKind.XID, 79, True)
    assert (application.code, application.fatal) == (13, False)


async def test_faults_of_a_card_that_is_all_instances_are_heard_and_told_of_the_card(load: Load) -> None:
    """The driver tells of cards alone, and the instances' card is no device of its own."""
    lines = (
        f"{MIG} events=0x8",
        "instance card=0 number=0 uuid=MIG-x name=NVIDIA_H200_MIG_3g.71gb total=70912 used=100",
        "instance card=0 number=1 uuid=MIG-y name=NVIDIA_H200_MIG_1g.18gb total=16384 used=0",
    )
    state = load(*lines)
    async with opened() as devices:
        nvml_library.write_state(state, *lines, "event card=0 type=8 data=79")
        (fault,) = await events_of(devices, 1)
    assert (fault.uuid, fault.kind, fault.fatal) == ("GPU-m", HealthKind.XID, True)


async def test_a_card_that_falls_off_the_bus_is_told_and_the_others_stay(load: Load) -> None:
    state = load(A100, BARE)
    async with opened() as devices:
        nvml_library.write_state(state, f"{A100} lost=1", BARE)
        assert [card.uuid for card in await devices.inventory()] == ["GPU-b"]
        with pytest.raises(DevicesUnknown):
            await devices.processes("GPU-a")
        nvml_library.write_state(state, A100, BARE)
        assert len(await devices.inventory()) == 2
        kinds = [(event.uuid, event.kind) for event in await devices.health_events()]
    assert kinds == [("GPU-a", HealthKind.LOST), ("GPU-a", HealthKind.RECOVERED)]


async def test_faults_of_a_card_that_comes_later_are_heard_too(load: Load) -> None:
    state = load(BARE, f"{A100} lost=1")
    async with opened() as devices:
        nvml_library.write_state(state, BARE, A100)
        assert len(await devices.inventory()) == 2
        nvml_library.write_state(state, BARE, A100, "event card=1 type=8 data=79")
        (fault,) = await events_of(devices, 1)
    assert (fault.uuid, fault.code) == ("GPU-a", 79)


async def test_a_card_whose_events_cannot_be_had_hides_no_others(load: Load) -> None:
    other = A100.replace("GPU-a", "GPU-c")
    state = load(f"{A100} deaf=999", other)
    async with opened() as devices:
        nvml_library.write_state(state, f"{A100} deaf=999", other, "event card=1 type=8 data=79")
        (fault,) = await events_of(devices, 1)
    assert fault.uuid == "GPU-c"


async def test_a_driver_without_events_is_used_all_the_same(load: Load) -> None:
    load(A100, defines=("WITHOUT_EVENTS",))
    async with opened() as devices:
        assert len(await devices.samples()) == 1
        assert await devices.health_events() == ()


async def test_a_driver_that_is_not_loaded_is_said(load: Load, tmp_path: Path) -> None:
    load("fail function=nvmlInit code=9")
    with pytest.raises(DriverMissing, match="NVML cannot be used"):
        await open_devices(simulate=None, node="node-a", state_dir=tmp_path)


@pytest.mark.parametrize("found", [True, False])
def test_the_library_is_found_where_the_loader_looks(
    found: bool, libraries: Callable[..., Path], tmp_path: Path
) -> None:
    state = tmp_path / "state"
    nvml_library.write_state(state, A100)
    code = """
import asyncio, pathlib
from makeway_runtime.devices.select import open_devices
async def main():
    devices = await open_devices(simulate=None, node="n", state_dir=pathlib.Path("/nonexistent"))
    print([card.uuid for card in await devices.inventory()])
asyncio.run(main())
"""
    folder = libraries().parent if found else tmp_path
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder), "FAKE_NVML_STATE": str(state)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if found:
        assert ended.stdout == "['GPU-a']\n", ended.stderr
    else:
        assert "DriverMissing" in ended.stderr or "GPU-a" not in ended.stdout
