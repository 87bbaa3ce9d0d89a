"""A sampler without a broker: what it would publish, and simulated cards whose hooks a test sets."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from makeway_runtime.devices.simulated import HOOKS_FILE, SimulatedDevices, uuid_of
from makeway_runtime.errors import PublishUncertain
from makeway_runtime.kafka.messages import Outgoing
from makeway_schemas.facts import FactBatch, GpuHealthChanged
from makeway_schemas.samples import GpuSamples
from makeway_schemas.topics import GPU_SAMPLES, SCHEDULER_INBOX
from makeway_telemetry.sampler.app import Sampler
from makeway_telemetry.sampler.settings import SamplerSettings

CARD = uuid_of("node-a", 0)


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
