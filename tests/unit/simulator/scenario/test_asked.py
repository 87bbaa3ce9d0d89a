"""A scenario's moments are seconds since it began, though a submit takes only dates."""

from makeway_simulator.scenario.asked import AskedSpec


def test_a_scenario_gives_its_moments_in_seconds() -> None:
    asked = AskedSpec.model_validate({"command": ["job"], "begin_at": 5, "deadline": 20_270_101.5})
    assert asked.begin_at is not None
    assert asked.deadline is not None
    assert (asked.begin_at.timestamp(), asked.deadline.timestamp()) == (5.0, 20_270_101.5)
