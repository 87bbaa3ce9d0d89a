"""What a decision makes refers to nothing in circles: all of it goes with the last reference to it.

The live scheduler relies on that: it has no garbage collector look at it.
"""

import gc
from collections.abc import Iterator

import pytest
from policy_history import History

STEPS = 30


class Watched(History):
    """A history in which nothing is left for the collector by a decision."""

    def decide(self) -> None:
        gc.collect()
        super().decide()
        assert gc.collect() == 0


@pytest.fixture(autouse=True)
def only_what_is_new() -> Iterator[None]:
    """The collector looks when it is asked, and at nothing that was there before."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.mark.parametrize("seed", range(3))
def test_a_decision_leaves_nothing_to_the_garbage_collector(seed: int) -> None:
    Watched(seed).live(STEPS)
