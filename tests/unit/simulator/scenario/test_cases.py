"""What a scenario file means, and what is refused."""

from typing import Any

import pytest
from makeway.commands.scenario import scenario_policy
from makeway_simulator.errors import ScenarioError
from makeway_simulator.scenario import notation
from makeway_simulator.scenario.case import Case, cases_of
from makeway_simulator.scenario.document import ScenarioFile
from makeway_simulator.scenario.history import History
from makeway_simulator.scenario.runner import play_all
from makeway_simulator.scenario.virtual import VirtualDriver
from pydantic import ValidationError


def cases(**given: Any) -> tuple[Case, ...]:
    return cases_of(ScenarioFile.model_validate({"cluster": {"nodes": ["node-a"]}, **given}))


def history(**given: Any) -> History:
    file = ScenarioFile.model_validate({"cluster": {"nodes": ["node-a"]}, **given})
    return next(iter(play_all(file, VirtualDriver(scenario_policy().document)))).history


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("job-1", ("job-1",)),
        ("job-1..job-3", ("job-1", "job-2", "job-3")),
        ("job-08..job-10", ("job-08", "job-09", "job-10")),
        ("a, b-1..b-2", ("a", "b-1", "b-2")),
        (("a", "b"), ("a", "b")),
    ],
)
def test_names_and_ranges(text: str | tuple[str, ...], names: tuple[str, ...]) -> None:
    assert notation.names(text) == names


def test_a_range_that_counts_down_is_refused() -> None:
    with pytest.raises(ValidationError, match="counts up"):
        cases(jobs=[{"id": "job-3..job-1"}])


def test_each_name_of_a_range_gets_its_own_value() -> None:
    (case,) = cases(jobs=[{"id": "job-1..job-3", "dur": [1, 2, 3], "at": {"from": 5, "every": 10}, "pri": 7}])
    assert [(job.name, job.at, job.dur, job.spec["priority"]) for job in case.jobs] == [
        ("job-1", 5, 1, 7), ("job-2", 15, 2, 7), ("job-3", 25, 3, 7),
    ]  # fmt: skip


def test_a_range_of_gpus_is_one_of_a_submit_and_another_text_is_refused() -> None:
    (case,) = cases(jobs=[{"id": "a"}, {"id": "b", "gpus": "2..4"}, {"id": "c-1..c-2", "gpus": [1, "1..2"]}])
    assert [job.spec.get("gpus") for job in case.jobs] == [None, "2..4", 1, "1..2"]
    for wrong in ("2..", "two", "-1..2", "٢..٣", "4"):
        with pytest.raises(ValidationError, match=r"must be a number, or a range such as 2\.\.4"):
            cases(jobs=[{"id": "a", "gpus": wrong}])


def test_a_list_of_another_length_is_refused() -> None:
    with pytest.raises(ScenarioError, match="2 values for 3 names"):
        cases(jobs=[{"id": "job-1..job-3", "dur": [1, 2]}])


@pytest.mark.parametrize(("value", "bound"), [("-5s", "greater than or equal to 0"), ("inf", "at most|or equal to 1")])
def test_a_time_beyond_its_bounds_is_refused_with_the_bound(value: str, bound: str) -> None:
    for given in (
        {"jobs": [{"id": "a", "at": value}]},
        {"jobs": [{"id": "a", "retries": {"max": 1, "backoff": value}}]},
    ):
        with pytest.raises(ValidationError, match=bound):
            cases(**given)


@pytest.mark.parametrize(("grace", "bound"), [("-5s", "or equal to 0"), ("inf", "or equal to 31622400")])
def test_a_grace_that_a_submit_refuses_is_told_with_its_bound(grace: str, bound: str) -> None:
    seen = history(jobs=[{"id": "a", "dur": 10, "grace": grace}], until=20)
    reason = seen.snapshots[-1].jobs["a"].reason
    assert reason.startswith("preemption.grace: should be ")
    assert bound in reason


def test_what_a_submit_refuses_of_several_fields_together_is_told_in_its_own_words() -> None:
    seen = history(jobs=[{"id": "a", "gpus": "0..4"}], until=20)
    assert seen.snapshots[-1].jobs["a"].reason.startswith("gpus: 0 asks for no card, so a range")


def test_a_job_is_limited_a_little_beyond_its_duration() -> None:
    (case,) = cases(jobs=[{"id": "a", "dur": 10}, {"id": "b"}, {"id": "c", "dur": 10, "time_limit": 5}])
    assert [job.spec.get("time_limit") for job in case.jobs] == [12, None, 5]


