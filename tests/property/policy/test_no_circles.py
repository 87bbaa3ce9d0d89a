"""What a decision makes refers to nothing in circles: all of it goes with the last reference to it.

The live scheduler relies on that: it has no garbage collector look at it.
"""

import gc

import pytest
from policy_history import History

STEPS = 30


class Watched(History):
    """A history in which nothing is left for the collector by a decision."""

    def decide(self) -> None:
        gc.collect()
        gc.disable()
        try:
            super().decide()
            left = gc.collect()
        finally:
            gc.enable()
        assert left == 0


@pytest.mark.parametrize("seed", range(6))
def test_a_decision_leaves_nothing_to_the_garbage_collector(seed: int) -> None:
    Watched(seed).live(STEPS)
