"""Situations in which schedulers in production went wrong, in virtual time."""

from collections.abc import Callable
from typing import Any

import pytest
from makeway_policy.model import Gpu, Reason

Pool = Any
PoolUnder = Callable[..., Pool]


def reason(pool: Pool, job_id: str) -> Reason | None:
    refusal = pool.state.jobs[job_id].refusal
    return None if refusal is None else refusal.reason


@pytest.mark.parametrize(
    ("card_mib", "share_mib", "jobs", "fit"), [(46068, 2000, 24, 23), (16384, 8000, 3, 2)], ids=["24x2000", "3x8000"]
)
def test_shares_of_a_card_never_add_up_to_more_than_the_card(
    pool: Pool, card_mib: int, share_mib: int, jobs: int, fit: int
) -> None:
    pool.add_node("node-a", 1, vram_mib=card_mib)
    for number in range(1, jobs + 1):
        pool.submit(f"job-{number}", vram_mib=share_mib, pri=10, dur=600 + number)
    pool.run_until(10)
    assert len(pool.running()) == fit
    pool.run_until(601)
    assert pool.starts_of(f"job-{jobs}") == [601]


def test_only_as_many_runs_are_evicted_as_are_needed(pool: Pool) -> None:
    pool.add_node("node-a", 10)
    pool.add_team("team-a", guarantee=4)
    pool.add_team("team-b", guarantee=6)
    for number in range(1, 11):
        pool.submit(f"job-{number}", team="team-a", pri=0, dur=3600)
    pool.submit("job-hi", team="team-a", gpus=4, pri=100, dur=600, at=60)
    pool.run_until(70)
    assert pool.evictions.total() == 4
    assert pool.starts_of("job-hi") == [65]
    assert len(pool.running()) == 7