@pytest.mark.parametrize("retries", [2, {"max": 2, "backoff": 1}])
def test_each_try_may_last_as_long_as_the_job_runs(retries: Any) -> None:
    job = {"id": "a", "dur": 10, "retries": retries, "behaviour": {"exit_code": 3}}
    found = history(jobs=[job], until=1000)
    assert len(found.runs_of("a")) == 3
    assert found.snapshots[-1].jobs["a"].state == "FAILED"


def test_tries_without_end_are_limited_as_a_submit_may_be_at_most() -> None:
    (case,) = cases(jobs=[{"id": "a", "dur": "30d", "retries": 1000}, {"id": "b", "dur": "400d", "retries": 1}])
    assert [job.spec["time_limit"] for job in case.jobs] == [366 * 86400, 400 * 86400 + 2]


def test_weights_make_the_order_fair() -> None:
    (case,) = cases(teams={"a": {"weight": 2}})
    assert case.policy == {"order": "fair"}


def test_a_variant_takes_the_place_of_whole_fields_and_changes_single_jobs() -> None:
    jobs = [{"id": "a", "pri": 1}, {"id": "b-1..b-2", "pri": 2}]
    variants = [
        {"name": "others", "jobs": [{"id": "x"}]},
        {"name": "equal", "change": {"all": {"pri": 5}, "a": {"dur": 9}}},
    ]
    plain, others, equal = cases(jobs=jobs, variants=variants)
    assert [job.name for job in plain.jobs] == ["a", "b-1", "b-2"]
    assert [job.name for job in others.jobs] == ["x"]
    assert [job.spec["priority"] for job in equal.jobs] == [5, 5, 5]
    assert equal.jobs[0].dur == 9


def test_a_change_of_some_of_a_range_is_of_these_alone() -> None:
    jobs = [{"id": "a-1..a-3", "pri": [1, 2, 3], "at": {"from": 5, "every": 10}}, {"id": "b", "pri": 4}]
    change = {"a-2": {"dur": 9, "pri": 7}, "a-3, b": {"dur": [11, 12], "at": {"from": 1, "every": 2}}}
    _, changed = cases(jobs=jobs, variants=[{"name": "v", "change": change}])
    assert [(job.name, job.at, job.spec["priority"], job.dur, job.where) for job in changed.jobs] == [
        ("a-1", 5, 1, None, "jobs[0]"), ("a-2", 15, 7, 9, "jobs[0]"),
        ("a-3", 1, 3, 11, "jobs[0]"), ("b", 3, 4, 12, "jobs[1]"),
    ]  # fmt: skip


def test_a_change_of_a_whole_range_may_have_a_value_for_each_name() -> None:
    for target in ("a-1..a-2", "a-1, a-2", "all"):
        _, changed = cases(jobs=[{"id": "a-1..a-2"}], variants=[{"name": "v", "change": {target: {"pri": [1, 2]}}}])
        assert [job.spec["priority"] for job in changed.jobs] == [1, 2], target


def test_a_change_of_some_of_a_range_that_means_nothing_is_refused_by_its_name() -> None:
    for change, named in (
        ({"a-2": {"prio": 1}}, r"change\.a-2\.prio"),
        ({"a-1..a-3": {"dur": [1, 2]}}, r"change\.a-1\.\.a-3\.dur: 2 values for 3 names"),
        ({"all": {"dur": [1, 2]}}, r"change\.all\.dur: 2 values for 3 names"),
        ({"a-2..a-3": {"dur": [1, 2, 3]}}, r"change\.a-2\.\.a-3\.dur: 3 values for 2 names"),
    ):
        with pytest.raises(ScenarioError, match=named):
            cases(jobs=[{"id": "a-1..a-3"}], variants=[{"name": "v", "change": change}])


def test_a_change_of_an_unknown_job_or_field_is_refused() -> None:
    for change in ({"x": {"pri": 1}}, {"a": {"prio": 1}}):
        with pytest.raises(ScenarioError, match="change"):
            cases(jobs=[{"id": "a"}], variants=[{"name": "v", "change": change}])


def test_a_sweep_is_one_case_for_each_time() -> None:
    found = cases(jobs=[{"id": "a"}], actions=[{"at": {"from": 1, "to": 2, "step": 0.5}, "cancel": "a"}])
    assert [case.actions[0].at for case in found] == [1, 1.5, 2]


def test_a_placement_that_is_given_is_where_the_job_runs() -> None:
    found = history(
        cluster={"nodes": ["node-a", "node-b"], "gpus_each": 2},
        jobs=[
            {"id": "gang", "members": "3 x 1", "placed": {"node-b": 2, "node-a": 1}},
            {"id": "single", "placed": {"node-a": 1}},
        ],
    )
    assert {run.job: run.gpus for run in found.runs} == {
        "gang": ("node-b/0", "node-b/1", "node-a/0"),
        "single": ("node-a/1",),
    }


