"""Of sets of victims that lose as much, the one counts that leaves the nodes as the class's placement likes them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from makeway_policy import lifecycle, victims
from makeway_policy.index import Index
from makeway_policy.rules import Strategy

Pool = Any
PoolUnder = Callable[..., Pool]

WIDE_ON_A, NARROW_ON_B = "node-a", "node-b"


def place_equals(pool: Pool, *, wide_first: bool) -> None:
    """On node-a a run of two GPUs, on node-b one beside a fixed one; stopping either costs 60 GPU-seconds."""
    for name in (WIDE_ON_A, NARROW_ON_B):
        pool.add_node(name, 2)
    wide = {"gpus": 2, "restart_seconds": 30.0, "nodes": frozenset({WIDE_ON_A})}
    narrow = {"gpus": 1, "restart_seconds": 60.0, "nodes": frozenset({NARROW_ON_B})}
    pool.submit("fixed", preemptible=False, nodes=frozenset({NARROW_ON_B}))
    for name, given in (("wide", wide), ("narrow", narrow)) if wide_first else (("narrow", narrow), ("wide", wide)):
        pool.submit(name, pri=1, **given)
    pool.at(10, lambda: [lifecycle.acked(pool.state, f"{name}.1", 10.0, None) for name in ("wide", "narrow")])


@pytest.mark.parametrize("wide_first", [True, False])
@pytest.mark.parametrize(
    ("strategy", "left"), [(Strategy.BINPACK, "narrow"), (Strategy.SPREAD, "wide"), (Strategy.FRAG, "narrow")]
)
def test_among_equal_sets_the_strategy_says_which(
    pool_under: PoolUnder, strategy: Strategy, left: str, wide_first: bool
) -> None:
    pool = pool_under(placement=strategy)
    place_equals(pool, wide_first=wide_first)
    pool.submit("hi", pri=100, at=10)
    pool.run_until(11)
    assert pool.evictions == {left: 1}


def test_where_no_job_could_use_two_cards_together_fragmentation_makes_no_difference(pool_under: PoolUnder) -> None:
    pool = pool_under(placement=Strategy.FRAG)
    place_equals(pool, wide_first=False)
    for number in range(2000):
        pool.submit(f"one-{number:04}", at=5, begin_at=1e6)
    pool.submit("hi", pri=100, at=10)
    pool.run_until(11)
    assert pool.evictions == {"wide": 1}, "the newest goes"


def test_a_run_of_cpus_alone_makes_way_as_soon_as_nothing_protects_it(pool_under: PoolUnder) -> None:
    pool = pool_under(minimum_run_seconds=30.0)
    pool.policy = replace(pool.policy, recheck_seconds=1e9)
    Index.of(pool.state, pool.policy).wakeups.few = 0
    pool.add_node("node-a", 1, cpus=8.0)
    pool.submit("cpus", pri=1, gpus=0, cpus=8.0)
    pool.submit("hi", pri=100, cpus=4.0, at=10)
    pool.run_until(29)
    assert not pool.evictions
    pool.run_until(36)
    assert pool.evictions == {"cpus": 1}
    assert pool.starts_of("hi") == [35]


def test_what_drains_is_waited_for_though_there_are_runs_that_would_not_make_room(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    pool.submit("slow", pri=500, gpus=1, grace=600.0)
    pool.submit("small", pri=1, gpus=1, shares=1, grace=5.0)
    pool.at(10, lambda: pool.preempt("slow", force=True))
    pool.submit("fixed", pri=900, preemptible=False, gpus=1, shares=1, at=5)
    pool.submit("hi", pri=100, gpus=1, at=11)
    pool.run_until(12)
    run = pool.state.run_of("hi")
    assert run is not None
    assert run.after == {"slow.1"}
    assert pool.evictions == {"slow": 1}


def test_where_everything_is_alike_few_nodes_are_tried(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    plan_for = victims._node_plan
    monkeypatch.setattr(victims, "_node_plan", lambda *asked: tried.append(asked[1]) or plan_for(*asked))
    for number in range(200):
        pool.add_node(f"node-{number:03}", 4)
    for number in range(800):
        pool.submit(f"lo-{number:03}", pri=1, gpus=1)
    pool.submit("hi", pri=100, gpus=2, at=10)
    pool.run_until(11)
    assert sum(pool.evictions.values()) == 2
    assert len(tried) < 50
