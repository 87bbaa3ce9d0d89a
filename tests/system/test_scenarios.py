"""Scenario files that say `live`, on a cluster with the policy of scenarios, side by side on different cards."""

from pathlib import Path

import pytest
from live_cluster import LiveCluster
from makeway.commands.scenario import load_scenario
from makeway_simulator.scenario import expectations
from makeway_simulator.scenario.case import Case, cases_of
from preemption_cells import LANES
from scenario_stage import LiveDriver

FILES = sorted((Path(__file__).parents[1] / "scenarios").glob("*.yaml"))


def _rounds() -> list[list[Case]]:
    """The cases to play, in rounds in which each finds a card: one on the four of a type, the others on single ones."""
    rounds: list[list[Case]] = []
    for path in FILES:
        for case in cases_of(load_scenario(str(path))[1]):
            if case.live is None:
                continue
            found = next((cases for cases in rounds if _has_room(cases, case)), None)
            if found is None:
                rounds.append(found := [])
            found.append(case)
    return rounds


def _has_room(cases: list[Case], case: Case) -> bool:
    large = [each for each in cases if each.nodes[0].gpus > 1]
    return not large if case.nodes[0].gpus > 1 else len(cases) - len(large) < len(LANES)


ROUNDS = _rounds()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("cases", ROUNDS, ids=range(1, len(ROUNDS) + 1))
def test_scenarios_go_as_their_files_say(scenario_cluster: LiveCluster, cases: list[Case]) -> None:
    driver = LiveDriver(scenario_cluster)
    told = []
    for case, history in zip(cases, driver.play_together(cases), strict=True):
        for verdict in expectations.judge(history, case, driver.kind):
            told += [f"{case.name}: {verdict.wanted}: {problem}" for problem in verdict.problems]
    assert not told, "\n".join(told)
