"""The clock of this node: since its boot, unmoved by anybody who sets the time. What is told are ages."""

import secrets
import time
from pathlib import Path

_NS_PER_SECOND = 1_000_000_000


def now_ns() -> int:
    """Nanoseconds since boot, time asleep included; the shim's `boottime_ns` is the same clock."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def age_seconds(at_ns: int, *, until_ns: int | None = None) -> float:
    """Seconds since `at_ns`, never negative."""
    return max(0, (now_ns() if until_ns is None else until_ns) - at_ns) / _NS_PER_SECOND


def new_session() -> str:
    """Names one start of the executor. Within a boot a later start sorts after an earlier one: the newer silences the
    older.
    """
    return f"{now_ns():016x}{secrets.token_hex(4)}"


def boot_id() -> str:
    """The kernel's name for this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
