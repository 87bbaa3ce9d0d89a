"""The sampler: what it publishes, and what it keeps when things go wrong."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from makeway_runtime.devices.port import GpuInfo, GpuProcess, GpuSample, HealthEvent, HealthKind
from makeway_runtime.devices.simulated import HOOKS_FILE, SimulatedDevices, uuid_of
from makeway_runtime.errors import PublishUncertain
from makeway_runtime.kafka.messages import Outgoing
from makeway_schemas.facts import FactBatch, GpuHealthChanged
from makeway_schemas.samples import GpuSamples
from makeway_schemas.topics import GPU_SAMPLES, SCHEDULER_INBOX
from makeway_telemetry.sampler.app import Sampler
from makeway_telemetry.sampler.health import Verdict, VerdictFile, after
from makeway_telemetry.sampler.settings import SamplerSettings

CARD = uuid_of("node-a", 0)
XID = {"kind": "xid", "code": 79, "detail": "XID 79"}


@dataclass
class FakePublisher:
    sent: list[Outgoing] = field(default_factory=list)
    away: bool = False

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        if self.away:
            raise PublishUncertain("away")
        self.sent.extend(messages)

    def samples(self) -> list[GpuSamples]:
        return [GpuSamples.model_validate_json(m.value or b"") for m in self.sent if m.topic == GPU_SAMPLES.name]

    def health(self) -> list[tuple[str, bool, str]]:
        batches = [FactBatch.model_validate_json(m.value or b"") for m in self.sent if m.topic == SCHEDULER_INBOX.name]
        facts = [fact for batch in batches for fact in batch.facts]
        return [(fact.gpu_id, fact.healthy, fact.reason) for fact in facts if isinstance(fact, GpuHealthChanged)]


@dataclass
class Stand:
    sampler: Sampler
    publisher: FakePublisher
    devices: SimulatedDevices
    state_dir: Path

    async def round(self) -> None:
        await self.sampler.round(self.devices)

    def hook(self, value: object) -> None:
        (self.state_dir / "sim").mkdir(exist_ok=True)
        (self.state_dir / "sim" / HOOKS_FILE).write_text(json.dumps({CARD: value}))


def stand(state_dir: Path, *, inventory_seconds: float = 600.0) -> Stand:
    settings = SamplerSettings.model_validate(
        {
            "state_dir": state_dir,
            "runtime_dir": state_dir,
            "node_name": "node-a",
            "inventory_seconds": inventory_seconds,
        }
    )
    sampler, publisher = Sampler(settings), FakePublisher()
    sampler._publisher = publisher  # type: ignore[assignment]
    sampler._verdicts = sampler._file.load(sampler._boot_id)
    return Stand(sampler, publisher, SimulatedDevices("2xA100-80GB", node="node-a", state_dir=state_dir), state_dir)


async def test_a_round_is_one_message_for_all_cards_on_the_nodes_partition(tmp_path: Path) -> None:
    made = stand(tmp_path)
    await made.round()
    (message,) = made.publisher.sent
    (samples,) = made.publisher.samples()
    assert (message.key, message.partition) == (b"node-a", GPU_SAMPLES.partition_of("node-a"))
    assert samples.simulated
    assert [gpu.index for gpu in samples.gpus] == [0, 1]


async def test_what_is_not_known_is_not_in_the_message(tmp_path: Path) -> None:
    made = stand(tmp_path)
    made.hook({"readings": {"vram_used_mib": None, "temperature_celsius": 40}})
    await made.round()
    body = json.loads(made.publisher.sent[0].value or b"")
    assert "vram_used_mib" not in body["gpus"][0]
    assert "power_watts" not in body["gpus"][0]
    assert body["gpus"][0]["temperature_celsius"] == 40


async def test_a_fault_is_told_once_and_shown_in_every_round(tmp_path: Path) -> None:
    made = stand(tmp_path)
    await made.round()
    made.hook({"events": [XID]})
    await made.round()
    await made.round()
    assert made.publisher.health() == [(CARD, False, "XID 79")]
    assert [round_.gpus[0].healthy for round_ in made.publisher.samples()] == [True, False, False]


async def test_a_fault_that_could_not_be_sent_is_told_by_the_next_round(tmp_path: Path) -> None:
    made = stand(tmp_path)
    made.publisher.away = True
    made.hook({"events": [XID]})
    await made.round()
    made.publisher.away = False
    await made.round()
    assert made.publisher.health() == [(CARD, False, "XID 79")]


async def test_health_is_repeated_since_kafka_may_lose_it(tmp_path: Path) -> None:
    made = stand(tmp_path, inventory_seconds=0.05)
    made.hook({"events": [XID]})
    await made.round()
    made.sampler._repeat_at = 0.0
    await made.round()
    assert made.publisher.health() == [(CARD, False, "XID 79")] * 2


async def test_a_lost_card_stays_in_the_rounds_without_readings(tmp_path: Path) -> None:
    made = stand(tmp_path)
    await made.round()
    made.hook({"lost": True, "events": [{"kind": "lost", "detail": "off the bus"}]})
    await made.round()
    lost = next(gpu for gpu in made.publisher.samples()[-1].gpus if gpu.gpu_id == CARD)
    assert not lost.healthy
    assert lost.vram_used_mib is None
    assert lost.vram_total_mib == 81920


async def test_a_broken_hook_or_driver_drops_readings_not_the_sampler(tmp_path: Path) -> None:
    made = stand(tmp_path)
    await made.round()
    (tmp_path / "sim").mkdir(exist_ok=True)
    (tmp_path / "sim" / HOOKS_FILE).write_text("{")
    await made.round()
    assert [gpu.processes for gpu in made.publisher.samples()[-1].gpus] == [None, None]


async def test_a_fault_outlives_a_restart_of_the_sampler(tmp_path: Path) -> None:
    first = stand(tmp_path)
    first.hook({"events": [XID]})
    await first.round()
    second = stand(tmp_path)
    second.hook({})
    await second.round()
    assert second.publisher.health() == [(CARD, False, "XID 79")]


async def test_a_failed_card_that_was_gone_and_is_back_is_well_also_where_the_sampler_was_restarted(
    tmp_path: Path,
) -> None:
    first = stand(tmp_path)
    first.hook({"events": [XID]})
    await first.round()
    await stand(tmp_path).round()
    gone = stand(tmp_path)
    gone.hook({"lost": True})
    await gone.round()
    assert gone.publisher.health() == [(CARD, False, "XID 79")]
    back = stand(tmp_path)
    back.hook({})
    await back.round()
    assert back.publisher.health() == [(CARD, True, "")]
    later = stand(tmp_path)
    await later.round()
    assert later.publisher.health() == [(CARD, True, "")]  # the first word of it may have been lost


async def test_a_card_that_fails_as_it_comes_back_is_not_well(tmp_path: Path) -> None:
    made = stand(tmp_path)
    made.hook({"events": [XID], "lost": True})
    await made.round()
    made.sampler._repeat_at = 0.0
    made.hook({"events": [XID, XID]})
    await made.round()
    made.sampler._repeat_at = 0.0
    await made.round()
    assert {healthy for _, healthy, _ in made.publisher.health()} == {False}


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


def test_after_a_reboot_what_had_failed_is_well_and_that_is_told(tmp_path: Path) -> None:
    file = VerdictFile(tmp_path)
    file.save("boot-1", [Verdict(uuid=CARD, healthy=False, reason="XID 79")])
    assert file.load("boot-1") == {CARD: Verdict(uuid=CARD, healthy=False, reason="XID 79")}
    assert file.load("boot-2") == {CARD: Verdict(uuid=CARD, healthy=True, reason="")}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"unwell": 1, "boot_id": "x"}'])
def test_a_broken_file_is_as_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "telemetry").mkdir()
    (tmp_path / "telemetry" / "health.json").write_text(text)
    assert VerdictFile(tmp_path).load("boot-1") == {}


def test_an_applications_fault_does_not_condemn_the_card() -> None:
    event = HealthEvent(uuid=CARD, kind=HealthKind.XID, fatal=False, detail="XID 13", code=13)
    assert after({}, [event]) == {}


def test_a_recovery_lifts_the_verdict() -> None:
    lost = HealthEvent(uuid=CARD, kind=HealthKind.LOST, fatal=True, detail="gone")
    back = HealthEvent(uuid=CARD, kind=HealthKind.RECOVERED, fatal=False, detail="")
    assert after({}, [lost, back]) == {CARD: Verdict(uuid=CARD, healthy=True, reason="")}


def test_settings_refuse_a_node_name_that_is_none() -> None:
    with pytest.raises(ValueError, match="node_name"):
        SamplerSettings.model_validate({"state_dir": os.sep, "runtime_dir": os.sep, "node_name": "Not A Node"})
