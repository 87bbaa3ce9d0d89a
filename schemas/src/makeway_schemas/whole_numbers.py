"""Whole numbers of any length, so that one that is too large is refused by its field, with the limit."""

from typing import Final

_MOST_DIGITS: Final = 300
"""More than any limit has, no more than a float holds, and fewer than Python refuses to convert."""


def read_whole(text: str) -> int:
    """The number that digits, with or without a sign, are; of more than 300 digits one that is as good as it."""
    sign, digits = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    return int(sign + (digits.lstrip("0") or "0")[:_MOST_DIGITS])