def test_an_action_that_should_be_refused_and_is_not_is_a_violation() -> None:
    actions = [{"at": 1, "set_priority": {"a": 5}, "refused": True}, {"at": 2, "set_priority": {"a": 99999}}]
    found = history(jobs=[{"id": "a"}], actions=actions)
    assert len(found.violations) == 2


def test_a_node_that_is_declared_dead_loses_its_runs_and_one_that_is_silent_keeps_them() -> None:
    nodes = {"nodes": ["node-a", "node-b"]}
    dead = history(cluster=nodes, jobs=[{"id": "a", "dur": 100}], actions=[{"at": 30, "declare_dead": "node-a"}])
    assert [(run.gpus, run.started_at, run.ended_at) for run in dead.runs_of("a")] == [
        (("node-a/0",), 0, 30), (("node-b/0",), 30, 100),
    ]  # fmt: skip
    silent = history(
        cluster=nodes, jobs=[{"id": "a", "dur": 100}],
        actions=[{"at": 30, "cut_network": "node-a"}, {"at": 150, "restore_network": "node-a"}],
    )  # fmt: skip
    assert [run.gpus for run in silent.runs_of("a")] == [("node-a/0",)]
    assert silent.at(44).jobs["a"].state == "RUNNING"
    assert silent.at(45).jobs["a"].state == "UNKNOWN"
    assert silent.at(150).jobs["a"].state == "SUCCEEDED"


def test_what_is_decided_before_a_silence_is_noticed_reaches_the_node_when_it_is_heard_again() -> None:
    found = history(
        cluster={"nodes": ["node-a"], "node_timeout": 30},
        jobs=[{"id": "a", "at": 20, "dur": 10}, {"id": "b", "at": 21, "dur": 10}],
        actions=[{"at": 10, "cut_network": "node-a", "for": 25}, {"at": 22, "cancel": "b"}],
    )
    assert found.at(30).jobs["a"].state == "STARTING"
    assert [(run.started_at, run.ended_at) for run in found.runs_of("a")] == [(35, 45)]
    assert found.runs_of("b") == ()


def test_a_node_that_is_back_is_used_again_once_what_was_replaced_has_left_it() -> None:
    found = history(
        cluster={"nodes": ["node-a", "node-b"], "node_timeout": 5},
        jobs=[{"id": "a", "dur": 100, "grace": 10}, {"id": "b", "needs": "node-a", "at": 30, "dur": 10}],
        actions=[
            {"at": 10, "cut_network": "node-a"},
            {"at": 20, "declare_dead": "node-a"},
            {"at": 50, "restore_network": "node-a"},
        ],
    )
    assert [(run.gpus, run.started_at) for run in found.runs_of("a")] == [(("node-a/0",), 0), (("node-b/0",), 20)]
    assert [run.started_at for run in found.runs_of("b")] == [60]
    assert found.ended["a"] == 100


def test_a_card_with_a_process_that_nothing_ends_is_not_used_when_its_node_is_back() -> None:
    found = history(
        cluster={"nodes": ["node-a", "node-b"], "node_timeout": 5},
        jobs=[
            {"id": "a", "dur": 100, "grace": 10, "behaviour": {"unkillable": True}},
            {"id": "b", "needs": "node-a", "at": 30, "dur": 10},
        ],
        actions=[
            {"at": 10, "cut_network": "node-a"},
            {"at": 20, "declare_dead": "node-a"},
            {"at": 50, "restore_network": "node-a"},
        ],
        until=1000,
    )
    assert found.runs_of("b") == ()


@pytest.mark.parametrize(
    ("cluster", "job", "starts"),
    [
        ({"nodes": ["node-a"]}, {}, [0, 105]),
        ({"nodes": ["node-a", "node-b"]}, {"needs": "node-a"}, [0, 105]),
        ({"nodes": ["node-a", "node-b"]}, {}, [0, 140]),
    ],
    ids=["the only node", "the only one that would do", "another would do and is busy"],
)
def test_a_job_returns_to_a_node_that_was_lost_and_came_back(
    cluster: dict[str, Any], job: dict[str, Any], starts: list[float]
) -> None:
    other = [{"id": "b", "needs": "node-b", "dur": 1000}] if len(cluster["nodes"]) > 1 else []
    found = history(
        cluster=cluster,
        jobs=[*other, {"id": "a", "dur": 100, **job}],
        actions=[
            {"at": 50, "cut_network": "node-a"},
            {"at": 80, "declare_dead": "node-a"},
            {"at": 100, "restore_network": "node-a"},
        ],
        until=2000,
    )
    assert [run.started_at for run in found.runs_of("a")] == starts


