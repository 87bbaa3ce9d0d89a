"""The scenario files of tests/scenarios, on the virtual clock."""

from pathlib import Path

import pytest
from makeway.commands.scenario import load_scenario, scenario_policy
from makeway_simulator.scenario.runner import play_all
from makeway_simulator.scenario.virtual import VirtualDriver

FILES = sorted((Path(__file__).parents[3] / "scenarios").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_scenario_goes_as_its_file_says(path: Path) -> None:
    _, file = load_scenario(str(path))
    for played in play_all(file, VirtualDriver(scenario_policy().document)):
        problems = [f"{each.wanted}: {'; '.join(each.problems)}" for each in played.verdicts if each.problems]
        assert not problems, f"{played.case.name}\n" + "\n".join(problems)


def test_there_are_scenarios() -> None:
    assert len(FILES) > 20
