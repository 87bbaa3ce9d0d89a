"""Cards that fail and are well again: partitioned ones, and those that were mended where nobody could see it."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from makeway_runtime.devices.port import GpuInfo, GpuProcess, GpuSample, HealthEvent, HealthKind
from makeway_telemetry.sampler.health import Verdict, VerdictFile, boot_id
from makeway_telemetry.sampler.mended import main as say_mended
from sampler_stand import CARD, stand


@dataclass
class Partitioned:
    """A driver with one card, whose instances and faults a test sets; without instances the card is whole."""

    instances: list[str] = field(default_factory=list)
    listed: bool = True
    events: list[HealthEvent] = field(default_factory=list)
    simulated: bool = False

    async def inventory(self) -> tuple[GpuInfo, ...]:
        def info(uuid: str, **fields: str) -> GpuInfo:
            return GpuInfo(uuid=uuid, index=0, name="H200", type_name="H200", vram_mib=1, reserved_mib=0, **fields)

        if not self.listed:
            return ()
        return tuple(info(each, parent_uuid=CARD, mig_profile="1g.18gb") for each in self.instances) or (info(CARD),)

    async def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        return ()

    async def samples(self) -> tuple[GpuSample, ...]:
        return tuple(GpuSample(uuid=each.uuid, index=0, type_name="H200") for each in await self.inventory())

    async def health_events(self) -> tuple[HealthEvent, ...]:
        told, self.events = self.events, []
        return tuple(told)

    async def close(self) -> None:
        return


class Rounds:
    """A sampler over a partitioned card, and what a round told."""

    def __init__(self, folder: Path, *instances: str) -> None:
        self.driver = Partitioned(instances=list(instances))
        self.made = stand(folder)

    async def round(self, *, looks: bool = True) -> dict[str, bool]:
        self.made.publisher.sent.clear()
        if looks:
            self.made.sampler._repeat_at = 0.0
        await self.made.sampler.round(self.driver)
        return {gpu: healthy for gpu, healthy, _ in self.made.publisher.health()}


FAULT = HealthEvent(uuid=CARD, kind=HealthKind.XID, fatal=True, detail="XID 79", code=79)


async def test_a_fault_of_a_card_is_told_of_each_of_its_instances(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path, "MIG-x", "MIG-y")
    assert await rounds.round() == {}
    rounds.driver.events = [FAULT]
    assert await rounds.round(looks=False) == {CARD: False, "MIG-x": False, "MIG-y": False}
    assert ("MIG-x", False, "XID 79") in rounds.made.publisher.health()
    assert [gpu.healthy for gpu in rounds.made.publisher.samples()[-1].gpus] == [False, False]
    assert await rounds.round(looks=False) == {}


async def test_instances_come_back_only_with_their_card(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path, "MIG-x")
    rounds.driver.events = [FAULT]
    await rounds.round()
    lost = HealthEvent(uuid="MIG-x", kind=HealthKind.LOST, fatal=True, detail="gone")
    rounds.driver.events, rounds.driver.instances = [lost], ["MIG-y"]
    assert await rounds.round() == {CARD: False, "MIG-x": False, "MIG-y": False}  # made anew on a card that failed
    back = HealthEvent(uuid="MIG-x", kind=HealthKind.RECOVERED, fatal=False, detail="")
    rounds.driver.events, rounds.driver.instances = [back], ["MIG-x"]
    assert (await rounds.round())["MIG-x"] is False
    rounds.driver.instances = []  # the partition was undone: the card itself is listed, as it was all the time
    assert (await rounds.round())[CARD] is False
    rounds.driver.listed = False
    assert (await rounds.round())[CARD] is False
    rounds.driver.listed, rounds.driver.instances = True, ["MIG-x"]
    told = await rounds.round()
    assert (told[CARD], told["MIG-x"]) == (True, True)


async def test_a_card_that_was_mended_while_its_sampler_was_stopped_is_well_by_an_operators_word(
    tmp_path: Path,
) -> None:
    rounds = Rounds(tmp_path, "MIG-x")
    rounds.driver.events = [FAULT]
    await rounds.round()
    assert say_mended(["--state-dir", str(tmp_path), CARD]) == 0
    after_a_restart = Rounds(tmp_path, "MIG-x")
    assert await after_a_restart.round() == {CARD: True, "MIG-x": True}
    after_a_restart.driver.events = [FAULT]
    assert await after_a_restart.round() == {CARD: False, "MIG-x": False}
    assert await after_a_restart.round() == {CARD: False, "MIG-x": False}  # the word was for what it did before


async def test_a_card_that_fails_again_before_the_word_is_taken_up_is_not_well(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    rounds.driver.events = [FAULT]
    await rounds.round()
    assert say_mended(["--state-dir", str(tmp_path), CARD]) == 0
    rounds.driver.events = [FAULT]
    assert await rounds.round() == {CARD: False}
    assert await rounds.round() == {CARD: False}


async def test_word_of_a_card_that_is_not_there_is_not_kept(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    rounds.driver.events = [FAULT]
    await rounds.round()
    assert say_mended(["--state-dir", str(tmp_path), CARD]) == 0
    rounds.driver.listed = False
    assert await rounds.round() == {CARD: False}
    rounds.driver.listed = True
    assert await rounds.round() == {CARD: True}
    rounds.driver.events = [FAULT]
    assert await rounds.round() == {CARD: False}


def test_word_of_a_card_that_did_not_fail_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    VerdictFile(tmp_path).save(boot_id(), [Verdict(uuid=CARD, healthy=False, reason="XID 79")])
    assert say_mended(["--state-dir", str(tmp_path), "../GPU-x"]) == 1
    assert capsys.readouterr().err == f"not known to have failed here: ../GPU-x; failed: {CARD}\n"
    assert not (tmp_path / "telemetry" / "mended").exists()
