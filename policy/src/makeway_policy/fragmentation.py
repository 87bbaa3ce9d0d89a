"""Fragmentation: how much of a node's idle GPU the jobs that are being submitted could not use.

The `frag` strategy takes the node on which it grows least; growths within `STEP_MILLI` are equal. The demand is the
shapes of the last `WINDOW` submitted jobs, each with its part of them. It goes back to "Beware of Fragmentation"
(USENIX ATC'23), which asks for each shape whether one job fits; here a second reading is averaged in, of a node filled
with such jobs, so that CPU for one more job does not pass for CPU for all the GPUs that are left. Of a card a shape can
use whole multiples of what it asks for.

Amounts are in thousandths of a card, as whole numbers where they are inputs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

WINDOW: Final = 1000
"""The demand is the shapes of so many last submitted jobs."""
STEP_MILLI: Final = 20
"""Growths are told apart in steps of so much."""
CARD_MILLI: Final = 1000
"""A whole card."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Want:
    """A shape of the demand: `milli` of each of `gpus` cards (0 for none) of one of `types` (empty: any), and CPUs.

    `weight` is its part of the demand; all weights sum to 1. CPUs are in the node's unit.
    """

    gpus: int
    milli: int
    cpus: float
    weight: float
    types: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Left:
    """What is left of a node: thousandths of each card, all of one type, and CPUs."""

    cards: tuple[int, ...]
    cpus: float
    type_name: str = ""


def fragmentation(demand: Iterable[Want], left: Left) -> float:
    """The idle thousandths that the demand cannot use: the mean over its shapes, by weight."""
    idle = sum(left.cards)
    return sum(want.weight * (idle - _usable(want, left)) for want in demand)


def growth_steps(before: float, after: float) -> int:
    """How much fragmentation grows from one amount to another, in steps; fewer is better."""
    # Rounded first: what is equal but for the order of a sum must stay equal.
    return round(round(after - before, 6) / STEP_MILLI)


def demand_of(wants: Iterable[Want]) -> tuple[Want, ...]:
    """The same shapes put together, weights summing to 1. Gives none for none."""
    sums: dict[tuple[int, int, float, frozenset[str]], float] = {}
    for want in wants:
        key = (want.gpus, want.milli, want.cpus, want.types)
        sums[key] = sums.get(key, 0.0) + want.weight
    total = sum(sums.values())
    return tuple(
        Want(gpus=gpus, milli=milli, cpus=cpus, types=types, weight=weight / total)
        for (gpus, milli, cpus, types), weight in sums.items()
    )


def _usable(want: Want, left: Left) -> float:
    if want.gpus == 0 or (want.types and left.type_name not in want.types):
        return 0.0
    able = [card for card in left.cards if card >= max(1, want.milli)]
    by_card = sum(card // max(1, want.milli) * max(1, want.milli) for card in able)
    fits_one = len(able) >= want.gpus and left.cpus >= want.cpus
    single = by_card if fits_one else 0
    per_job = want.gpus * want.milli
    filled = by_card if want.gpus == 1 else len(able) // want.gpus * per_job
    if want.cpus > 0:
        filled = min(filled, int(max(0.0, left.cpus) // want.cpus) * per_job)
    return (single + filled) / 2
