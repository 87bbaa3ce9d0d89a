"""Numbers of any library become plain ones; what is none is refused with the argument's name."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from makeway.job.number import real, whole


class TensorOfTwo:
    """Refuses as torch does."""

    def __index__(self) -> int:
        raise TypeError("only integer tensors of a single element can be converted to an index")

    def __float__(self) -> float:
        raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")


@pytest.mark.parametrize("value", [5, np.int64(5), np.uint8(5), np.array(5)])
def test_whole_numbers_are_taken_as_int(value: Any) -> None:
    assert (whole("step", value), type(whole("step", value))) == (5, int)
    assert (real("epoch", value), type(real("epoch", value))) == (5, int)


@pytest.mark.parametrize(
    "value", [1.5, np.float32(1.5), np.float64(1.5), np.array(1.5), Fraction(3, 2), Decimal("1.5")]
)
def test_other_numbers_are_taken_as_float(value: Any) -> None:
    assert (real("epoch", value), type(real("epoch", value))) == (1.5, float)
    with pytest.raises(TypeError, match="step must be a whole number, not "):
        whole("step", value)


@pytest.mark.parametrize(
    "value", ["1", b"1", [1], 1j, np.complex64(1), np.array([1, 2]), object(), TensorOfTwo(), Fraction(10**400)]
)
def test_what_is_no_number_is_refused_by_name(value: Any) -> None:
    with pytest.raises(TypeError, match="epoch must be a number or None, not "):
        real("epoch", value)
    with pytest.raises(TypeError, match="step must be a whole number, not "):
        whole("step", value)


def test_none_stays_none_where_a_number_may_be_left_out() -> None:
    assert real("epoch", None) is None
    with pytest.raises(TypeError, match="step must be a whole number, not NoneType"):
        whole("step", None)  # type: ignore[arg-type]
