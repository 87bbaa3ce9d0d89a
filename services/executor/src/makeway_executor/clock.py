"""The clock of this node: since its boot, unmoved by anybody who sets the time. What is told are ages."""

import time
from pathlib import Path

_NS_PER_SECOND = 1_000_000_000


def now_ns() -> int:
    """Nanoseconds since boot, time asleep included; the shim's `boottime_ns` is the same clock."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def age_seconds(at_ns: int, *, until_ns: int | None = None) -> float:
    """Seconds since `at_ns`, never negative."""
    return max(0, (now_ns() if until_ns is None else until_ns) - at_ns) / _NS_PER_SECOND


def boot_id() -> str:
    """The kernel's name for this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
