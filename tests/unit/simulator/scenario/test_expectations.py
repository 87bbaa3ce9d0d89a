"""Each check of an expectation can fail, and says what was otherwise."""

from typing import Any

import pytest
from makeway.commands.scenario import scenario_policy
from makeway_simulator.errors import ScenarioError
from makeway_simulator.scenario.document import ScenarioFile
from makeway_simulator.scenario.runner import Played, play_all
from makeway_simulator.scenario.virtual import VirtualDriver

# One GPU: low runs 0-10 and has its grace to 12, high runs 12-22, then low goes on to 50. Nobody can run `large`.
STORY: dict[str, Any] = {
    "cluster": {"nodes": [{"name": "node-a", "gpus": 1, "vram_mib": 1000}]},
    "teams": {"team-a": {"quota": 0}},
    "jobs": [
        {"id": "low", "team": "team-a", "pri": 1, "dur": 40, "grace": 2},
        {"id": "high", "pri": 9, "dur": 10, "at": 10},
        {"id": "large", "gpus": 2, "at": 5},
    ],
    "until": 100,
}


def played(expect: dict[str, Any], **more: Any) -> Played:
    file = ScenarioFile.model_validate({**STORY, **more, "expect": [expect]})
    return next(iter(play_all(file, VirtualDriver(scenario_policy().document))))


RIGHT_AND_WRONG = [
    ({"at": 5, "state": {"low": "RUNNING"}}, {"at": 5, "state": {"low": "QUEUED"}}),
    ({"at": 11, "state": {"low": "EVICTING", "high": "QUEUED"}}, {"at": 11, "state": {"low": "RUNNING"}}),
    ({"state": {"low, high": "SUCCEEDED"}}, {"state": {"low": ["FAILED", "CANCELLED"]}}),
    ({"at": 8, "within": 5, "state": {"high": "RUNNING"}}, {"at": 8, "within": 3, "state": {"high": "RUNNING"}}),
    ({"during": [12, 21], "running": ["high"]}, {"during": [12, 23], "running": ["high"]}),
    ({"at": 15, "not_running": "low"}, {"at": 5, "not_running": "low"}),
    ({"at": 15, "count": {"RUNNING": 1, "QUEUED": 1}}, {"at": 15, "count": {"RUNNING": 2}}),
    ({"at": 15, "of": "low", "count": {"RUNNING": 0}}, {"at": 15, "of": "high", "count": {"RUNNING": 0}}),
    ({"at": 5, "granted_mib": 1000}, {"at": 5, "granted_mib": 999}),
    ({"at": 5, "granted_mib": {"node-a": 1000}}, {"at": 99, "granted_mib": {"node-a": 1000}}),
    ({"at": 5, "usage": {"team-a": 1}}, {"at": 15, "usage": {"team-a": 1}}),
    ({"at": 5, "capacity": {"whole": 1}}, {"at": 5, "capacity": {"1g.5gb": 1}}),
    ({"at": 6, "reason": {"large": ["one node", "cows|GPU"]}}, {"at": 6, "reason": {"large": "cows"}}),
    ({"at": 5, "priority": {"low": 1}}, {"at": 5, "priority": {"low": 2}}),
    ({"at": 5, "node": {"low": "node-a"}}, {"at": 5, "node": {"low": "node-b"}}),
    ({"evictions": 1}, {"evictions": 0}),
    ({"at": 9, "evictions": 0}, {"at": 10, "evictions": 0}),
    ({"evictions": {"low": 1, "high": 0}}, {"evictions": {"high": 1}}),
    ({"of": "high", "evictions": 0}, {"of": "low", "evictions": 0}),
    ({"evicted": "low"}, {"evicted": ["low", "high"]}),
    ({"starts": {"low": 2, "large": 0}}, {"starts": {"low": 1}}),
    ({"started_at": {"low": [0, 22], "high": 12, "large": "never"}}, {"started_at": {"low": [0]}}),
    ({"within": 0, "started_at": {"high": 12}}, {"within": 0.5, "started_at": {"high": 11}}),
    ({"noticed_at": {"low": 10, "high": "never"}}, {"noticed_at": {"high": 10}}),
    ({"killed_at": {"low": "never"}}, {"killed_at": {"low": 12}}),
    ({"left_at": {"low": [12, 50]}}, {"left_at": {"low": "never"}}),
    ({"ended_at": {"low": 50}}, {"ended_at": {"low": 12}}),
    ({"used": {"low": 40}}, {"used": {"low": 30}}),
    ({"order": ["low", "high", "large"]}, {"order": ["high", "low"]}),
    ({"first_start": "high", "after": 1}, {"first_start": "low", "after": 1}),
    ({"not_before": {"high": "low"}}, {"not_before": {"low": "high"}}),
    ({"after_end_of": {"large": "high"}}, {"after_end_of": {"high": "low"}}),
    ({"took_over": {"high": "low"}}, {"took_over": {"low": "high"}}),
    ({"max_running": 1}, {"max_running": 0}),
]


@pytest.mark.parametrize(("right", "wrong"), RIGHT_AND_WRONG, ids=lambda each: "-".join(each))
def test_a_check_holds_for_what_is_and_not_for_what_is_not(right: dict[str, Any], wrong: dict[str, Any]) -> None:
    assert played(right).good, played(right).verdicts
    assert not played(wrong).good


def test_what_is_asked_elsewhere_is_not_asked_here() -> None:
    assert played({"evictions": 7, "only": "live"}).good


@pytest.mark.parametrize(
    ("expect", "named"),
    [
        ({"starts": {"lwo": 1}}, "lwo"),
        ({"not_before": {"low": "hihg"}}, "hihg"),
        ({"state": {"low": "RUNING"}}, "RUNING"),
        ({"count": {"RUNING": 1}}, "RUNING"),
        ({"usage": {"team-x": 1}}, "team-x"),
        ({"at": 5}, "nothing"),
    ],
)
def test_an_expectation_of_what_is_not_there_is_refused(expect: dict[str, Any], named: str) -> None:
    with pytest.raises(ScenarioError, match=named):
        played(expect)
