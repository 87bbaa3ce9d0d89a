"""Simulated cards, for hosts without GPUs: real processes on pretended devices.

`--simulate 4xA100-80GB` gives four; several specifications are separated by commas. UUIDs derive from the node's name
and the index, so that they are the same after a restart.

A card shows the processes that were registered on it. The executor drops one file a run into `<state>/sim/<uuid>/`,
named by the run's id, and removes it at the run's end; each line is `pid start_ticks used_mib` (start_ticks: field 22
of /proc/PID/stat). A line whose process is gone, or whose number another process has got since, does not count.
`register` and `unregister` below write exactly that.

Test hook: `<state>/sim/hooks.json` changes what the cards show, live. It is an object from UUID to

    {"lost": false,
     "processes": [{"pid": 4711, "used_mib": 100}, {"pid": 4712, "stuck": true}],
     "readings": {"utilisation_percent": 55.5, "temperature_celsius": null},
     "events": [{"kind": "xid", "code": 79, "fatal": true, "detail": "fell off the bus"}]}

all keys optional. A stuck process counts though it does not live; others only while they do. A reading that is null is
not known. Events are told once each, in order: append to tell another. Where some were taken away, the card has been
mended: it is told to be well, then what is left in the list.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid5

from makeway_runtime.devices.port import (
    READINGS,
    DevicesUnknown,
    GpuInfo,
    GpuProcess,
    GpuSample,
    HealthEvent,
    HealthKind,
)
from makeway_runtime.devices.proc import ProcessStat, read_stat
from makeway_runtime.devices.types import KNOWN_VRAM_MIB, known_type

HOOKS_FILE: Final = "hooks.json"
MAX_CARDS: Final = 1024

_NAMESPACE: Final = UUID("6ab0a4ad-6b7c-4d5c-8c0f-0a5a4c2f8f7e")
_SPECIFICATION: Final = re.compile(r"(\d+)x(.+)")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def parse(specification: str) -> tuple[str, ...]:
    """Returns one type name a card, in index order. Raises ValueError with a sentence.

    >>> parse("1xA100-80GB,2xT4")
    ('A100-80GB', 'T4-16GB', 'T4-16GB')
    """
    cards: list[str] = []
    for part in specification.split(","):
        found = _SPECIFICATION.fullmatch(part.strip())
        if found is None or int(found[1]) == 0:
            raise ValueError(f"{part.strip()!r} is not a number of cards, an x and a type, as in 4xA100-80GB")
        if len(cards) + int(found[1]) > MAX_CARDS:
            raise ValueError(f"more than {MAX_CARDS} simulated cards on one node")
        cards.extend([known_type(found[2])] * int(found[1]))
    return tuple(cards)


def uuid_of(node: str, index: int) -> str:
    """Returns the UUID of a node's simulated card."""
    return f"GPU-{uuid5(_NAMESPACE, f'{node}/{index}')}"


def register(state_dir: Path, uuid: str, run_id: str, processes: Mapping[int, int]) -> None:
    """Shows a run's processes, pid to used MiB, on a card; a repeat replaces. Those already gone are left out."""
    folder = state_dir / "sim" / uuid
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f"{pid} {stat.start_ticks} {used_mib}\n"
        for pid, used_mib in processes.items()
        if (stat := read_stat(pid)) is not None
    ]
    temporary = folder / f".{run_id}.new"
    temporary.write_text("".join(lines), encoding="ascii")
    temporary.replace(folder / run_id)


def unregister(state_dir: Path, uuid: str, run_id: str) -> None:
    """Removes a run from a card; does nothing when it is not there."""
    (state_dir / "sim" / uuid / run_id).unlink(missing_ok=True)


