"""The GPUs of this host through NVIDIA's management library.

Every call may block for seconds when the driver is busy, and for ever when it is broken; drivers lack functions that
newer ones have, and some answer nonsense (the process list of version 3 changed its layout without a new name in
R535). So: one thread with a time limit, a reading that fails is not known, and only what agrees with /proc is believed.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any, Final, TypeVar

import pynvml
import structlog

from makeway_runtime.devices.nvml_calls import Handle, reading, text
from makeway_runtime.devices.nvml_inventory import find_devices
from makeway_runtime.devices.nvml_readings import processes_of, sample_of
from makeway_runtime.devices.port import (
    DevicesUnknown,
    DriverMissing,
    GpuInfo,
    GpuProcess,
    GpuSample,
    HealthEvent,
    HealthKind,
)
from makeway_runtime.devices.worker import BoundedWorker

_LOG: Final = structlog.get_logger(__name__)

ResultT = TypeVar("ResultT")

CALL_LIMIT_SECONDS: Final = 5.0
OPEN_LIMIT_SECONDS: Final = 45.0
"""With persistence mode off and nobody else on the cards, the driver first sets each of them up: seconds a card."""
EVENT_WAIT_MS: Final = 1_000
CLOSE_LIMIT_SECONDS: Final = 2.0
MAX_EVENTS: Final = 1_000

APPLICATION_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""XIDs that a faulty application causes; the card itself is well. Source: NVIDIA's XID catalogue."""

_EVENT_KINDS: Final = (
    (0x8, HealthKind.XID),  # nvmlEventTypeXidCriticalError
    (0x2, HealthKind.ECC),  # nvmlEventTypeDoubleBitEccError
    (0x2000, HealthKind.ECC),  # nvmlEventTypeGpuFatalPoison
    (0x4000, HealthKind.UNAVAILABLE),  # nvmlEventTypeGpuUnavailable
    (0x8000, HealthKind.UNAVAILABLE),  # nvmlEventTypeGpuRecoveryAction
)


