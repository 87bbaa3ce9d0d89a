"""Whoever a change concerns is judged at once: the wake rules decide nothing later than judging everybody would.

Two pools live through the same seeded history: in one whoever waits is judged again at every change, in the other only
those that the wake rules name. Time alone is covered too: between two wake-ups nobody could have been decided.
"""

import pytest
from policy_history import History

STEPS = 60
SEEDS = 40
FOUND = (
    77, 211, 226, 403, 603, 768, 781, 793, 1072, 1629, 1882, 4031, 5256, 5338, 6026, 6064, 6066, 6374, 6453,
    6480, 7441, 7733,
)  # fmt: skip
"""Histories in which a rule was missing once."""


@pytest.mark.parametrize("seed", [*range(SEEDS), *FOUND])
def test_the_wake_rules_decide_nobody_later(seed: int) -> None:
    History(seed).live(STEPS)
