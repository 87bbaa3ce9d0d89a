"""Jobs whose start nobody knows, and who passes them: as little as possible is kept, and nobody waits in a circle."""

from typing import Any

import pytest
from makeway_policy import wakeups
from makeway_policy.model import NodeHealth, Reason

Pool = Any


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits is judged again by the rules for large pools."""
    monkeypatch.setattr(wakeups, "FEW", 0)


@pytest.fixture
def two_that_serve(pool: Pool) -> Pool:
    """Two nodes on which one GPU each serves without an end, the others train; `wide` wants a node for itself."""
    for node in ("node-a", "node-b"):
        pool.add_node(node, 3)
        pool.submit(f"serves-{node}", pri=1000, preemptible=False, nodes=frozenset({node}))
        pool.submit(f"trains-{node}", gpus=2, pri=200, nodes=frozenset({node}))
    pool.submit("wide", gpus=3, pri=1000, preemptible=False, at=1)
    return pool


def test_whoever_needs_none_of_what_is_kept_for_a_job_without_an_expected_start_takes_victims(
    two_that_serve: Pool,
) -> None:
    pool = two_that_serve
    pool.submit("small", gpus=2, pri=1000, preemptible=False, at=2)
    pool.run_until(20)
    assert pool.evictions == {"trains-node-b": 1}
    assert pool.node_of("small") == "node-b"
    assert reason(pool, "wide") is Reason.NO_ROOM


def test_one_placement_stays_for_a_job_without_an_expected_start(two_that_serve: Pool) -> None:
    """Else a stream of small jobs that it could not evict would take every node in turn."""
    pool = two_that_serve
    for number in range(4):
        pool.submit(f"small-{number}", gpus=2, pri=1000, preemptible=False, at=2 + number)
    pool.cancel("serves-node-a", at=30)
    pool.run_until(50)
    assert pool.node_of("small-0") == "node-b"
    assert [pool.starts_of(f"small-{number}") for number in (1, 2, 3)] == [[], [], []]
    assert pool.node_of("wide") == "node-a"


def test_what_is_free_is_kept_where_the_fewest_gpus_stand_in_the_way(pool: Pool) -> None:
    pool.add_node("node-a", 4)
    pool.add_node("node-b", 4)
    pool.submit("serves-a", gpus=2, pri=90, preemptible=False, nodes=frozenset({"node-a"}))
    pool.submit("serves-b", gpus=1, pri=90, preemptible=False, nodes=frozenset({"node-b"}))
    pool.submit("wide", gpus=4, pri=80, at=1)
    for number in range(4):
        pool.submit(f"small-{number}", pri=70, preemptible=False, at=2 + number)
    pool.run_until(20)
    assert {name for name in pool.running() if name.startswith("small")} == {"small-0", "small-1"}
    assert {pool.node_of("small-0"), pool.node_of("small-1")} == {"node-a"}
    assert reason(pool, "small-2") is Reason.RESERVED_FOR_ANOTHER


def test_what_could_be_told_to_leave_stands_in_the_way_less_than_what_could_not(pool: Pool) -> None:
    pool.add_node("node-a", 4)
    pool.add_node("node-b", 4)
    pool.submit("serves-a", pri=90, preemptible=False, nodes=frozenset({"node-a"}))
    pool.submit("trains-b", gpus=2, pri=90, nodes=frozenset({"node-b"}))
    pool.submit("wide", gpus=4, pri=80, at=1)
    for number in range(4):
        pool.submit(f"small-{number}", pri=70, preemptible=False, at=2 + number)
    pool.run_until(20)
    assert {pool.node_of(name) for name in pool.running() if name.startswith("small")} == {"node-a"}
    assert {name for name in pool.running() if name.startswith("small")} == {"small-0", "small-1", "small-2"}


def test_nothing_is_kept_for_whoever_lacks_a_node(pool: Pool) -> None:
    """It lacks more than GPUs: the next one in the queue reserves."""
    pool.add_node("node-a", 4)
    pool.add_node("node-b", 2)
    pool.change_node("node-a", at=1, health=NodeHealth.DEAD)
    pool.submit("runs", pri=90, dur=100, time_limit_seconds=100)
    pool.submit("four", gpus=4, pri=80, at=2)
    pool.submit("two", gpus=2, pri=70, at=3)
    pool.submit("short", pri=60, preemptible=False, at=4, dur=10, time_limit_seconds=10)
    pool.submit("long", pri=60, preemptible=False, at=5, dur=500, time_limit_seconds=500)
    pool.run_until(150)
    assert pool.starts_of("short") == [4]
    assert pool.starts_of("two") == [100]
    assert pool.starts_of("long") == []


def test_a_node_that_comes_back_is_kept_for_whoever_lacked_it(pool: Pool) -> None:
    pool.add_node("node-a", 4)
    pool.add_node("node-b", 1)
    pool.submit("serves", pri=90, preemptible=False, nodes=frozenset({"node-a"}))
    pool.change_node("node-a", at=1, health=NodeHealth.DEAD)
    pool.submit("four", gpus=4, pri=80, at=2)
    pool.submit("fills", pri=70, at=3, preemptible=False)
    pool.change_node("node-a", at=9, health=NodeHealth.READY)
    pool.submit("late", pri=60, preemptible=False, at=10)
    pool.run_until(20)
    assert pool.starts_of("fills") == [3]
    assert pool.starts_of("late") == []
    assert reason(pool, "late") is Reason.RESERVED_FOR_ANOTHER


def test_whoever_is_within_its_guarantee_does_not_wait_for_one_who_would_borrow(pool: Pool) -> None:
    """The borrower waits for it: what it could reclaim is not started on. Neither would ever start."""
    pool.add_node("node-a", 4)
    pool.add_team("owner", guarantee=1)
    pool.submit("serves", gpus=2, team="guest", pri=90, preemptible=False)
    pool.submit("wide", gpus=4, team="guest", pri=80, at=1)
    pool.submit("own", team="owner", pri=70, preemptible=False, at=2)
    pool.run_until(10)
    assert pool.starts_of("own") == [2]


def test_whoever_is_within_its_guarantee_waits_for_another_who_is(pool: Pool) -> None:
    pool.add_node("node-a", 4)
    pool.add_team("owner", guarantee=1)
    pool.add_team("other", guarantee=4)
    pool.submit("serves", gpus=2, team="guest", pri=90, preemptible=False)
    pool.submit("wide", gpus=4, team="other", pri=80, at=1)
    pool.submit("own", team="owner", pri=70, preemptible=False, at=2)
    pool.run_until(10)
    assert pool.starts_of("own") == []


def test_the_order_within_a_team_is_the_queues(pool: Pool) -> None:
    pool.add_node("node-a", 4)
    pool.add_team("owner", guarantee=1)
    pool.submit("serves", gpus=2, team="guest", pri=90, preemptible=False)
    pool.submit("wide", gpus=4, team="owner", pri=80, at=1)
    pool.submit("own", team="owner", pri=70, preemptible=False, at=2)
    pool.run_until(10)
    assert pool.starts_of("own") == []


def test_a_reserver_whose_team_comes_to_borrow_is_passed(pool: Pool) -> None:
    pool.add_node("node-a", 4)
    pool.add_node("node-b", 1, type_name="other")
    pool.add_team("owner", guarantee=1)
    pool.add_team("other", guarantee=4)
    pool.submit("serves", gpus=2, team="guest", pri=90, preemptible=False, gpu_type="gpu-x")
    pool.submit("wide", gpus=4, team="other", pri=80, at=1, gpu_type="gpu-x")
    pool.submit("own", team="owner", pri=70, preemptible=False, at=2, gpu_type="gpu-x")
    pool.submit("elsewhere", team="other", pri=60, at=5, gpu_type="other")
    pool.run_until(10)
    assert pool.starts_of("own") == [5]


def test_a_borrower_may_have_what_its_owner_may_not(pool: Pool) -> None:
    """The owner waits behind another, who could evict the borrower later, but not the owner."""
    pool.add_node("node-a", 4)
    pool.add_team("owner", guarantee=1)
    pool.add_team("other", guarantee=4)
    pool.submit("serves", gpus=2, team="guest", pri=90, preemptible=False)
    pool.submit("wide", gpus=4, team="other", pri=80, at=1)
    pool.submit("own", team="owner", pri=70, preemptible=False, at=2)
    pool.submit("borrows", team="guest", pri=60, at=3)
    pool.run_until(10)
    assert pool.starts_of("own") == []
    assert pool.starts_of("borrows") == [3]


def test_whoever_is_first_for_some_of_the_gpus_that_would_do_reserves_among_those(pool: Pool) -> None:
    """Another comes first for the others; it could be passed again and again where nobody else waits."""
    pool.add_node("node-a", 4, type_name="A")
    pool.add_node("node-b", 4, type_name="B")
    pool.submit("endless", gpus=4, gpu_type="A", pri=90, preemptible=False)
    for number in range(4):
        pool.submit(f"ends-{number}", gpu_type="B", pri=90, dur=60 * (number + 1), time_limit_seconds=300)
    pool.submit("first", gpus=4, gpu_type="A", pri=80, at=5)
    pool.submit("any", gpus=4, pri=70, at=10)
    for number in range(10):
        pool.submit(f"small-{number}", gpu_type="B", pri=60, at=20 + 40 * number, dur=300, time_limit_seconds=302)
    pool.run_until(300)
    assert pool.starts_of("any") == [240]
    assert pool.node_of("any") == "node-b"


def test_whoever_wants_nodes_that_nobody_before_it_could_use_reserves_there(pool: Pool) -> None:
    pool.add_node("node-a", 4, labels={"zone": "x"})
    pool.add_node("node-b", 2, labels={"zone": "y"})
    pool.submit("endless", pri=90, preemptible=False, nodes=frozenset({"node-a"}))
    pool.submit("ends", pri=90, dur=100, time_limit_seconds=100, nodes=frozenset({"node-b"}))
    pool.submit("first", gpus=4, pri=80, at=1)
    pool.submit("second", gpus=2, pri=70, at=2, labels=(("zone", "y"),))
    pool.submit("long", pri=60, at=3, dur=500, time_limit_seconds=500, labels=(("zone", "y"),))
    pool.run_until(200)
    assert pool.starts_of("second") == [100]
    assert pool.starts_of("long") == []


def test_whoever_is_kept_out_no_longer_has_its_turn_before_those_behind_it(pool: Pool) -> None:
    """A refusal changes who reserves while others are about to be judged for something else."""
    pool.add_node("node-a", 4)
    pool.add_node("node-b", 4)
    pool.submit("ends", gpus=4, pri=90, dur=15, time_limit_seconds=15, nodes=frozenset({"node-a"}))
    pool.submit("first", pri=90, dur=30, time_limit_seconds=30, nodes=frozenset({"node-b"}))
    pool.submit("big", gpus=4, pri=50, at=1, preemptible=False, nodes=frozenset({"node-b"}))
    pool.submit("rises", gpus=4, pri=0, at=1)
    here = {"nodes": frozenset({"node-b"}), "preemptible": False, "at": 2}
    pool.submit("mid", gpus=2, pri=20, **here)
    pool.submit("low", members=2, pri=10, **here)
    pool.change("rises", at=3, manual_priority=80)
    pool.submit("tiny", pri=85, at=3, dur=10, time_limit_seconds=10, nodes=frozenset({"node-b"}))
    pool.run_until(5)
    assert pool.starts_of("mid") == [3]
    assert pool.starts_of("low") == []


def test_whoever_lacks_cpu_is_expected_once_there_is_enough(pool: Pool) -> None:
    """Its GPUs are free before: a short job may use them until then."""
    pool.add_node("node-a", 4, cpus=16.0)
    pool.submit("busy", pri=90, cpus=14.0, dur=100, time_limit_seconds=100)
    pool.submit("first", pri=80, cpus=8.0, at=1)
    pool.submit("short", pri=70, cpus=1.0, at=2, dur=20, time_limit_seconds=20, preemptible=False)
    pool.submit("long", gpus=2, pri=60, cpus=1.0, at=30, dur=500, time_limit_seconds=500, preemptible=False)
    pool.run_until(150)
    assert pool.starts_of("short") == [2]
    assert pool.starts_of("first") == [100]
    assert pool.starts_of("long") == [30]


@pytest.mark.parametrize("limit", [None, 100])
def test_a_job_of_cpu_alone_keeps_one_node(pool: Pool, limit: float | None) -> None:
    for node in ("node-a", "node-b"):
        pool.add_node(node, 0, cpus=16.0)
    on_a = frozenset({"node-a"})
    pool.submit("busy-a", gpus=0, pri=90, cpus=10.0, nodes=on_a, preemptible=False, time_limit_seconds=limit)
    pool.submit("busy-b", gpus=0, pri=90, cpus=10.0, at=1, nodes=frozenset({"node-b"}), preemptible=False)
    pool.submit("wide", gpus=0, pri=80, cpus=16.0, at=2)
    pool.submit("one", gpus=0, pri=70, cpus=6.0, at=3, preemptible=False)
    pool.submit("two", gpus=0, pri=70, cpus=6.0, at=4, preemptible=False)
    pool.run_until(10)
    assert pool.node_of("one") == "node-b"
    assert pool.starts_of("two") == []


def test_of_very_many_who_want_nodes_of_their_own_the_first_reserve(pool: Pool) -> None:
    """Each expected start has to be kept up to date: their number must not grow with the pool."""
    nodes = [f"node-{number:02}" for number in range(40)]
    for number, node in enumerate(nodes):
        here = {"nodes": frozenset({node}), "preemptible": False}
        pool.add_node(node, 2)
        pool.submit(f"serves-{node}", pri=900, **here)
        pool.submit(f"wide-{node}", gpus=2, pri=800 - number, at=1, **here)
        pool.submit(f"small-{node}", pri=100, at=2, **here)
    pool.run_until(5)
    kept = [node for node in nodes if not pool.starts_of(f"small-{node}")]
    assert kept == nodes[:32]


def test_whoever_loses_its_turn_to_another_shape_looks_for_victims(pool: Pool) -> None:
    """What is free is offered in turn, and is gone when its turn comes; a victim beside it would do."""
    pool.add_node("node-a", 3)
    for name in ("ends-1", "ends-2"):
        pool.submit(name, pri=90, dur=10)
    pool.submit("trains", pri=1)
    pool.submit("two", gpus=2, pri=50, at=1)
    pool.submit("one", pri=80, at=10)
    pool.run_until(12)
    assert pool.starts_of("one") == [10]
    assert pool.evictions == {"trains": 1}


def reason(pool: Pool, job_id: str) -> Reason | None:
    refusal = pool.state.jobs[job_id].refusal
    return None if refusal is None else refusal.reason
