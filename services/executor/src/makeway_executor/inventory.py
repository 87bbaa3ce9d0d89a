"""The cards of this node as this executor knows them. One that vanished stays known, as lost."""

from __future__ import annotations

from typing import Final

import structlog
from makeway_runtime.devices.port import Devices, DevicesUnknown, GpuInfo

from makeway_executor import clock

_LOG: Final = structlog.get_logger(__name__)

READ_AGAIN_SECONDS: Final = 60.0


class Inventory:
    """Read at the start, then once in a while."""

    def __init__(self, devices: Devices) -> None:
        """Knows nothing yet."""
        self._devices = devices
        self._cards: dict[str, tuple[GpuInfo, bool]] = {}
        self._read_ns = 0

    async def read(self) -> None:
        """Asks the driver. No answer changes nothing."""
        self._read_ns = clock.now_ns()
        try:
            found = {info.uuid: (info, True) for info in await self._devices.inventory()}
        except DevicesUnknown as error:
            _LOG.warning("the cards could not be read", error=str(error))
            return
        gone = {gpu_id: (info, False) for gpu_id, (info, _) in self._cards.items() if gpu_id not in found}
        self._cards = found | gone

    async def read_if_old(self) -> None:
        """Asks again when the last answer is old."""
        if clock.age_seconds(self._read_ns) >= READ_AGAIN_SECONDS:
            await self.read()

    @property
    def cards(self) -> tuple[tuple[GpuInfo, bool], ...]:
        """Every card that was ever seen, and whether it is there now."""
        return tuple(self._cards.values())

    @property
    def present(self) -> tuple[str, ...]:
        """The ids of the cards that are there."""
        return tuple(gpu_id for gpu_id, (_, present) in self._cards.items() if present)

    def missing(self, gpu_ids: tuple[str, ...]) -> str:
        """A sentence when one of the cards is not there, else empty."""
        for gpu_id in gpu_ids:
            if gpu_id not in self._cards or not self._cards[gpu_id][1]:
                return f"this node has no GPU {gpu_id} now"
        return ""
