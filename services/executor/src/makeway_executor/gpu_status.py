"""What is known of a GPU beyond its inventory, kept over a restart of the executor.

A restart must not make a card better than it was: what had not gone from it, its probation and the strangers on it are
read again. Of another boot nothing is: no process of it is left. Nothing is fsynced, for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog
from makeway_runtime.devices.proc import is_alive, read_stat
from pydantic import BaseModel, ConfigDict, ValidationError

_LOG: Final = structlog.get_logger(__name__)

NOT_LOOKED_AT: Final = "it was not looked at yet since the executor has started"


@dataclass(slots=True, kw_only=True)
class GpuStatus:
    """One GPU. Times in nanoseconds since boot."""

    stuck_runs: set[str] = field(default_factory=set)
    probation_until_ns: int = 0
    strangers: frozenset[int] = frozenset()
    unknown: str = NOT_LOOKED_AT
    """Why it is not known what is on it; empty when it is."""


class _Stranger(BaseModel):
    """A process by more than its number, which another may have got since."""

    model_config = ConfigDict(frozen=True)

    pid: int
    start_ticks: int


class _KeptGpu(BaseModel):
    model_config = ConfigDict(frozen=True)

    stuck_runs: tuple[str, ...] = ()
    probation_until_ns: int = 0
    strangers: tuple[_Stranger, ...] = ()


class _Kept(BaseModel):
    """The file: which boot it speaks of, and each GPU of which there is something to say."""

    model_config = ConfigDict(frozen=True)

    boot_id: str
    gpus: dict[str, _KeptGpu]


class GpuStatusFile:
    """The file of one node; written only when something has changed, which is rare."""

    def __init__(self, path: Path, *, boot_id: str) -> None:
        """Opens nothing yet."""
        self._path = path
        self._boot_id = boot_id
        self._written: _Kept | None = None

    def load(self) -> dict[str, GpuStatus]:
        """What an earlier executor of this boot knew, by GPU; none of them has been looked at."""
        try:
            kept = _Kept.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValidationError as error:
            _LOG.warning("what was known of the GPUs cannot be read", path=str(self._path), error=str(error))
            return {}
        if kept.boot_id != self._boot_id:
            return {}
        self._written = kept
        return {gpu_id: _status_of(gpu) for gpu_id, gpu in kept.gpus.items()}

    def keep(self, gpus: Mapping[str, GpuStatus]) -> None:
        """Writes what has changed. A full disk leaves it in memory alone."""
        told = {gpu_id: _kept_of(status) for gpu_id, status in sorted(gpus.items())}
        kept = _Kept(boot_id=self._boot_id, gpus={gpu_id: gpu for gpu_id, gpu in told.items() if gpu != _KeptGpu()})
        if kept == self._written or (self._written is None and not kept.gpus and not self._path.exists()):
            return
        temporary = self._path.with_suffix(".new")
        try:
            temporary.write_text(kept.model_dump_json(), encoding="ascii")
            temporary.replace(self._path)
        except OSError as error:
            _LOG.warning("what is known of the GPUs is kept in memory alone", error=str(error))
            return
        self._written = kept


def _status_of(gpu: _KeptGpu) -> GpuStatus:
    alive = frozenset(each.pid for each in gpu.strangers if is_alive(each.pid, each.start_ticks))
    return GpuStatus(stuck_runs=set(gpu.stuck_runs), probation_until_ns=gpu.probation_until_ns, strangers=alive)


def _kept_of(status: GpuStatus) -> _KeptGpu:
    found = [(pid, read_stat(pid)) for pid in sorted(status.strangers)]
    return _KeptGpu(
        stuck_runs=tuple(sorted(status.stuck_runs)),
        probation_until_ns=status.probation_until_ns,
        strangers=tuple(_Stranger(pid=pid, start_ticks=stat.start_ticks) for pid, stat in found if stat is not None),
    )
