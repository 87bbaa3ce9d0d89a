"""How many GPUs a team may have: a number of them, or per cent of the pool such as "25%"."""

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

GPUS_MOST: Final = 1_000_000
PERCENT_TEXT: Final = r"^[0-9]+(\.[0-9]{1,6})?\s*%$"


def percent_of(amount: float | str | None) -> float | None:
    """The number before the sign of a text such as "25%"; None for anything else. Raises ValueError above 100%."""
    if not isinstance(amount, str) or re.match(PERCENT_TEXT, amount, re.ASCII) is None:
        return None
    percent = float(amount.rstrip("%"))
    if percent > 100:
        raise ValueError("must be at most 100%")
    return percent


def percent_text(percent: float) -> str:
    """As `percent_of` reads it."""
    return f"{percent:g}%"


def parse_amount(value: Any) -> int | str:
    """A whole number of GPUs, or per cent in one form; 0% is 0. Raises ValueError."""
    percent = percent_of(value)
    if percent is not None:
        return percent_text(percent) if percent else 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError('must be a whole number of GPUs, or per cent of the pool such as "25%"')
    if not 0 <= value <= GPUS_MOST:
        raise ValueError(f"must be 0 to {GPUS_MOST}, or per cent of the pool")
    return value


Amount = Annotated[
    int | str,
    BeforeValidator(
        parse_amount,
        json_schema_input_type=Annotated[int, Field(ge=0, le=GPUS_MOST)] | Annotated[str, Field(pattern=PERCENT_TEXT)],
    ),
]
