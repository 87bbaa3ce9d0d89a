"""Where a case is played."""

from typing import Protocol

from makeway_simulator.scenario.case import Case
from makeway_simulator.scenario.history import History


class Driver(Protocol):
    """Plays cases, one after the other, each on a cluster of its own."""

    kind: str
    """`virtual` or `live`: what an expectation's `only` names."""

    def play(self, case: Case) -> History:
        """Play a case to its end. Raises ScenarioError for what cannot be played here."""
        ...
