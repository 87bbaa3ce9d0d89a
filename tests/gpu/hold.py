"""A CUDA process without torch: takes a context and 1 GiB of the first visible card and says ``ready SECONDS``.

Then it holds both until it is stopped; ``--stubborn`` ignores the notice. Seconds since 1970.
"""

import ctypes
import signal
import sys
import time

MEMORY_BYTES = 1 << 30


def ask(function: str, *arguments: object) -> None:
    """Call the CUDA driver; end with its code when it refuses."""
    code = getattr(ctypes.CDLL("libcuda.so.1"), function)(*arguments)
    if code != 0:
        sys.exit(f"{function} answers {code}")


def main() -> None:
    """Take the card, say so, hold it."""
    if "--stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    ask("cuInit", 0)
    ask("cuDeviceGet", ctypes.byref(device), 0)
    ask("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    ask("cuCtxSetCurrent", context)
    ask("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(MEMORY_BYTES))
    print(f"ready {time.time()}", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
