"""From readings and verdicts to messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from makeway_runtime.cloudevents import EventHeaders, to_headers
from makeway_runtime.devices.port import GpuInfo
from makeway_runtime.devices.port import GpuSample as Reading
from makeway_runtime.kafka.messages import Outgoing
from makeway_schemas.facts import BATCH_TYPE, FactBatch, GpuHealthChanged
from makeway_schemas.samples import SAMPLES_TYPE, GpuSample, GpuSamples
from makeway_schemas.topics import GPU_SAMPLES, SCHEDULER_INBOX

from makeway_telemetry.sampler.health import Verdict

MAX_REASON_CHARACTERS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Which round of which start of which node's sampler; `now` is the node's wall clock, aware and UTC."""

    node_id: str
    pool: str
    session: str
    number: int
    now: datetime

    @property
    def source(self) -> str:
        """The CloudEvents source."""
        return f"makeway/sampler/{self.node_id}"

    def event_id(self, kind: str) -> str:
        """The id of what this round says of `kind`: the same when it is said again."""
        return f"{self.node_id}/{self.session}/{kind}/{self.number}"


def samples_message(told: Round, gpus: Sequence[GpuSample], *, simulated: bool) -> Outgoing:
    """One round over all cards of a node."""
    node_id = told.node_id
    body = GpuSamples(node_id=node_id, simulated=simulated, gpus=tuple(gpus))
    headers = EventHeaders(
        id=told.event_id("samples"), type=SAMPLES_TYPE, source=told.source, time=told.now, subject=node_id
    )
    return Outgoing(
        topic=GPU_SAMPLES.name,
        key=node_id.encode(),
        value=body.model_dump_json(exclude_none=True).encode(),
        headers=to_headers(headers),
        partition=GPU_SAMPLES.partition_of(node_id),
    )


def samples_of(
    known: Mapping[str, GpuInfo], readings: Sequence[Reading], verdicts: Mapping[str, Verdict]
) -> list[GpuSample]:
    """Joins readings with verdicts; a card that was known and now has no readings is told as such, not left out."""
    told = [_sample(reading, verdicts.get(reading.uuid)) for reading in readings]
    silent = known.keys() - {reading.uuid for reading in readings}
    for uuid in sorted(silent):
        card = known[uuid]
        bare = Reading(uuid=uuid, index=card.index, type_name=card.type_name, vram_total_mib=card.vram_mib)
        told.append(_sample(bare, verdicts.get(uuid)))
    return told


def health_message(told: Round, verdicts: Sequence[Verdict]) -> Outgoing:
    """The health of some cards, for the owner of their pool."""
    facts = tuple(
        GpuHealthChanged(
            id=told.event_id(f"gpu_health/{verdict.uuid}"),
            node_id=told.node_id,
            session=told.session,
            gpu_id=verdict.uuid,
            healthy=verdict.healthy,
            reason=verdict.reason[:MAX_REASON_CHARACTERS],
        )
        for verdict in verdicts
    )
    batch = FactBatch(source=told.source, facts=facts)
    headers = EventHeaders(
        id=told.event_id("gpu_health"), type=BATCH_TYPE, source=told.source, time=told.now, subject=told.pool
    )
    return Outgoing(
        topic=SCHEDULER_INBOX.name,
        key=told.pool.encode(),
        value=batch.model_dump_json(exclude_none=True).encode(),
        headers=to_headers(headers),
        partition=SCHEDULER_INBOX.partition_of(told.pool),
    )


def _sample(reading: Reading, verdict: Verdict | None) -> GpuSample:
    return GpuSample(
        gpu_id=reading.uuid,
        index=reading.index,
        type_name=reading.type_name,
        utilisation_percent=reading.utilisation_percent,
        memory_utilisation_percent=reading.memory_utilisation_percent,
        vram_used_mib=reading.vram_used_mib,
        vram_total_mib=reading.vram_total_mib,
        power_watts=reading.power_watts,
        temperature_celsius=reading.temperature_celsius,
        sm_clock_mhz=reading.sm_clock_mhz,
        memory_clock_mhz=reading.memory_clock_mhz,
        processes=reading.processes,
        healthy=verdict is None or verdict.healthy,
        reason="" if verdict is None else verdict.reason,
    )
