"""Sampler and collector as processes, over the real broker and the real database."""

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncpg
import httpx
import psutil
import pytest
import servers
from makeway.local.servers import ServerProcess
from makeway_runtime.devices.simulated import HOOKS_FILE, register, uuid_of
from makeway_runtime.kafka.messages import Outgoing
from makeway_schemas.facts import FactBatch
from makeway_schemas.topics import DEAD_LETTERS, GPU_SAMPLES, SCHEDULER_INBOX
from makeway_telemetry.sampler.health import Verdict, VerdictFile, boot_id
from makeway_telemetry.sampler.mended import MendedCards
from prometheus_client.parser import text_string_to_metric_families
from runtime_builders import Reading, headers, kafka_settings, publishing, running

DEADLINE_SECONDS = 40.0
REJOIN_SECONDS = 100.0
"""A consumer group that lost its coordinator waits for its session, 30 s, sometimes twice."""


def node_name(folder: Path) -> str:
    """A name for this test alone: the broker still has what the nodes of the tests before it said."""
    return f"node-{hashlib.sha256(bytes(folder)).hexdigest()[:12]}"


def card_of(folder: Path) -> str:
    return uuid_of(node_name(folder), 0)


def environment(folder: Path, kafka: servers.KafkaAddress, **values: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "MAKEWAY_STATE_DIR": str(folder),
        "MAKEWAY_RUNTIME_DIR": str(folder),
        "MAKEWAY_KAFKA_BOOTSTRAP": kafka.bootstrap,
        "MAKEWAY_KAFKA_USERNAME": kafka.username or "",
        "MAKEWAY_KAFKA_PASSWORD": kafka.password or "",
        "MAKEWAY_LOG_FORMAT": "json",
        **values,
    }


