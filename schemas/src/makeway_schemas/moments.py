"""Moments as people write them: a date and a time with its zone, within bounds that every part of makeway can count."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from pydantic import AfterValidator, AwareDatetime, BeforeValidator

MOMENT_MIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
MOMENT_MAX: Final = datetime(2100, 1, 1, tzinfo=UTC)
"""A fixed bound, so that a stored job is read the same whenever it is read."""

_NUMBER = re.compile(r"\s*[-+]?[0-9.]+(e[-+]?[0-9]+)?\s*", re.IGNORECASE)


def _no_number(value: Any) -> Any:
    # A number would be taken for seconds since 1970: 20270101 is a day in August 1970 then.
    if isinstance(value, int | float) or (isinstance(value, str) and _NUMBER.fullmatch(value)):
        raise ValueError("a date and time with its zone, such as 2027-01-01T08:00:00Z")
    return value


def _within_bounds(value: datetime) -> datetime:
    if not MOMENT_MIN <= value <= MOMENT_MAX:
        raise ValueError(f"must be from {MOMENT_MIN:%Y-%m-%dT%H:%M:%SZ} to {MOMENT_MAX:%Y-%m-%dT%H:%M:%SZ}")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_no_number), AfterValidator(_within_bounds)]
