"""Who is on the cards: simulated ones have to be told, real ones see for themselves."""

from __future__ import annotations

import contextlib
from pathlib import Path

from makeway_runtime.devices.simulated import register, unregister

from makeway_executor.run import Run


class SimulatedCards:
    """Registers the main process of each run on the cards it has leased, with the VRAM that it was granted."""

    def __init__(self, state_dir: Path) -> None:
        """`state_dir` is the one that the simulated devices read."""
        self._state_dir = state_dir

    def occupy(self, run: Run, pid: int) -> None:
        """A full disk makes a simulated card look empty; the run's tree still has to be gone."""
        with contextlib.suppress(OSError):
            for gpu in () if run.planned is None else run.planned.gpus:
                register(self._state_dir, gpu.gpu_id, run.run_id, {pid: gpu.vram_mib})

    def leave(self, run: Run) -> None:
        """The run's tree is gone."""
        with contextlib.suppress(OSError):
            for gpu in () if run.planned is None else run.planned.gpus:
                unregister(self._state_dir, gpu.gpu_id, run.run_id)


class RealCards:
    """Nothing to tell."""

    def occupy(self, run: Run, pid: int) -> None:
        """The driver knows."""

    def leave(self, run: Run) -> None:
        """The driver knows."""
