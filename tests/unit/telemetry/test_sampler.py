"""The sampler: what it publishes, and what it keeps when things go wrong."""

import json
import os
from pathlib import Path

import pytest
from makeway_runtime.devices.port import HealthEvent, HealthKind
from makeway_runtime.devices.simulated import HOOKS_FILE
from makeway_schemas.topics import GPU_SAMPLES
from makeway_telemetry.sampler.health import Verdict, VerdictFile, after
from makeway_telemetry.sampler.settings import SamplerSettings
from sampler_stand import CARD, stand

XID = {"kind": "xid", "code": 79, "detail": "XID 79"}


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
