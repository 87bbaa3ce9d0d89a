"""Plays the cases of a scenario and says what came of them."""

from collections.abc import Iterator
from dataclasses import dataclass

from makeway_simulator.errors import ScenarioError
from makeway_simulator.scenario import expectations
from makeway_simulator.scenario.case import Case, cases_of
from makeway_simulator.scenario.document import ScenarioFile
from makeway_simulator.scenario.expectations import Verdict
from makeway_simulator.scenario.history import History
from makeway_simulator.scenario.port import Driver


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """A case that was played."""

    case: Case
    history: History
    verdicts: tuple[Verdict, ...]

    @property
    def good(self) -> bool:
        """Whether everything is as wanted."""
        return not any(each.problems for each in self.verdicts)


def play_all(file: ScenarioFile, driver: Driver) -> Iterator[Played]:
    """Play each case of a file. Raises ScenarioError."""
    for case in cases_of(file):
        yield play(case, driver)


def play(case: Case, driver: Driver) -> Played:
    """Play one case and look whether its history is as it should be. Raises ScenarioError."""
    try:
        expectations.refuse_unknown(case)
        history = driver.play(case)
    except ScenarioError as error:
        raise error.within(case.places) from error
    return Played(case=case, history=history, verdicts=expectations.judge(history, case, driver.kind))