class NvmlDevices:
    """`Devices` by NVML."""

    simulated = False

    def __init__(self, *, call_limit_seconds: float = CALL_LIMIT_SECONDS) -> None:
        """Use `open`."""
        self._worker = BoundedWorker(limit_seconds=call_limit_seconds)
        self._handles: dict[str, Handle] = {}
        self._events: deque[HealthEvent] = deque(maxlen=MAX_EVENTS)
        self._lost: set[str] = set()
        self._cards: frozenset[str] = frozenset()
        self._unheard: SimpleQueue[Any] = SimpleQueue()
        """Handles of cards that have come; None when there will be no more."""
        self._closing = threading.Event()
        self._listener = threading.Thread(target=self._listen, name="gpu-events", daemon=True)

    @classmethod
    async def open(cls, *, call_limit_seconds: float = CALL_LIMIT_SECONDS) -> NvmlDevices:
        """Loads the library and finds the devices, which may take long. Raises DriverMissing or DevicesUnknown."""
        devices = cls(call_limit_seconds=call_limit_seconds)
        try:
            await devices._worker.call(pynvml.nvmlInit, limit_seconds=OPEN_LIMIT_SECONDS)
            await devices._look(limit_seconds=OPEN_LIMIT_SECONDS)
        except pynvml.NVMLError as error:
            devices._worker.close()
            raise DriverMissing(f"NVML cannot be used: {error}") from error
        except DevicesUnknown:
            devices._worker.close()
            raise
        devices._listener.start()
        return devices

    async def inventory(self) -> tuple[GpuInfo, ...]:
        """Looks again: instances come and go."""
        return await self._look()

    async def _look(self, *, limit_seconds: float | None = None) -> tuple[GpuInfo, ...]:
        found = await self._ask(find_devices, limit_seconds=limit_seconds)
        self._note_changes({device.info.uuid for device in found})
        self._handles = {device.info.uuid: device for device in found}
        cards = _cards_of(found)
        for uuid in sorted(cards.keys() - self._cards):
            self._unheard.put(cards[uuid])
        self._cards = frozenset(cards)
        return tuple(device.info for device in found)

    async def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        """Compute and graphics processes that live here."""
        device = self._handles.get(uuid)
        if device is None:
            raise DevicesUnknown(f"there is no device {uuid}")
        return await self._ask(lambda: processes_of(device))

    async def samples(self) -> tuple[GpuSample, ...]:
        """One round over all devices, in one call to the thread."""
        devices = tuple(self._handles.values())
        return await self._ask(lambda: tuple(sample_of(device) for device in devices))

    async def health_events(self) -> tuple[HealthEvent, ...]:
        """What the listening thread heard."""
        events: list[HealthEvent] = []
        while self._events:
            events.append(self._events.popleft())
        return tuple(events)

    async def close(self) -> None:
        """Ends both threads; the library stays loaded."""
        self._closing.set()
        self._unheard.put(None)
        await asyncio.to_thread(self._listener.join, CLOSE_LIMIT_SECONDS)
        try:
            await self._worker.call(pynvml.nvmlShutdown)
        except (pynvml.NVMLError, DevicesUnknown) as error:
            _LOG.info("NVML was not shut down", error=str(error))
        self._worker.close()

    def _note_changes(self, now: set[str]) -> None:
        for uuid in sorted(self._handles.keys() - now):
            self._lost.add(uuid)
            self._events.append(
                HealthEvent(uuid=uuid, kind=HealthKind.LOST, fatal=True, detail="the driver no longer lists it")
            )
        for uuid in sorted(self._lost & now):
            self._lost.remove(uuid)
            self._events.append(
                HealthEvent(uuid=uuid, kind=HealthKind.RECOVERED, fatal=False, detail="the driver lists it again")
            )

    async def _ask(self, question: Callable[[], ResultT], *, limit_seconds: float | None = None) -> ResultT:
        try:
            return await self._worker.call(question, limit_seconds=limit_seconds)
        except pynvml.NVMLError as error:
            raise DevicesUnknown(f"NVML: {error}") from error

    def _listen(self) -> None:
        """A thread of its own: waiting for events blocks."""
        try:
            events, heard = pynvml.nvmlEventSetCreate(), False
            while not self._closing.is_set():
                # Cards may come later, and one that comes back is another to the driver. With none there is no waiting.
                while not heard or not self._unheard.empty():
                    card = self._unheard.get()
                    if card is None:
                        break
                    heard |= _register(card, events)
                if heard:
                    self._hear(events)
            pynvml.nvmlEventSetFree(events)
        except pynvml.NVMLError as error:
            _LOG.warning("no health events from NVML", error=str(error))

    def _hear(self, events: Any) -> None:
        try:
            data = pynvml.nvmlEventSetWait_v2(events, EVENT_WAIT_MS)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_TIMEOUT:
                return
            if error.value != pynvml.NVML_ERROR_GPU_IS_LOST:
                raise
            # The library does not say which; the next inventory does.
            self._closing.wait(EVENT_WAIT_MS / 1000)
            return
        self._events.append(_event(text(pynvml.nvmlDeviceGetUUID(data.device)), data.eventType, data.eventData))


def _cards_of(devices: Iterable[Handle]) -> dict[str, Any]:
    """UUID to handle of the cards: the driver tells nothing of instances, and their card is no device itself."""
    return {device.info.parent_uuid or device.info.uuid: device.parent or device.handle for device in devices}


def _register(card: Any, events: Any) -> bool:
    supported = reading(lambda: pynvml.nvmlDeviceGetSupportedEventTypes(card)) or 0
    wanted = supported & sum(bit for bit, _ in _EVENT_KINDS)
    if not wanted:
        return False
    try:
        pynvml.nvmlDeviceRegisterEvents(card, wanted, events)
    except pynvml.NVMLError as error:
        _LOG.warning("no health events of one GPU from NVML", error=str(error))
        return False
    return True


def _event(uuid: str, event_type: int, data: int) -> HealthEvent:
    kind = next((kind for bit, kind in _EVENT_KINDS if event_type & bit), HealthKind.UNAVAILABLE)
    if kind is HealthKind.XID:
        return HealthEvent(uuid=uuid, kind=kind, fatal=data not in APPLICATION_XIDS, detail=f"XID {data}", code=data)
    return HealthEvent(uuid=uuid, kind=kind, fatal=True, detail=f"NVML event {event_type:#x}")
