"""Which cards are unwell: kept over a restart, forgotten with a new boot.

NVML tells that a card failed, and never that it is well again: a reset or a reboot heals it. So what failed stays so
for as long as this boot lasts, unless the card comes back to the driver's list, whichever sampler saw it missing, or
an operator says that it was mended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from makeway_runtime.devices.port import GpuInfo, HealthEvent, HealthKind
from pydantic import BaseModel, ConfigDict, ValidationError

BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A card's health as the scheduler is told it. `reason` is a sentence when it is not well.

    `missing`: since it failed, the driver was seen not to list it.
    """

    uuid: str
    healthy: bool
    reason: str
    missing: bool = False


def after(verdicts: Mapping[str, Verdict], events: Iterable[HealthEvent]) -> dict[str, Verdict]:
    """Returns the verdicts after some events. An application's own fault changes nothing."""
    changed = dict(verdicts)
    for event in events:
        if event.kind is HealthKind.RECOVERED:
            changed[event.uuid] = Verdict(uuid=event.uuid, healthy=True, reason="")
        elif event.fatal:
            changed[event.uuid] = Verdict(uuid=event.uuid, healthy=False, reason=event.detail or event.kind.value)
    return changed


def seen(verdicts: Mapping[str, Verdict], listed: Collection[str]) -> dict[str, Verdict]:
    """Returns the verdicts after the driver has listed these cards: one that failed, was gone and is back is well."""
    changed = dict(verdicts)
    for uuid, verdict in verdicts.items():
        if verdict.healthy:
            continue
        if uuid not in listed:
            changed[uuid] = replace(verdict, missing=True)
        elif verdict.missing:
            changed[uuid] = Verdict(uuid=uuid, healthy=True, reason="")
    return changed


def mended(verdicts: Mapping[str, Verdict], words: Collection[str], listed: Collection[str]) -> dict[str, Verdict]:
    """Returns the verdicts after an operator's word that cards were mended: those that the driver lists are well."""
    well = {uuid: Verdict(uuid=uuid, healthy=True, reason="") for uuid in words if uuid in verdicts and uuid in listed}
    return dict(verdicts) | well


def with_instances(verdicts: Mapping[str, Verdict], known: Iterable[GpuInfo]) -> dict[str, Verdict]:
    """Returns the verdicts with those of instances, which are as unwell as their card and well again only with it.

    Faults name the card, while the scheduler knows its instances alone.
    """
    told = dict(verdicts)
    for device in known:
        card = None if device.parent_uuid is None else verdicts.get(device.parent_uuid)
        if card is not None and (device.uuid not in verdicts or not card.healthy):
            told[device.uuid] = replace(card, uuid=device.uuid)
    return told


def cards_of(listed: Iterable[GpuInfo]) -> set[str]:
    """Returns what the driver shows to be there: each device, and the card of each instance."""
    return {uuid for device in listed for uuid in (device.uuid, device.parent_uuid) if uuid is not None}


def boot_id() -> str:
    """Returns the kernel's id of this boot."""
    return BOOT_ID_FILE.read_text(encoding="ascii").strip()


class _Kept(BaseModel):
    """The file: which boot it speaks of, UUID to reason for each card that is not well, and which are well again."""

    model_config = ConfigDict(frozen=True)

    boot_id: str
    unwell: dict[str, str]
    missing: frozenset[str] = frozenset()
    well_again: frozenset[str] = frozenset()


class VerdictFile:
    """The verdicts on disk."""

    def __init__(self, state_dir: Path) -> None:
        """Lives in `<state_dir>/telemetry`."""
        self._path = state_dir / "telemetry" / "health.json"

    def load(self, boot: str) -> dict[str, Verdict]:
        """Returns what was kept. From another boot, every card that had failed is well now, which must be told."""
        try:
            kept = _Kept.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValidationError:
            # Not ours: the cards themselves will tell again.
            return {}
        well = {uuid: Verdict(uuid=uuid, healthy=True, reason="") for uuid in {*kept.unwell, *kept.well_again}}
        if kept.boot_id != boot:
            return well
        return well | {
            uuid: Verdict(uuid=uuid, healthy=False, reason=reason, missing=uuid in kept.missing)
            for uuid, reason in kept.unwell.items()
        }

    def save(self, boot: str, verdicts: Collection[Verdict]) -> None:
        """Keeps which cards are not well, and which are again: word of that may be lost. Raises OSError."""
        kept = _Kept(
            boot_id=boot,
            unwell={verdict.uuid: verdict.reason for verdict in verdicts if not verdict.healthy},
            missing=frozenset(verdict.uuid for verdict in verdicts if verdict.missing),
            well_again=frozenset(verdict.uuid for verdict in verdicts if verdict.healthy),
        )
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".new")
        temporary.write_text(kept.model_dump_json(), encoding="utf-8")
        temporary.replace(self._path)
