"""The newest reading of each GPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from makeway_schemas.samples import GpuSample, GpuSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One GPU's readings with where and when they were taken; `at` is the broker's time."""

    node_id: str
    at: datetime
    simulated: bool
    gpu: GpuSample


def readings_of(samples: GpuSamples, at: datetime) -> list[Reading]:
    """Returns the readings of one message."""
    return [Reading(node_id=samples.node_id, at=at, simulated=samples.simulated, gpu=gpu) for gpu in samples.gpus]


class NewestReadings:
    """GPU id to its newest reading. Order, repeats and gaps of the messages change nothing."""

    def __init__(self) -> None:
        """Empty: what was before a restart comes again within seconds."""
        self._newest: dict[str, Reading] = {}

    def apply(self, readings: Iterable[Reading]) -> list[Reading]:
        """Takes over what is newer than what is known. Returns that, in order, with the last of each GPU last."""
        applied: list[Reading] = []
        for reading in readings:
            known = self._newest.get(reading.gpu.gpu_id)
            if known is None or known.at < reading.at:
                self._newest[reading.gpu.gpu_id] = reading
                applied.append(reading)
        return applied

    def fresh(self, now: datetime, *, stale_seconds: float) -> list[Reading]:
        """Returns the readings that are young enough, by GPU id; forgets the others."""
        oldest = now - timedelta(seconds=stale_seconds)
        self._newest = {gpu_id: reading for gpu_id, reading in self._newest.items() if reading.at >= oldest}
        return [self._newest[gpu_id] for gpu_id in sorted(self._newest)]
