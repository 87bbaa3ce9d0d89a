"""Numbers as JSON takes them, of whatever library they are: numpy's, a tensor of one element, fractions."""

import numbers
import operator
from typing import Any, SupportsIndex


def whole(name: str, value: SupportsIndex) -> int:
    """The integer that a value is. Raises TypeError, with the argument's name, for any other."""
    try:
        return int(operator.index(value))
    except (TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise _refusal(name, "a whole number", value) from error


def real(name: str, value: Any) -> float | None:
    """A whole number as an int, another as a float, None as it is. Raises TypeError, with the argument's name."""
    if value is None:
        return None
    if isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real):
        raise _refusal(name, "a number or None", value)  # some would drop the imaginary part with a mere warning
    try:
        return whole(name, value)
    except TypeError:
        return _fractional(name, value)


def _fractional(name: str, value: Any) -> float:
    if not hasattr(value, "__float__"):  # float() would read a text
        raise _refusal(name, "a number or None", value)
    try:
        return float(value)
    except (TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise _refusal(name, "a number or None", value) from error


def _refusal(name: str, wanted: str, value: object) -> TypeError:
    return TypeError(f"{name} must be {wanted}, not {type(value).__name__}")