class SimulatedDevices:
    """`Devices` without hardware. Only small files are read, so nothing here blocks for long."""

    simulated = True

    def __init__(self, specification: str, *, node: str, state_dir: Path) -> None:
        """Raises ValueError when the specification is none."""
        self._folder = state_dir / "sim"
        self._cards = tuple(
            GpuInfo(
                uuid=uuid_of(node, index),
                index=index,
                name=f"Simulated {type_name}",
                type_name=type_name,
                vram_mib=KNOWN_VRAM_MIB[type_name],
                reserved_mib=0,
                link_group=0,
            )
            for index, type_name in enumerate(parse(specification))
        )
        self._told: dict[str, int] = {}
        self._busy: dict[str, tuple[float, int]] = {}

    async def inventory(self) -> tuple[GpuInfo, ...]:
        """All cards that are not lost by the test hook."""
        hooks = self._hooks()
        return tuple(card for card in self._cards if not hooks.get(card.uuid, {}).get("lost", False))

    async def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        """Registered and hooked processes. Raises DevicesUnknown for a card that is none or is lost."""
        hook = self._hooks().get(uuid, {})
        if hook.get("lost", False) or all(card.uuid != uuid for card in self._cards):
            raise DevicesUnknown(f"there is no card {uuid}")
        found = {stat.pid: used_mib for stat, used_mib in self._registered(uuid)}
        for entry in hook.get("processes", []):
            stat = read_stat(entry["pid"])
            if entry.get("stuck", False) or (stat is not None and stat.alive):
                found[entry["pid"]] = entry.get("used_mib")
        return tuple(GpuProcess(pid=pid, used_mib=used_mib) for pid, used_mib in sorted(found.items()))

    async def samples(self) -> tuple[GpuSample, ...]:
        """A simulated card is as busy as its processes; power, temperature and clocks are not known."""
        hooks = self._hooks()
        return tuple([await self._sample(card, hooks.get(card.uuid, {})) for card in await self.inventory()])

    async def health_events(self) -> tuple[HealthEvent, ...]:
        """The hook's events that were not told yet."""
        events: list[HealthEvent] = []
        hooks = self._hooks()
        for uuid in sorted(hooks.keys() | self._told.keys()):
            listed = hooks.get(uuid, {}).get("events", [])
            if len(listed) < self._told.get(uuid, 0):
                mended = "its faults were taken away"
                events.append(HealthEvent(uuid=uuid, kind=HealthKind.RECOVERED, fatal=False, detail=mended))
                self._told[uuid] = 0
            for entry in listed[self._told.get(uuid, 0) :]:
                events.append(
                    HealthEvent(
                        uuid=uuid,
                        kind=HealthKind(entry["kind"]),
                        fatal=entry.get("fatal", True),
                        detail=entry.get("detail", ""),
                        code=entry.get("code"),
                    )
                )
            self._told[uuid] = len(listed)
        return tuple(events)

    async def close(self) -> None:
        """There is nothing to let go of."""

    async def _sample(self, card: GpuInfo, hook: Mapping[str, Any]) -> GpuSample:
        processes = await self.processes(card.uuid)
        readings: dict[str, Any] = {
            "utilisation_percent": self._utilisation_percent(card.uuid),
            "vram_used_mib": sum(process.used_mib or 0 for process in processes),
            "processes": len(processes),
        }
        readings.update({name: value for name, value in hook.get("readings", {}).items() if name in READINGS})
        return GpuSample(
            uuid=card.uuid, index=card.index, type_name=card.type_name, vram_total_mib=card.vram_mib, **readings
        )

    def _utilisation_percent(self, uuid: str) -> float | None:
        """CPU time of the card's processes since the last call, as a share of one core; unknown the first time."""
        now = time.monotonic()
        ticks = sum(stat.cpu_ticks for stat, _ in self._registered(uuid))
        before = self._busy.get(uuid)
        self._busy[uuid] = (now, ticks)
        if before is None or now <= before[0]:
            return None
        # Processes that ended took their ticks with them: that interval may come out short, never negative.
        busy_seconds = max(0, ticks - before[1]) / _TICKS_PER_SECOND
        return min(100.0, 100.0 * busy_seconds / (now - before[0]))

    def _registered(self, uuid: str) -> list[tuple[ProcessStat, int]]:
        folder = self._folder / uuid
        try:
            files = sorted(folder.iterdir())
        except FileNotFoundError:
            return []
        found: list[tuple[ProcessStat, int]] = []
        for file in files:
            if not file.name.startswith("."):
                found.extend(_living(file))
        return found

    def _hooks(self) -> dict[str, dict[str, Any]]:
        try:
            text = (self._folder / HOOKS_FILE).read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        try:
            hooks: dict[str, dict[str, Any]] = json.loads(text)
        except ValueError as error:
            raise DevicesUnknown(f"{HOOKS_FILE} is no JSON: {error}") from error
        return hooks


def _living(file: Path) -> list[tuple[ProcessStat, int]]:
    try:
        text = file.read_text(encoding="ascii")
    except FileNotFoundError:
        return []
    found: list[tuple[ProcessStat, int]] = []
    for line in text.splitlines():
        try:
            pid, start_ticks, used_mib = map(int, line.split())
        except ValueError as error:
            raise DevicesUnknown(f"{file} holds a line that is not three numbers") from error
        stat = read_stat(pid)
        if stat is not None and stat.alive and stat.start_ticks == start_ticks:
            found.append((stat, used_mib))
    return found
