"""How values of expectations are read and told."""

import math
from collections.abc import Mapping
from typing import Any, Final

from makeway_simulator.scenario import notation
from makeway_simulator.scenario.case import CYCLE_SECONDS
from makeway_simulator.scenario.history import JobSeen, Snapshot
from makeway_simulator.scenario.wanted import Expectation

ROUNDING: Final = 1e-6


def words_of(given: str | tuple[str, ...]) -> tuple[str, ...]:
    """One word or several."""
    return (given,) if isinstance(given, str) else given


def seconds_of(within: float | str | None, default: float) -> float:
    """How much later is in time too."""
    if within is None:
        return default
    return CYCLE_SECONDS if isinstance(within, str) else within


def jobs_of(seen: Snapshot, asked: Expectation) -> list[str]:
    """The jobs that an expectation is about: those in `of`, else all."""
    named = None if asked.of is None else set(notation.names(asked.of))
    return [name for name in seen.jobs if named is None or name in named]


def told_of(job: JobSeen) -> str:
    """A job's state, with its reason."""
    return f"{job.state} ({job.reason})" if job.reason else job.state


def when(at: float) -> str:
    """A moment, or that there is none."""
    return "never" if math.isinf(at) else f"at {at:g}"


def plain(value: Any) -> str:
    """Any value in a line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {plain(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return " ".join(plain(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
