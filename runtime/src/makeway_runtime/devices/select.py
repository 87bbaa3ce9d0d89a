"""Which devices this node has: simulated ones when asked for, else what the driver finds."""

from __future__ import annotations

import importlib
from pathlib import Path

from makeway_runtime.devices.port import Devices, DriverMissing
from makeway_runtime.devices.simulated import SimulatedDevices


async def open_devices(*, simulate: str | None, node: str, state_dir: Path) -> Devices:
    """Opens the node's devices. Raises DriverMissing, or ValueError when `simulate` is no specification."""
    if simulate is not None:
        return SimulatedDevices(simulate, node=node, state_dir=state_dir)
    try:
        # Not at the top: nodes with simulated cards need neither the module's memory nor the package `nvml` brings.
        nvml = importlib.import_module("makeway_runtime.devices.nvml")
    except ModuleNotFoundError as error:
        raise DriverMissing("the package nvidia-ml-py is not installed: install makeway-runtime[nvml]") from error
    devices: Devices = await nvml.NvmlDevices.open()
    return devices
