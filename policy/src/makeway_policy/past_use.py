"""What a team has used beyond its guarantee, forgotten by half with each half-life, for its fair share.

It is the average over all its past of the GPUs that it used beyond its guarantee, the last half-life weighing as much
as everything before it. Use changes in steps, so the average is exact and costs one step a change.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class PastUse:
    """The average in GPUs as it was at `as_of`, and the GPUs beyond the guarantee that are used since."""

    average: float
    since_then: float
    as_of: float


NEVER = PastUse(average=0.0, since_then=0.0, as_of=0.0)


def average_at(past: PastUse, now: float, half_life_seconds: float) -> float:
    """The average at a moment that is not before `as_of`."""
    kept = math.exp2(-max(0.0, now - past.as_of) / half_life_seconds)
    return past.average * kept + past.since_then * (1.0 - kept)


def changed(past: PastUse, beyond: float, now: float, half_life_seconds: float) -> PastUse:
    """The same past when another number of GPUs beyond the guarantee is used from now on."""
    return PastUse(average=average_at(past, now, half_life_seconds), since_then=beyond, as_of=max(now, past.as_of))
