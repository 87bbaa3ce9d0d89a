"""Plan and known runs in, actions out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from makeway_executor.reconcile import (
    BuryUnstarted,
    ChangeTimeLimit,
    Forget,
    GiveNotice,
    KnownRun,
    Phase,
    Start,
    Wait,
    decide,
    is_stale,
    startable,
)
from makeway_schemas.plans import NodePlan, Verb
from plans import SESSION, known, plan, planned, run_id

ALIVE = (Phase.STARTING, Phase.RUNNING, Phase.NOTICED)


def act(the_plan: NodePlan, runs: dict[str, KnownRun] | None = None) -> list[tuple[str, str]]:
    """Actions as (name, run id)."""
    actions = decide(the_plan, runs or {}, session=SESSION)
    return [
        (type(action).__name__, action.run_id if isinstance(action, Forget) else action.planned.run_id)
        for action in actions
    ]


@pytest.mark.parametrize(
    ("epoch", "number", "stale"), [(2, 5, False), (2, 4, True), (1, 99, True), (3, 0, False), (2, 6, False)]
)
def test_a_lower_epoch_or_number_is_stale(epoch: int, number: int, stale: bool) -> None:
    assert is_stale(plan(epoch=epoch, number=number), (2, 5)) is stale


def test_an_unknown_run_starts() -> None:
    assert act(plan(planned(1))) == [("Start", run_id(1))]


def test_an_unknown_run_of_another_session_does_not() -> None:
    assert act(plan(planned(1), session="another")) == []


def test_a_run_that_has_started_and_is_not_known_here_any_more_is_buried() -> None:
    assert act(plan(planned(1, started=True))) == [("BuryUnstarted", run_id(1))]
    assert act(plan(planned(1, started=True), session="another")) == []


def test_a_run_that_follows_one_that_is_buried_starts() -> None:
    actions = act(plan(planned(1, started=True), planned(2, after=(run_id(1),))))
    assert actions == [("BuryUnstarted", run_id(1)), ("Start", run_id(2))]


@pytest.mark.parametrize("phase", [Phase.WAITING, *ALIVE, Phase.ENDED])
def test_a_run_that_has_started_and_is_known_here_is_left_alone(phase: Phase) -> None:
    actions = act(plan(planned(1, started=True)), {run_id(1): known(phase, planned(1, started=True))})
    assert actions == ([("Start", run_id(1))] if phase is Phase.WAITING else [])


@pytest.mark.parametrize("phase", [*ALIVE, Phase.ENDED])
def test_a_run_that_was_started_is_not_started_again(phase: Phase) -> None:
    assert act(plan(planned(1)), {run_id(1): known(phase, planned(1))}) == []


def test_a_run_waits_for_its_predecessors() -> None:
    first, second = planned(1, Verb.STOP), planned(2, after=(run_id(1),))
    actions = act(plan(first, second), {run_id(1): known(Phase.RUNNING, planned(1))})
    assert actions == [("GiveNotice", run_id(1)), ("Wait", run_id(2))]


def test_a_run_that_waits_already_is_not_told_to_wait_again() -> None:
    first, second = planned(1), planned(2, after=(run_id(1),))
    runs = {run_id(1): known(Phase.RUNNING, first), run_id(2): known(Phase.WAITING, second)}
    assert act(plan(first, second), runs) == []


def test_an_ended_predecessor_that_still_holds_its_card_is_waited_for() -> None:
    first, second = planned(1), planned(2, after=(run_id(1),))
    assert act(plan(first, second), {run_id(1): known(Phase.ENDED, first, held=True)}) == [("Wait", run_id(2))]


def test_a_predecessor_that_the_node_forgot_long_ago_is_not_waited_for() -> None:
    assert act(plan(planned(2, after=(run_id(1),)))) == [("Start", run_id(2))]


def test_a_predecessor_that_comes_with_the_same_plan_is_waited_for() -> None:
    second, first = planned(2, gpu="GPU-1", after=(run_id(1),)), planned(1)
    assert act(plan(second, first)) == [("Wait", run_id(2)), ("Start", run_id(1))]


@pytest.mark.parametrize(
    ("whole_first", "whole_second", "action"),
    [(True, True, "Wait"), (True, False, "Wait"), (False, True, "Wait"), (False, False, "Start")],
)
def test_a_whole_card_is_never_shared_whatever_after_says(whole_first: bool, whole_second: bool, action: str) -> None:
    first, second = planned(1, whole=whole_first), planned(2, whole=whole_second)
    assert act(plan(first, second), {run_id(1): known(Phase.RUNNING, first)}) == [(action, run_id(2))]


def test_two_runs_of_one_plan_on_one_card_do_not_both_start() -> None:
    assert act(plan(planned(1), planned(2))) == [("Start", run_id(1)), ("Wait", run_id(2))]


@pytest.mark.parametrize("verb", [Verb.STOP, Verb.WITHDRAW])
@pytest.mark.parametrize("session", [SESSION, "another"])
def test_what_never_started_is_buried_for_any_session(verb: Verb, session: str) -> None:
    assert act(plan(planned(1, verb), session=session)) == [("BuryUnstarted", run_id(1))]
    waiting = {run_id(1): known(Phase.WAITING, planned(1))}
    assert act(plan(planned(1, verb), session=session), waiting) == [("BuryUnstarted", run_id(1))]


@pytest.mark.parametrize("phase", ALIVE)
def test_a_stop_notices_a_run_that_is_alive(phase: Phase) -> None:
    assert act(plan(planned(1, Verb.STOP)), {run_id(1): known(phase, planned(1))}) == [("GiveNotice", run_id(1))]


@pytest.mark.parametrize("phase", [*ALIVE, Phase.ENDED])
def test_a_withdrawal_leaves_alone_what_has_started(phase: Phase) -> None:
    assert act(plan(planned(1, Verb.WITHDRAW)), {run_id(1): known(phase, planned(1))}) == []


def test_a_stop_of_an_ended_run_does_nothing() -> None:
    assert act(plan(planned(1, Verb.STOP)), {run_id(1): known(Phase.ENDED, planned(1))}) == []


def test_another_time_limit_is_passed_on() -> None:
    runs = {run_id(1): known(Phase.RUNNING, planned(1, time_limit_seconds=5.0))}
    assert act(plan(planned(1, time_limit_seconds=9.0)), runs) == [("ChangeTimeLimit", run_id(1))]
    assert act(plan(planned(1, time_limit_seconds=5.0)), runs) == []


def test_a_settled_run_that_left_the_plan_is_forgotten_and_so_is_one_that_waits() -> None:
    runs = {run_id(1): known(Phase.ENDED, planned(1)), run_id(2): known(Phase.WAITING, planned(2))}
    assert act(plan(), runs) == [("Forget", run_id(1)), ("Forget", run_id(2))]


@pytest.mark.parametrize("phase", ALIVE)
def test_a_run_that_is_alive_and_in_no_plan_is_left_alone(phase: Phase) -> None:
    assert act(plan(), {run_id(1): known(phase, planned(1))}) == []


def test_a_run_whose_card_is_not_proven_empty_is_not_forgotten() -> None:
    assert act(plan(), {run_id(1): known(Phase.ENDED, planned(1), held=True)}) == []


def test_waiting_runs_start_in_order_once_they_can() -> None:
    runs = {
        run_id(1): known(Phase.ENDED, planned(1)),
        run_id(2): known(Phase.WAITING, planned(2, after=(run_id(1),))),
        run_id(3): known(Phase.WAITING, planned(3, after=(run_id(1),))),
        run_id(4): known(Phase.WAITING, planned(4, gpu="GPU-1", after=(run_id(2),))),
    }
    assert [run.run_id for run in startable(runs)] == [run_id(2)]


verbs = st.sampled_from(list(Verb))
phases = st.sampled_from(list(Phase))
cards = st.sampled_from(["GPU-0", "GPU-1"])


@given(
    st.dictionaries(st.integers(1, 6), st.tuples(verbs, cards, st.booleans(), st.lists(st.integers(1, 6), max_size=2))),
    st.dictionaries(st.integers(1, 6), st.tuples(phases, cards, st.booleans())),
    st.booleans(),
)
def test_no_plan_oversells_a_card_or_stops_what_it_does_not_name(
    wanted: dict[int, tuple[Verb, str, bool, list[int]]],
    here: dict[int, tuple[Phase, str, bool]],
    ours: bool,
) -> None:
    """Whatever the plan says: no card is held whole by one run while another holds it too; each run has one action."""
    the_plan = plan(
        *(
            planned(number, verb, gpu=gpu, whole=whole, after=tuple(run_id(other) for other in after))
            for number, (verb, gpu, whole, after) in wanted.items()
        ),
        session=SESSION if ours else "another",
    )
    runs = {
        run_id(number): known(phase, planned(number, gpu=gpu, whole=whole))
        for number, (phase, gpu, whole) in here.items()
    }
    actions = decide(the_plan, runs, session=SESSION)
    started = [action.planned for action in actions if isinstance(action, Start)]
    for run in started:
        assert ours
        assert run_id(int(run.job_id)) not in runs or runs[run.run_id].phase is Phase.WAITING
        for gpu in run.gpus:
            others = [other for other in started if other.run_id != run.run_id and other.gpus[0].gpu_id == gpu.gpu_id]
            holders = [held for held in runs.values() if not held.settled and gpu.gpu_id in held.held_gpus]
            if gpu.whole:
                assert not others
                assert not holders
    named = [a.run_id if isinstance(a, Forget) else a.planned.run_id for a in actions]
    assert len(named) == len(set(named))
    stopped = [a.planned.run_id for a in actions if isinstance(a, GiveNotice | BuryUnstarted)]
    assert all(the.verb is not Verb.RUN for the in the_plan.runs if the.run_id in stopped)
    assert {type(action) for action in actions} <= {Start, Wait, GiveNotice, BuryUnstarted, ChangeTimeLimit, Forget}
