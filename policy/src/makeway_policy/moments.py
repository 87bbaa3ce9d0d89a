"""Moments in sentences that are stored: a length of time would be wrong a second later.

Written without the standard library's dates, which come with a clock and end with the year 9999.
"""

import math

_DAY_SECONDS = 86_400
_ERA_DAYS = 146_097
"""The Gregorian calendar repeats after 400 years."""


def moment(at: float) -> str:
    """UTC, rounded up to the second, such as ``2027-01-01T08:00:00+00:00``."""
    if not math.isfinite(at):
        return "never"
    days, seconds = divmod(math.ceil(at), _DAY_SECONDS)
    minutes, second = divmod(seconds, 60)
    year, month, day = _date(days)
    return f"{year:04d}-{month:02d}-{day:02d}T{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}+00:00"


def _date(days: int) -> tuple[int, int, int]:
    """The date so many days after 1970-01-01. Years begin in March here, so that a leap day is the last of its year."""
    era, of_era = divmod(days + 719_468, _ERA_DAYS)
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    return 400 * era + year + (month >= 10), month + 3 if month < 10 else month - 9, day
