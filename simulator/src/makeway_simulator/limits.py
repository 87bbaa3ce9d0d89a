"""How much a replay takes on: beyond it a number is a slip of the pen, and would keep the clock busy for ever."""

from typing import Final

CLUSTER_GPUS_MOST: Final = 100_000

GPUS_MOST: Final = 1_000_000
"""Of one job."""

SECONDS_MOST: Final = 1e11
"""Of a duration, and of a time since 1970: some 3000 years."""