def test_a_start_that_takes_too_long_is_tried_again_with_back_off_until_the_job_is_held() -> None:
    slow = {"nodes": [{"name": "node-a", "start_delay": 130}]}
    found = history(cluster=slow, jobs=[{"id": "a", "dur": 10}], until=20_000)
    last = found.snapshots[-1].jobs["a"]
    assert (last.state, found.runs_of("a")) == ("HELD", ())
    # Ten start time-outs of 120 s, and 10 s doubling between them from the second on.
    held = next(each.at for each in found.snapshots if each.jobs["a"].state == "HELD")
    assert held == 10 * 120 + sum(10 * 2**each for each in range(8))


def test_a_job_that_did_not_start_on_a_node_waits_a_while_for_another() -> None:
    found = history(
        cluster={"nodes": [{"name": "node-a", "start_delay": 130}, "node-b"]},
        jobs=[{"id": "b", "needs": "node-b", "dur": 150}, {"id": "a", "dur": 10}],
        until=20_000,
    )
    assert [(run.started_at, run.gpus) for run in found.runs_of("a")] == [(150, ("node-b/0",))]


@pytest.mark.parametrize("word", ["quarantine", "release"])
def test_a_report_of_the_layout_says_nothing_of_the_health_of_a_card(word: str) -> None:
    report = {"report_layout": {"node": "node-a", "slices": {}}}
    found = history(
        jobs=[{"id": "a", "at": 10, "dur": 10}],
        actions=[{"at": 1, "quarantine": "node-a/0"}, {"at": 2, word: "node-a/0"}, {"at": 3, **report}],
        until=100,
    )
    assert [run.started_at for run in found.runs_of("a")] == ([] if word == "quarantine" else [10])


def test_only_a_cut_lasts_for_a_time() -> None:
    with pytest.raises(ScenarioError, match="cut_network alone"):
        history(jobs=[{"id": "a"}], actions=[{"at": 1, "cordon": "node-a", "for": 5}])


def test_a_job_that_fails_is_tried_again_as_often_as_it_says() -> None:
    job = {"id": "a", "dur": 10, "time_limit": 100, "retries": {"max": 1, "backoff": 5}, "behaviour": {"exit_code": 3}}
    found = history(jobs=[job])
    assert [(run.started_at, run.ended_at) for run in found.runs_of("a")] == [(0, 10), (15, 25)]
    assert found.at(30).jobs["a"].state == "FAILED"
    assert "next try" in found.at(12).jobs["a"].reason


def test_a_job_that_waits_for_its_own_begin_is_not_said_to_be_tried_again() -> None:
    found = history(jobs=[{"id": "a", "begin_at": 20, "dur": 10, "behaviour": {"exit_code": 3}}])
    assert "may begin at" in found.at(12).jobs["a"].reason


def test_other_teams_policies_and_cordons_count_from_when_they_are_set() -> None:
    found = history(
        cluster={"nodes": ["node-a"], "gpus_each": 2},
        teams={"t": {"quota": 1, "borrow": "no"}},
        jobs=[{"id": "a-1..a-2", "team": "t"}, {"id": "b", "at": 20}],
        actions=[
            {"at": 10, "cordon": "node-a"},
            {"at": 11, "set_team": {"t": {"quota": 2, "borrow": "no"}}},
            {"at": 30, "uncordon": "node-a"},
            {"at": 40, "set_policy": {"preemption": False}},
        ],
    )
    assert [run.started_at for run in found.runs_of("a-2")] == [30]
    assert found.runs_of("b") == ()


def test_a_preemption_by_hand_asks_what_protects_the_run_and_a_drain_empties_its_node() -> None:
    found = history(
        cluster={"nodes": ["node-a", "node-b"]},
        jobs=[{"id": "a", "needs": "node-a"}, {"id": "b", "needs": "node-b", "preemptible": False}],
        actions=[
            {"at": 10, "preempt": "a"},
            {"at": 20, "preempt": "b", "refused": True},
            {"at": 30, "preempt": "b", "force": True},
            {"at": 60, "drain": "node-a, node-b"},
            {"at": 80, "uncordon": "node-a, node-b"},
        ],
        until=100,
    )
    assert found.violations == ()
    assert [run.started_at for run in found.runs_of("a")] == [0, 15, 80]
    assert [run.started_at for run in found.runs_of("b")] == [0, 35]
    assert [run.evicted for run in found.runs] == [True, True, True, False, False]


def test_a_job_that_is_refused_is_seen_at_its_moment_although_nothing_else_happens() -> None:
    played = history(jobs=[{"id": "a", "at": 1, "dur": 50, "gpus": -3}])
    assert played.at(2).jobs["a"].state == "REJECTED"
    assert "a" not in played.at(0).jobs