@contextmanager
def process(part: str, folder: Path, settings: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """One part of telemetry; ended by SIGTERM, which must end it with 0."""
    with (folder / f"{part}.log").open("wb") as log:
        started = subprocess.Popen(
            [sys.executable, "-m", "makeway_telemetry", part],
            env={**settings, "MAKEWAY_HEALTH_FILE": str(folder / f"{part}.port")},
            stdout=log,
            stderr=log,
        )
    try:
        yield started
        started.send_signal(signal.SIGTERM)
        assert started.wait(timeout=20) == 0, (folder / f"{part}.log").read_text()
    finally:
        started.kill()
        started.wait()


def sampler(folder: Path, kafka: servers.KafkaAddress, **values: str) -> dict[str, str]:
    named = {"MAKEWAY_NODE_NAME": node_name(folder), "MAKEWAY_SIMULATE": "2xA100-80GB", "MAKEWAY_SAMPLE_SECONDS": "0.2"}
    return environment(folder, kafka, **{**named, **values})


def collector(folder: Path, kafka: servers.KafkaAddress, database: servers.Database, **values: str) -> dict[str, str]:
    dsn = database.role_dsn("makeway_telemetry")
    group = f"collector-{database.name}"
    return environment(folder, kafka, **{"MAKEWAY_POSTGRES_DSN": dsn, "MAKEWAY_GROUP": group, **values})


async def get(folder: Path, part: str, path: str) -> httpx.Response:
    """Asks a part's health port, waiting for it to be there."""
    async with asyncio.timeout(DEADLINE_SECONDS), httpx.AsyncClient() as client:
        while True:
            with suppress(OSError, ValueError, httpx.TransportError):
                port = int((folder / f"{part}.port").read_text())
                return await client.get(f"http://127.0.0.1:{port}{path}", timeout=5)
            await asyncio.sleep(0.05)


async def series(folder: Path) -> dict[str, dict[str, float]]:
    """The collector's page: series name to GPU to value."""
    text = (await get(folder, "collector", "/metrics")).text
    return {
        family.name: {sample.labels.get("gpu_id", ""): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(text)
    }


async def page_with(
    folder: Path, name: str, *, present: bool = True, within: float = DEADLINE_SECONDS
) -> dict[str, dict[str, float]]:
    """The page once a series of our card is there, or is gone."""
    async with asyncio.timeout(within):
        while True:
            found = await series(folder)
            if (card_of(folder) in found.get(name, {})) == present:
                return found
            await asyncio.sleep(0.1)


async def test_readings_reach_the_page_and_the_database_and_unknown_ones_do_not(
    tmp_path: Path, kafka_server: servers.KafkaAddress, database: servers.Database
) -> None:
    card, node = card_of(tmp_path), node_name(tmp_path)
    register(tmp_path, card, "run-1", {os.getpid(): 512})
    with (
        process("sampler", tmp_path, sampler(tmp_path, kafka_server)),
        process("collector", tmp_path, collector(tmp_path, kafka_server, database)),
    ):
        found = await page_with(tmp_path, "makeway_gpu_vram_used_bytes")
        connection = await asyncpg.connect(database.dsn)
        try:
            row = await connection.fetchrow("SELECT * FROM gpu_readings WHERE gpu_id = $1", card)
            history = await connection.fetchval("SELECT count(*) FROM samples WHERE gpu_id = $1", card)
        finally:
            await connection.close()
        assert (await get(tmp_path, "collector", "/healthz")).status_code == 200
        assert (await get(tmp_path, "sampler", "/healthz")).status_code == 200
    assert found["makeway_gpu_vram_used_bytes"][card] == 512 * 1024 * 1024
    assert found["makeway_gpu_processes"][card] == 1
    assert found["makeway_gpu_power_watts"] == {}
    assert found["makeway_collector_database_up"][""] == 1
    assert row is not None
    assert (row["vram_used_mib"], row["power_watts"], row["node_id"], row["simulated"]) == (512, None, node, True)
    assert history >= 1


async def test_a_reading_that_becomes_unknown_leaves_the_page(
    tmp_path: Path, kafka_server: servers.KafkaAddress, database: servers.Database
) -> None:
    (tmp_path / "sim").mkdir()
    hooks = tmp_path / "sim" / HOOKS_FILE
    hooks.write_text(json.dumps({card_of(tmp_path): {"readings": {"temperature_celsius": 41}}}))
    with (
        process("sampler", tmp_path, sampler(tmp_path, kafka_server)),
        process("collector", tmp_path, collector(tmp_path, kafka_server, database)),
    ):
        await page_with(tmp_path, "makeway_gpu_temperature_celsius")
        hooks.write_text("{}")
        await page_with(tmp_path, "makeway_gpu_temperature_celsius", present=False)


async def test_readings_of_a_node_that_fell_silent_leave_the_page(
    tmp_path: Path, kafka_server: servers.KafkaAddress, database: servers.Database
) -> None:
    settings = collector(tmp_path, kafka_server, database, MAKEWAY_STALE_SECONDS="2")
    with process("collector", tmp_path, settings):
        with process("sampler", tmp_path, sampler(tmp_path, kafka_server)):
            await page_with(tmp_path, "makeway_gpu_healthy")
        await page_with(tmp_path, "makeway_gpu_healthy", present=False)


async def test_a_failed_card_is_told_to_the_scheduler(tmp_path: Path, kafka_server: servers.KafkaAddress) -> None:
    (tmp_path / "sim").mkdir()
    facts: list[tuple[str, bool, str]] = []
    reading = Reading(kafka_settings(kafka_server), SCHEDULER_INBOX, start="end")

    async def keep(batch: object) -> None:
        for message in batch:  # type: ignore[attr-defined]
            for fact in FactBatch.model_validate_json(message.value).facts:
                facts.append((fact.gpu_id, fact.healthy, fact.reason))  # type: ignore[union-attr]

    reading.handle = keep  # type: ignore[method-assign, assignment]
    object.__setattr__(reading.loop._delivery, "handler", keep)
    async with running(reading):
        await asyncio.wait_for(reading.loop.started.wait(), DEADLINE_SECONDS)
        with process("sampler", tmp_path, sampler(tmp_path, kafka_server)):
            await get(tmp_path, "sampler", "/healthz")
            event = {"kind": "xid", "code": 79, "detail": "XID 79"}
            (tmp_path / "sim" / HOOKS_FILE).write_text(json.dumps({card_of(tmp_path): {"events": [event]}}))
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not facts:
                    await asyncio.sleep(0.05)
    assert facts[0] == (card_of(tmp_path), False, "XID 79")


async def test_a_poisoned_sample_is_set_aside_and_the_others_go_on(
    tmp_path: Path, kafka_server: servers.KafkaAddress, database: servers.Database
) -> None:
    bad = Outgoing(
        topic=GPU_SAMPLES.name,
        key=node_name(tmp_path).encode(),
        value=b'{"version": 9}',
        headers=headers(),
        partition=0,
    )
    dead = Reading(kafka_settings(kafka_server), DEAD_LETTERS, start="end")
    values: list[bytes] = []

    async def keep(batch: object) -> None:
        values.extend(message.value for message in batch)  # type: ignore[attr-defined]

    object.__setattr__(dead.loop._delivery, "handler", keep)
    async with running(dead), publishing(kafka_settings(kafka_server), GPU_SAMPLES, DEAD_LETTERS) as publisher:
        await asyncio.wait_for(dead.loop.started.wait(), DEADLINE_SECONDS)
        with (
            process("collector", tmp_path, collector(tmp_path, kafka_server, database)),
            process("sampler", tmp_path, sampler(tmp_path, kafka_server)),
        ):
            await publisher.publish([bad])
            await page_with(tmp_path, "makeway_gpu_healthy")
            async with asyncio.timeout(DEADLINE_SECONDS):
                while b'{"version": 9}' not in values:
                    await asyncio.sleep(0.05)


@pytest.mark.timeout(240)
async def test_with_kafka_wiped_both_go_on(
    tmp_path: Path, own_kafka: ServerProcess, database: servers.Database
) -> None:
    kafka = servers.address_of(own_kafka)
    settings = collector(tmp_path, kafka, database, MAKEWAY_STALE_SECONDS="1")
    with process("sampler", tmp_path, sampler(tmp_path, kafka)), process("collector", tmp_path, settings):
        await page_with(tmp_path, "makeway_gpu_healthy")
        await asyncio.to_thread(own_kafka.wipe)
        await page_with(tmp_path, "makeway_gpu_healthy", present=False)
        await page_with(tmp_path, "makeway_gpu_healthy", within=REJOIN_SECONDS)


@pytest.mark.parametrize("part", ["sampler", "collector"])
async def test_each_part_is_lean(
    part: str, tmp_path: Path, kafka_server: servers.KafkaAddress, database: servers.Database
) -> None:
    settings = (
        sampler(tmp_path, kafka_server, MAKEWAY_SAMPLE_SECONDS="5")
        if part == "sampler"
        else collector(tmp_path, kafka_server, database)
    )
    with process(part, tmp_path, settings) as started:
        await get(tmp_path, part, "/healthz")
        watched = psutil.Process(started.pid)
        before, began_at = watched.cpu_times(), time.monotonic()
        await asyncio.sleep(6)
        after = watched.cpu_times()
        share = (after.user + after.system - before.user - before.system) / (time.monotonic() - began_at)
        pss_mib = watched.memory_full_info().pss / 1024 / 1024
        modules = (tmp_path / f"{part}.log").read_text()
    print(f"{part}: {share:.2%} of a core, {pss_mib:.1f} MiB, {len(modules)} log bytes")
    assert share < 0.02
    assert pss_mib < 70


def test_the_sampler_loads_neither_faststream_nor_a_database_driver() -> None:
    code = (
        "import sys, makeway_telemetry.sampler.app;"
        "sys.exit(any(name in sys.modules for name in ('faststream', 'asyncpg', 'aiosql', 'pynvml')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("arguments", [[], ["both"], ["sampler", "more"]])
def test_another_word_is_answered_by_the_usage(arguments: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "makeway_telemetry", *arguments], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 64
    assert "sampler|collector" in ended.stderr


def test_word_of_a_mended_card_needs_neither_broker_nor_settings(tmp_path: Path) -> None:
    VerdictFile(tmp_path).save(boot_id(), [Verdict(uuid="GPU-a", healthy=False, reason="XID 79")])
    command = [sys.executable, "-m", "makeway_telemetry", "mended", "--state-dir", str(tmp_path)]
    codes = [
        subprocess.run([*command, card], capture_output=True, check=False).returncode for card in ("GPU-a", "GPU-b")
    ]
    assert codes == [0, 1]
    assert MendedCards(tmp_path).take() == {"GPU-a"}
