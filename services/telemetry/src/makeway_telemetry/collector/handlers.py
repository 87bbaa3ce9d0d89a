"""What the collector does with a batch of `gpu.samples`."""

from __future__ import annotations

from collections.abc import Sequence

from makeway_runtime.kafka.messages import Incoming, PoisonFound
from makeway_schemas.samples import GpuSamples
from pydantic import ValidationError

from makeway_telemetry.collector.readings import NewestReadings, Reading, readings_of
from makeway_telemetry.collector.store import Store


class SamplesHandler:
    """Keeps the newest readings in memory and writes the batch to the database."""

    def __init__(self, newest: NewestReadings, store: Store) -> None:
        """Shares `newest` with the metrics page."""
        self._newest = newest
        self._store = store

    async def __call__(self, batch: Sequence[Incoming]) -> None:
        """Handles a batch. Raises PoisonFound for messages that are no samples, and what the database raises.

        A batch that comes again adds its rows to the history again; everything else is the same as once.
        """
        readings: list[Reading] = []
        reasons: dict[tuple[int, int], str] = {}
        for message in batch:
            try:
                readings.extend(readings_of(GpuSamples.model_validate_json(message.value), message.received))
            except ValidationError as error:
                reasons[(message.partition, message.offset)] = f"not gpu samples: {error.errors()[0]['msg']}"
        if reasons:
            raise PoisonFound(reasons)
        # Memory first: Prometheus shows what is there also while the database is away.
        self._newest.apply(readings)
        if readings:
            await self._store.write(readings)
