"""The metrics page: a sample for each known reading and none for what is not known."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from makeway_schemas.samples import GpuSample, GpuSamples
from makeway_telemetry.collector.page import View, ViewCollector
from makeway_telemetry.collector.readings import NewestReadings, Reading, readings_of
from makeway_telemetry.collector.store import GpuCapacity, Lease
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

NOW = datetime(2026, 11, 29, 20, 0, tzinfo=UTC)


def reading(number: int = 0, *, node: str = "node-a", at: datetime = NOW, **values: object) -> Reading:
    gpu = GpuSample.model_validate({"gpu_id": f"GPU-{number}", "index": number, "type_name": "H200-141GB", **values})
    return Reading(node_id=node, at=at, simulated=False, gpu=gpu)


def capacity(number: int, **values: object) -> GpuCapacity:
    return GpuCapacity(
        **{  # type: ignore[arg-type]
            "gpu_id": f"GPU-{number}",
            "node_id": "node-a",
            "gpu_index": number,
            "type_name": "H200-141GB",
            "capacity_mib": 1024,
            "leased_mib": 512,
            "condition": "ok",
            "mig_profile": "3g.71gb",
            **values,
        }
    )


def page(view: View, *, dcgm_names: bool = False) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Series name to labels to value, as a scraper parses them."""
    registry = CollectorRegistry()
    collector = ViewCollector(dcgm_names=dcgm_names)
    collector.view = view
    registry.register(collector)
    text = generate_latest(registry).decode()
    return {
        family.name: {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(text)
    }


def test_of_sixteen_slices_all_have_capacity_and_only_known_readings_have_samples() -> None:
    readings = [
        reading(
            number,
            utilisation_percent=50 if number < 13 else None,
            temperature_celsius=40 if number >= 2 else None,
            vram_used_mib=0,
        )
        for number in range(16)
    ]
    series = page(View(readings=readings, capacity=[capacity(number) for number in range(16)]))
    assert len(series["makeway_gpu_vram_bytes"]) == 16
    assert len(series["makeway_gpu_utilisation_ratio"]) == 13
    assert set(series["makeway_gpu_utilisation_ratio"].values()) == {0.5}
    assert len(series["makeway_gpu_temperature_celsius"]) == 14
    assert set(series["makeway_gpu_vram_used_bytes"].values()) == {0}, "a known nought is shown"
    assert series["makeway_gpu_power_watts"] == {}
    missing = {dict(labels)["reading"]: value for labels, value in series["makeway_gpu_readings_missing"].items()}
    assert missing["utilisation_percent"] == 3
    assert missing["temperature_celsius"] == 2
    assert missing["power_watts"] == 16
    assert missing["vram_used_mib"] == 0


def test_a_reading_that_is_no_number_never_enters() -> None:
    with pytest.raises(ValueError, match="finite"):
        reading(0, power_watts=math.nan)


def test_units_are_base_units() -> None:
    series = page(
        View(readings=[reading(utilisation_percent=55, vram_used_mib=2, power_watts=250.5, sm_clock_mhz=1410)])
    )
    assert list(series["makeway_gpu_utilisation_ratio"].values()) == [pytest.approx(0.55)]
    assert list(series["makeway_gpu_vram_used_bytes"].values()) == [2 * 1024 * 1024]
    assert list(series["makeway_gpu_power_watts"].values()) == [250.5]
    assert list(series["makeway_gpu_sm_clock_hertz"].values()) == [1_410_000_000]


def test_a_job_that_ended_has_no_series_at_the_next_scrape() -> None:
    lease = Lease(gpu_id="GPU-0", node_id="node-a", job_id="j", run_id="j.1", team="t")
    assert len(page(View(leases=[lease]))["makeway_gpu_lease_info"]) == 1
    assert page(View())["makeway_gpu_lease_info"] == {}


def test_dcgm_names_are_off_unless_asked_for() -> None:
    view = View(readings=[reading(utilisation_percent=55)])
    assert not any(name.startswith("DCGM") for name in page(view))


def test_dcgm_series_have_dcgms_names_units_and_labels() -> None:
    view = View(
        readings=[reading(utilisation_percent=55, vram_used_mib=100, vram_total_mib=300, power_watts=250.5)],
        capacity=[capacity(0)],
    )
    series = page(view, dcgm_names=True)
    ((labels, value),) = series["DCGM_FI_DEV_GPU_UTIL"].items()
    assert value == 55
    assert dict(labels) == {
        "gpu": "0",
        "UUID": "GPU-0",
        "device": "nvidia0",
        "modelName": "H200-141GB",
        "Hostname": "node-a",
        "GPU_I_ID": "",
        "GPU_I_PROFILE": "3g.71gb",
    }
    assert list(series["DCGM_FI_DEV_FB_USED"].values()) == [100]
    assert list(series["DCGM_FI_DEV_FB_FREE"].values()) == [200]
    assert list(series["DCGM_FI_DEV_POWER_USAGE"].values()) == [250.5]


def test_without_the_database_readings_stay_and_it_is_said() -> None:
    series = page(View(readings=[reading(utilisation_percent=1)], database_up=False))
    assert list(series["makeway_collector_database_up"].values()) == [0]
    assert len(series["makeway_gpu_utilisation_ratio"]) == 1


def test_an_older_or_repeated_reading_changes_nothing() -> None:
    newest = NewestReadings()
    late = reading(utilisation_percent=1, at=NOW - timedelta(seconds=5))
    current = reading(utilisation_percent=2)
    assert newest.apply([current, late, current]) == [current]
    assert newest.fresh(NOW, stale_seconds=30) == [current]


def test_readings_that_are_too_old_are_no_longer_shown() -> None:
    newest = NewestReadings()
    newest.apply([reading(0), reading(1, at=NOW + timedelta(seconds=20))])
    assert [each.gpu.index for each in newest.fresh(NOW + timedelta(seconds=31), stale_seconds=30)] == [1]


def test_a_message_gives_a_reading_for_each_card() -> None:
    samples = GpuSamples(node_id="node-a", simulated=True, gpus=(reading(0).gpu, reading(1).gpu))
    assert [(each.node_id, each.gpu.index, each.simulated) for each in readings_of(samples, NOW)] == [
        ("node-a", 0, True),
        ("node-a", 1, True),
    ]
