"""Queue value, preemption value and who outranks whom."""

from dataclasses import replace
from typing import Any

import pytest
from makeway_policy import priority
from makeway_policy.model import Job
from makeway_policy.rules import Policy

POLICY = Policy()


def job(**given: Any) -> Job:
    values: dict[str, Any] = {
        "job_id": "j", "order": 1, "team": "t", "class_name": "normal", "submitted_at": 0.0, "queued_since": 0.0
    }  # fmt: skip
    return Job(**{**values, **given})


@pytest.mark.parametrize(
    ("given", "value"),
    [({}, 500), ({"own_priority": 310}, 310), ({"own_priority": 310, "manual_priority": 0}, 0)],
    ids=["class", "own", "manual"],
)
def test_base_is_the_manual_value_else_the_own_else_that_of_the_class(given: dict[str, Any], value: int) -> None:
    assert priority.base(job(**given), POLICY) == value


@pytest.mark.parametrize(
    ("waited", "q"),
    [(7200, 500), (7439, 500), (7440, 510), (7679, 510), (14400, 800), (1e6, 899)],
    ids=["sla", "almost a step", "a step", "still one", "twice the sla", "cap"],
)
def test_waiting_beyond_the_sla_raises_the_queue_value_in_steps_up_to_the_cap(waited: float, q: int) -> None:
    assert priority.queue_value(job(), POLICY, waited)[0] == q


def test_the_cap_limits_the_boost_and_never_the_base() -> None:
    assert priority.queue_value(job(class_name="urgent"), POLICY, 1e6)[0] == 1000


def test_the_next_step_is_a_moment_at_which_something_changes() -> None:
    waiting = job()
    at = priority.next_step_at(waiting, POLICY, 7300.0)
    assert at == 7440
    assert priority.queue_value(waiting, POLICY, at) != priority.queue_value(waiting, POLICY, at - 1)


@pytest.mark.parametrize("queued_since", [0.0, 1.7e9 + 0.3, 1e11 + 0.3])
@pytest.mark.parametrize("sla_wait", [7200.0, 0.007, 1.0 / 3.0])
def test_every_step_is_made_when_it_is_due_whatever_the_clock_says(queued_since: float, sla_wait: float) -> None:
    classes = {**POLICY.classes, "normal": replace(POLICY.classes["normal"], sla_wait_seconds=sla_wait)}
    policy = replace(POLICY, classes=classes, aging_points=30.0, aging_step=10)
    waiting = job(queued_since=queued_since)
    now, values = queued_since, []
    while (at := priority.next_step_at(waiting, policy, now)) is not None:
        assert at > now
        now = at
        values.append(priority.queue_value(waiting, policy, now)[0])
    assert values[:6] == [510, 520, 530, 540, 550, 560]
    assert values[-1] == 899


def test_an_aged_job_is_worth_delta_more_and_a_low_one_may_then_take_victims() -> None:
    low = job(class_name="low")
    assert not priority.may_take_victims(low, POLICY, 57_599.0)
    assert priority.may_take_victims(low, POLICY, 57_600.0)
    assert priority.preemption_value(low, POLICY, 57_600.0) == 210


def test_among_equal_bases_only_an_aged_and_earlier_job_outranks() -> None:
    first, second = job(), job(job_id="k", order=2, submitted_at=5.0)
    assert priority.outranks(first, 510, second, 500, POLICY)
    assert not priority.outranks(second, 510, first, 500, POLICY)
    assert not priority.outranks(first, 500, second, 500, POLICY)


def test_no_chain_of_evictions_leads_back() -> None:
    """Each eviction goes down in (base, earlier submit), whatever Δ and age."""
    jobs = [
        job(job_id=f"{base}-{order}", order=order, submitted_at=float(order), own_priority=base)
        for base in (300, 305, 310, 320)
        for order in (1, 2)
    ]
    for one in jobs:
        for other in jobs:
            for aged in (0, POLICY.delta):
                worth = priority.base(one, POLICY) + aged
                if one is not other and priority.outranks(one, worth, other, priority.base(other, POLICY), POLICY):
                    mine = (priority.base(one, POLICY), -one.order)
                    assert mine > (priority.base(other, POLICY), -other.order)


def test_a_policy_without_priorities_keeps_the_order_of_submits() -> None:
    flat = replace(POLICY, priorities=False)
    assert priority.queue_value(job(class_name="urgent"), flat, 1e6) == (0, False)


def test_where_nothing_has_a_priority_waiting_still_makes_a_job_aged() -> None:
    unordered = replace(POLICY, priorities=False)
    at = priority.next_step_at(job(), unordered, 7300.0)
    assert at == 14_400.0
    assert priority.is_aged(job(), unordered, at)
    assert priority.next_step_at(job(), unordered, at) is None
