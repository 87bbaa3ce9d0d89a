"""Past use in the fair share, forgotten by half with each half-life."""

from dataclasses import replace
from typing import Any

import pytest
from makeway_policy import past_use
from makeway_policy.rules import Order

Pool = Any
HOUR = 3600.0


def test_steady_use_becomes_its_own_average() -> None:
    used = past_use.changed(past_use.NEVER, 4.0, 1e9, HOUR)
    assert past_use.average_at(used, 1e9, HOUR) == 0.0
    assert past_use.average_at(used, 1e9 + HOUR, HOUR) == pytest.approx(2.0)
    assert past_use.average_at(used, 1e9 + 100 * HOUR, HOUR) == pytest.approx(4.0)


def test_what_was_used_is_forgotten_by_half() -> None:
    used = past_use.changed(past_use.changed(past_use.NEVER, 4.0, 0.0, HOUR), 0.0, HOUR, HOUR)
    assert past_use.average_at(used, 2 * HOUR, HOUR) == pytest.approx(1.0)


def test_the_way_is_the_same_however_often_it_is_looked_at() -> None:
    once = past_use.changed(past_use.NEVER, 3.0, 0.0, HOUR)
    often = once
    for minute in range(1, 60):
        often = past_use.changed(often, 3.0, 60.0 * minute, HOUR)
    assert past_use.average_at(often, HOUR, HOUR) == pytest.approx(past_use.average_at(once, HOUR, HOUR))


def after_a_long_run(pool: Pool, half_life: float | None) -> Pool:
    pool.policy = replace(pool.policy, order=Order.FAIR, usage_half_life_seconds=half_life)
    pool.add_node("node-a", 1)
    pool.submit("a-0", team="a", dur=HOUR)
    return pool


@pytest.mark.parametrize(("half_life", "first"), [(None, "a-1"), (HOUR, "b-1")])
def test_who_has_used_much_waits_for_who_has_not(pool: Pool, half_life: float | None, first: str) -> None:
    after_a_long_run(pool, half_life)
    pool.submit("a-1", team="a", at=10, dur=10)
    pool.submit("b-1", team="b", at=20, dur=10)
    pool.run_until(2 * HOUR)
    assert [name for _, name in pool.starts][1] == first


def test_the_past_weighs_less_and_less(pool: Pool) -> None:
    after_a_long_run(pool, 60.0)
    pool.submit("b-0", team="b", at=HOUR + 1, dur=60)
    pool.submit("b-1", team="b", at=HOUR + 2, dur=10)
    pool.submit("a-1", team="a", at=HOUR + 3, dur=10)
    pool.run_until(2 * HOUR)
    assert [name for _, name in pool.starts] == ["a-0", "b-0", "a-1", "b-1"]


def test_use_within_the_guarantee_is_not_held_against_a_team(pool: Pool) -> None:
    pool.add_team("a", guarantee=1)
    after_a_long_run(pool, HOUR)
    pool.submit("a-1", team="a", at=10, dur=10)
    pool.submit("b-1", team="b", at=20, dur=10)
    pool.run_until(2 * HOUR)
    assert [name for _, name in pool.starts][1] == "a-1"


def test_a_rollback_takes_use_back_too(pool: Pool) -> None:
    after_a_long_run(pool, HOUR).run_until(1)
    before = pool.state.past_use_of("a")
    pool.state.begin()
    pool.state.put_past_use("a", past_use.changed(before, 7.0, 5.0, HOUR))
    pool.state.rollback()
    assert pool.state.past_use_of("a") == before