def test_among_equals_the_newest_goes_and_the_oldest_comes_back(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    for number, (at, pri) in enumerate([(0, 40), (1, 40), (2, 40), (30, 50)], start=1):
        pool.submit(f"job-{number}", pri=pri, at=at, dur=3600)
    pool.cancel("job-4", at=90)
    pool.run_until(60)
    assert pool.running() == {"job-1", "job-4"}
    pool.run_until(120)
    assert pool.running() == {"job-1", "job-2"}
    assert pool.evictions == {"job-2": 1}


def test_nobody_is_evicted_for_a_job_that_will_not_fit(pool: Pool) -> None:
    pool.add_node("node-a", 2, vram_mib=40 * 1024)
    pool.add_team("team-a", guarantee=2)
    pool.add_team("team-b", guarantee=1, limit=1)
    pool.submit("job-1", team="team-a", pri=1, dur=200)
    pool.submit("job-2", team="team-a", pri=1, dur=200)
    pool.submit("job-q", team="team-b", gpus=2, pri=100, at=30)
    pool.submit("job-v", team="team-b", min_vram_mib=80 * 1024, pri=100, at=40)
    pool.run_until(330)
    assert not pool.evictions
    assert pool.ended == {"job-1": 200, "job-2": 200}
    assert reason(pool, "job-q") is Reason.TEAM_LIMIT
    assert reason(pool, "job-v") is Reason.NEVER_FITS
    assert "VRAM" in pool.reason("job-v")


@pytest.mark.parametrize("mid_pri", [50, 200])
def test_freed_gpus_are_kept_for_the_job_they_were_freed_for(pool: Pool, mid_pri: int) -> None:
    pool.add_node("node-a", 4)
    for number, grace in enumerate([5, 20, 40, 60], start=1):
        pool.submit(f"low-{number}", pri=1, grace=grace)
    pool.submit("job-hi", gpus=4, pri=100, dur=120, at=100)
    pool.submit("mid-1", pri=mid_pri, dur=600, at=110)
    for number in range(2, 5):
        pool.submit(f"mid-{number}", pri=50, dur=600, at=110)
    pool.run_until(2000)
    later = [(at, name) for at, name in pool.starts if at > 100 and not name.startswith("low")]
    if mid_pri == 50:
        assert later[0] == (160, "job-hi")
        assert later[1][0] == 280
        assert pool.evictions.total() == 4
    else:
        assert later[0][1] == "mid-1"
        assert pool.starts_of("job-hi")[0] == pytest.approx(710, abs=10)


def test_a_preemptor_waits_for_its_own_victim_alone(pool: Pool) -> None:
    pool.add_node("node-a", 2, cpus=8.0, memory_mib=1000)
    pool.submit("low-1", pri=1, grace=60)
    pool.submit("low-2", pri=2, grace=5)
    pool.submit("hi-1", pri=100, dur=10, at=100)
    pool.submit("hi-2", pri=100, dur=10, at=101)
    pool.run_until(2000)
    assert pool.starts_of("hi-2") == [106]
    assert pool.starts_of("hi-1") == [116]


def test_a_hold_is_taken_over_while_its_gpus_still_drain(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    pool.submit("low-1", pri=1, grace=20)
    pool.submit("low-2", pri=1, grace=40)
    pool.submit("job-hi", gpus=2, pri=100, dur=120, at=100)
    pool.submit("above", pri=200, dur=10, at=101)
    pool.run_until(2000)
    assert pool.starts_of("above") == [120]
    assert pool.starts_of("job-hi") == [140]
    assert pool.evictions == {"low-1": 1, "low-2": 1}


def test_a_job_that_can_never_fit_does_not_evict_and_the_next_gets_its_guarantee(pool: Pool) -> None:
    pool.add_node("node-a", 3)
    pool.add_team("team-a", guarantee=3)
    pool.add_team("team-b", guarantee=0)
    pool.submit("job-b", team="team-b", dur=3600)
    pool.submit("job-a4", team="team-a", gpus=4, at=10, dur=3600)
    pool.submit("job-a3", team="team-a", gpus=3, at=20, dur=600)
    pool.run_until(600)
    assert pool.starts_of("job-a3") == [25]
    assert pool.evictions == {"job-b": 1}
    assert pool.state.jobs["job-a4"].unsatisfiable


def test_a_priority_given_to_a_queued_job_counts_at_once(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("job-1", pri=1000, dur=3600)
    pool.submit("job-2", at=10, dur=60)
    pool.submit("job-3", pri=500, at=20, dur=60)
    pool.change("job-2", at=30, manual_priority=2000)
    pool.run_until(100)
    assert pool.evictions == {"job-1": 1}
    assert pool.starts_of("job-2") == [35]
    assert not pool.starts_of("job-3")


def test_only_the_newest_mig_layout_counts(pool: Pool) -> None:
    pool.add_node("node-a", 8, in_mig_mode=True)
    for card in range(8):
        for part in range(7):
            pool.state.put_gpu(_instance(card, part, "1g.5gb", 5120))
    for card in range(8):
        pool.at(60, lambda card=card: [pool.state.remove_gpu(f"s-{card}-{part}") for part in range(7)])
        pool.at(60, lambda card=card: pool.state.put_gpu(_instance(card, 7, "7g.40gb", 40960)))
    for number in range(1, 11):
        pool.submit(f"s-{number}", mig="1g.5gb", at=90)
    for number in range(1, 10):
        pool.submit(f"w-{number}", mig="7g.40gb", at=90)
    pool.submit("f-1", gpus=1, at=90)
    pool.run_until(100)
    assert pool.running() == {f"w-{number}" for number in range(1, 9)}
    assert "1g.5gb" in pool.reason("s-1")
    assert pool.state.jobs["s-10"].unsatisfiable
    assert pool.state.jobs["f-1"].unsatisfiable


def _instance(card: int, part: int, profile: str, vram_mib: int) -> Any:
    return Gpu(
        gpu_id=f"s-{card}-{part}", node_id="node-a", index=card, type_name="A100-40", vram_mib=vram_mib, slots=1,
        mig_profile=profile,
    )  # fmt: skip


def test_a_gpu_type_is_matched_in_full(pool: Pool) -> None:
    for name, type_name in (("node-a", "A100"), ("node-b", "A10"), ("node-c", "A100-SXM4")):
        pool.add_node(name, 1, type_name=type_name)
    for number, wanted in enumerate(["A10", "A10", "a100", "A9000"], start=1):
        pool.submit(f"job-{number}", gpu_type=wanted, at=number - 1)
    pool.run_until(10)
    assert pool.node_of("job-1") == "node-b"
    assert reason(pool, "job-2") is Reason.NO_ROOM
    assert pool.node_of("job-3") == "node-a"
    assert "A9000" in pool.reason("job-4")
    assert pool.state.jobs["job-4"].unsatisfiable


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"gpus": 999}, "8"),
        ({"gpus": 9}, "one node"),
        ({"min_vram_mib": 81 * 1024 + 1}, "VRAM"),
        ({"gpus": 6, "members": 2, "team": "team-a"}, "limit of team"),
        ({"members": 3, "gpus": 8}, "members"),
    ],
    ids=["count", "one-node", "vram", "team", "gang"],
)
def test_what_can_never_run_says_so(pool: Pool, asked: dict[str, Any], word: str) -> None:
    pool.add_node("node-a", 8)
    pool.add_node("node-b", 8)
    pool.add_team("team-a", guarantee=10, limit=10)
    pool.submit("job-1", **asked)
    pool.submit("job-2", at=5)
    pool.run_until(10)
    assert pool.state.jobs["job-1"].unsatisfiable
    assert word in pool.reason("job-1")
    assert pool.running() == {"job-2"}


def test_a_node_that_joins_can_make_a_job_satisfiable(pool: Pool) -> None:
    pool.add_node("node-a", 8)
    pool.submit("job-1", gpus=16)
    pool.at(60, lambda: pool.add_node("node-b", 16))
    pool.run_until(100)
    assert pool.starts_of("job-1") == [60]


def test_the_minimum_run_is_judged_against_now(pool_under: PoolUnder) -> None:
    pool = pool_under(minimum_run_seconds=30, cool_down_seconds=0)
    pool.add_node("node-a", 1)
    pool.submit("job-1", pri=1, dur=3600, grace=0)
    pool.submit("job-2", pri=100, at=10, dur=20)
    pool.run_until(29)
    assert pool.running() == {"job-1"}
    pool.run_until(31)
    assert pool.starts_of("job-2") == [30]
    pool.submit("job-3", pri=100, at=60, dur=20)
    pool.run_until(79)
    assert pool.starts_of("job-1") == [0, 50]
    assert not pool.starts_of("job-3")


def test_a_protected_run_is_passed_over_for_an_unprotected_one_of_higher_value(pool_under: PoolUnder) -> None:
    pool = pool_under(minimum_run_seconds=30, cool_down_seconds=0)
    pool.add_node("node-a", 2)
    pool.submit("old", pri=5, dur=3600)
    pool.submit("young", pri=1, dur=3600, at=20)
    pool.submit("job-2", pri=100, at=35)
    pool.run_until(41)
    assert pool.evictions == {"old": 1}
