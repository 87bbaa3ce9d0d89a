"""Which cards are unwell: kept over a restart, forgotten with a new boot.

NVML tells that a card failed, and never that it is well again: a reset or a reboot heals it. So what failed stays so
for as long as this boot lasts, unless the card comes back to the driver's list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from makeway_runtime.devices.port import HealthEvent, HealthKind
from pydantic import BaseModel, ConfigDict, ValidationError

BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A card's health as the scheduler is told it. `reason` is a sentence when it is not well."""

    uuid: str
    healthy: bool
    reason: str


def after(verdicts: Mapping[str, Verdict], events: Iterable[HealthEvent]) -> dict[str, Verdict]:
    """Returns the verdicts after some events. An application's own fault changes nothing."""
    changed = dict(verdicts)
    for event in events:
        if event.kind is HealthKind.RECOVERED:
            changed[event.uuid] = Verdict(uuid=event.uuid, healthy=True, reason="")
        elif event.fatal:
            changed[event.uuid] = Verdict(uuid=event.uuid, healthy=False, reason=event.detail or event.kind.value)
    return changed


def boot_id() -> str:
    """Returns the kernel's id of this boot."""
    return BOOT_ID_FILE.read_text(encoding="ascii").strip()


class _Kept(BaseModel):
    """The file: which boot it speaks of, and UUID to reason for each card that is not well."""

    model_config = ConfigDict(frozen=True)

    boot_id: str
    unwell: dict[str, str]


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
        same_boot = kept.boot_id == boot
        return {
            uuid: Verdict(uuid=uuid, healthy=not same_boot, reason=reason if same_boot else "")
            for uuid, reason in kept.unwell.items()
        }

    def save(self, boot: str, verdicts: Iterable[Verdict]) -> None:
        """Keeps which cards are not well. Raises OSError."""
        unwell = {verdict.uuid: verdict.reason for verdict in verdicts if not verdict.healthy}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".new")
        temporary.write_text(_Kept(boot_id=boot, unwell=unwell).model_dump_json(), encoding="utf-8")
        temporary.replace(self._path)
