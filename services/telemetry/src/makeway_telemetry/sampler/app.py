"""The sampler, wired.

Each round: read all cards, publish one message; tell the scheduler which cards failed or recovered since. A round that
cannot be published is dropped, for the next one is newer; the health of cards is repeated instead, so that it arrives
though Kafka may lose everything.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Final

import structlog
from makeway_runtime import metrics
from makeway_runtime.devices.port import Devices, DevicesUnknown, GpuInfo, HealthEvent
from makeway_runtime.devices.port import GpuSample as Reading
from makeway_runtime.devices.select import open_devices
from makeway_runtime.errors import PublishUncertain, TransientError
from makeway_runtime.health import Check
from makeway_runtime.kafka.publisher import Publisher
from makeway_runtime.service import run
from makeway_schemas.topics import GPU_SAMPLES, SCHEDULER_INBOX
from prometheus_client import Counter

from makeway_telemetry.sampler.health import (
    Verdict,
    VerdictFile,
    after,
    boot_id,
    cards_of,
    mended,
    seen,
    with_instances,
)
from makeway_telemetry.sampler.mended import MendedCards
from makeway_telemetry.sampler.messages import Round, health_message, samples_message, samples_of
from makeway_telemetry.sampler.settings import SamplerSettings

_LOG: Final = structlog.get_logger(__name__)

ROUNDS = Counter("makeway_sampler_rounds", "Rounds by outcome.", ["outcome"], registry=metrics.REGISTRY)
SILENT_ROUNDS: Final = 4
"""The check turns red after this many rounds without one that arrived."""


class Sampler:
    """A `Service`: reads the node's cards and publishes what they show."""

    def __init__(self, settings: SamplerSettings) -> None:
        """Opens nothing yet."""
        self._settings = settings
        self._publisher = Publisher(
            settings, client=f"sampler-{settings.node_name}", topics=(GPU_SAMPLES, SCHEDULER_INBOX)
        )
        self._session = secrets.token_hex(6)
        self._number = 0
        self._boot_id = boot_id()
        self._file = VerdictFile(settings.state_dir)
        self._mended = MendedCards(settings.state_dir)
        self._devices: Devices | None = None
        self._known: dict[str, GpuInfo] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._told: dict[str, Verdict] = {}
        self._repeat_at = 0.0
        self._arrived_at = time.monotonic()

    async def start(self) -> None:
        """Opens the devices. A broker that is away is no reason not to start."""
        self._devices = await open_devices(
            simulate=self._settings.simulate, node=self._settings.node_name, state_dir=self._settings.state_dir
        )
        self._verdicts = self._file.load(self._boot_id)
        try:
            await self._publisher.start()
        except TransientError as error:
            _LOG.warning("the broker is out of reach, sampling goes on", error=str(error))

    async def run(self) -> None:
        """Samples until cancelled, evenly, without catching up on rounds that were late."""
        devices = self._devices
        if devices is None:
            raise RuntimeError("run needs start first")
        due_at = time.monotonic()
        while True:
            await self.round(devices)
            due_at = max(due_at + self._settings.sample_seconds, time.monotonic())
            await asyncio.sleep(due_at - time.monotonic())

    async def stop(self) -> None:
        """Lets the driver and the broker go."""
        await self._publisher.stop()
        if self._devices is not None:
            await self._devices.close()

    def checks(self) -> Sequence[Check]:
        """Red when no round has arrived for some time."""

        async def arriving() -> str | None:
            age_seconds = time.monotonic() - self._arrived_at
            late = age_seconds > SILENT_ROUNDS * self._settings.sample_seconds + 10.0
            return f"no round has arrived for {age_seconds:.0f} s" if late else None

        return (Check(name="samples", probe=arriving),)

    async def round(self, devices: Devices) -> None:
        """One round. Raises nothing that the next round may mend."""
        repeating = time.monotonic() >= self._repeat_at
        readings: tuple[Reading, ...] = ()
        try:
            listed = await devices.inventory() if repeating else None
            self._known.update({device.uuid: device for device in listed or ()})
            readings = await devices.samples()
            self._judge(await devices.health_events(), None if listed is None else cards_of(listed))
        except DevicesUnknown as error:
            ROUNDS.labels("unknown").inc()
            _LOG.warning("the cards gave no answer", error=str(error))
        try:
            await self._publish(devices, readings, repeating=repeating)
        except PublishUncertain as error:
            ROUNDS.labels("unsent").inc()
            _LOG.warning("a round was dropped", error=str(error))
            return
        if repeating:
            self._repeat_at = time.monotonic() + self._settings.inventory_seconds
        ROUNDS.labels("sent").inc()
        self._arrived_at = time.monotonic()

    def _judge(self, events: Sequence[HealthEvent], listed: Collection[str] | None) -> None:
        verdicts = self._verdicts
        if listed is not None:
            verdicts = mended(verdicts, self._taken_words(), listed)
        verdicts = after(verdicts, events)
        if listed is not None:
            verdicts = seen(verdicts, listed)
        if verdicts == self._verdicts:
            return
        for uuid, verdict in verdicts.items():
            if verdict != self._verdicts.get(uuid):
                _LOG.warning("a card's health changed", gpu=uuid, healthy=verdict.healthy, reason=verdict.reason)
        self._verdicts = verdicts
        try:
            self._file.save(self._boot_id, tuple(verdicts.values()))
        except OSError as error:
            _LOG.error("the cards' health could not be kept", error=str(error))

    def _taken_words(self) -> frozenset[str]:
        try:
            return self._mended.take()
        except OSError as error:
            _LOG.warning("word of mended cards cannot be read", error=str(error))
            return frozenset()

    async def _publish(self, devices: Devices, readings: tuple[Reading, ...], *, repeating: bool) -> None:
        self._number += 1
        told = Round(
            node_id=self._settings.node_name,
            pool=self._settings.pool,
            session=self._session,
            number=self._number,
            now=datetime.now(UTC),
        )
        verdicts = with_instances(self._verdicts, self._known.values())
        gpus = samples_of(self._known, readings, verdicts)
        messages = [samples_message(told, gpus, simulated=devices.simulated)]
        news = [verdict for uuid, verdict in verdicts.items() if repeating or self._told.get(uuid) != verdict]
        if news:
            messages.append(health_message(told, news))
        await self._publisher.publish(messages)
        self._told = verdicts


def main() -> int:
    """Runs the sampler. Returns the exit code."""
    return run(Sampler, SamplerSettings.model_validate({}), name="sampler")
