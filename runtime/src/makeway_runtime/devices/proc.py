"""Living processes, as /proc tells. A process is (pid, start time): numbers are used again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """`start_ticks` is field 22 of /proc/PID/stat, `cpu_ticks` user and system time together."""

    pid: int
    state: str
    threads: int
    start_ticks: int
    cpu_ticks: int

    @property
    def alive(self) -> bool:
        """False for a zombie: it has let go of all devices. Where only the first thread has ended, others live on."""
        return self.state not in "ZXx" or self.threads > 1


def read_stat(pid: int) -> ProcessStat | None:
    """Returns what the kernel says of a process, or None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name stands in brackets and may hold anything, brackets and blanks too.
    fields = text[text.rindex(")") + 2 :].split()
    return ProcessStat(
        pid=pid,
        state=fields[0],
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
    )


def is_alive(pid: int, start_ticks: int | None = None) -> bool:
    """Whether the process lives, and is the one that started then."""
    stat = read_stat(pid)
    return stat is not None and stat.alive and start_ticks in (None, stat.start_ticks)
