"""How much a replay takes on: beyond it a number is a slip of the pen, and would keep the clock busy for ever."""

from typing import Final

GPUS_MOST: Final = 1_000_000
"""GPUs of a cluster, and of one job."""

SECONDS_MOST: Final = 1e11
"""Of a duration, and of a time since 1970: some 3000 years."""

PRIORITY_MOST: Final = 1_000_000_000
