"""Which GPUs this host has: asked once, before a cluster starts."""

import pynvml

__all__ = ["found_gpus"]


def found_gpus() -> list[str]:
    """The product names of the host's GPUs by NVML index; empty where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        names = [pynvml.nvmlDeviceGetName(handle) for handle in handles]
        return [name.decode() if isinstance(name, bytes) else str(name) for name in names]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()
