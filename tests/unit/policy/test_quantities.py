"""Numbers of things in words."""

import pytest
from makeway_policy.quantities import quantity, verb


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0 GPUs are"), (1, "1 GPU is"), (2, "2 GPUs are"), (1.0, "1 GPU is"), (0.5, "0.5 GPUs are")],
)
def test_one_alone_is_a_single_one(number: float, words: str) -> None:
    assert f"{quantity(number, 'GPU')} {verb(number)}" == words
