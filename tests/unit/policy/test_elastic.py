"""Jobs that take from `gpus` to `gpus_max` GPUs."""

from typing import Any

from makeway_policy import checks
from makeway_policy.model import Job, Shape, Team
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState

Pool = Any


def gpus_of(pool: Pool, job_id: str) -> int:
    run = pool.state.run_of(job_id)
    return 0 if run is None else len(run.leases)


def test_it_takes_the_most_that_a_node_has(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    pool.add_node("node-b", 3)
    pool.submit("job-1", gpus=1, gpus_max=8)
    pool.submit("job-2", gpus=1, gpus_max=2)
    pool.run_until(1)
    assert (gpus_of(pool, "job-1"), pool.node_of("job-1")) == (3, "node-b")
    assert gpus_of(pool, "job-2") == 2


def test_it_never_takes_more_than_it_asks_for_and_waits_for_the_fewest(pool: Pool) -> None:
    pool.add_node("node-a", 4)
    pool.submit("job-1", gpus=3, dur=10)
    pool.submit("job-2", gpus=2, gpus_max=3, at=1)
    pool.run_until(5)
    assert gpus_of(pool, "job-2") == 0
    pool.run_until(11)
    assert gpus_of(pool, "job-2") == 3


def test_the_teams_limit_bounds_it(pool: Pool) -> None:
    pool.add_node("node-a", 8)
    pool.add_team("a", limit=4)
    pool.submit("a-1", team="a")
    pool.submit("a-2", team="a", gpus=1, gpus_max=8)
    pool.run_until(1)
    assert gpus_of(pool, "a-2") == 3


def test_nobody_leaves_for_more_than_the_fewest(pool: Pool) -> None:
    pool.add_node("node-a", 4)
    for number in range(4):
        pool.submit(f"low-{number}", pri=1)
    pool.submit("job-hi", gpus=2, gpus_max=4, pri=10, at=30)
    pool.run_until(60)
    assert sum(pool.evictions.values()) == 2
    assert gpus_of(pool, "job-hi") == 2


def test_it_leaves_alone_what_is_reserved_for_another(pool: Pool) -> None:
    pool.add_node("node-a", 4)
    pool.add_node("node-b", 2)
    pool.submit("run-1", pri=30, nodes=frozenset({"node-a"}), dur=100, time_limit_seconds=102)
    pool.submit("job-big", gpus=4, pri=20, at=10)
    pool.submit("job-1", gpus=1, gpus_max=4, pri=10, at=20)
    pool.run_until(30)
    assert (gpus_of(pool, "job-1"), pool.node_of("job-1")) == (2, "node-b")


def test_it_borrows_nothing_for_which_the_owner_waits(pool: Pool) -> None:
    pool.add_node("node-a", 4)
    pool.add_team("a", guarantee=3)
    pool.add_team("b", guarantee=1)
    pool.submit("run-1", team="c", preemptible=False, dur=100, time_limit_seconds=100)
    pool.submit("run-2", team="c", preemptible=False, dur=50, time_limit_seconds=50)
    pool.submit("a-1", team="a", gpus=3, at=10)
    pool.submit("b-1", team="b", pri=50, gpus=1, gpus_max=2, at=20)
    pool.run_until(30)
    assert gpus_of(pool, "b-1") == 1


def test_members_of_a_gang_are_of_one_size(pool: Pool) -> None:
    pool.add_node("node-a", 3)
    pool.add_node("node-b", 4)
    pool.submit("gang", gpus=2, gpus_max=4, members=2, distinct_nodes=True)
    pool.run_until(1)
    run = pool.state.run_of("gang")
    assert [len(member.leases) for member in run.members] == [3, 3]


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    state = PoolState()
    state.put_team(Team(team_id="t"))
    job = Job(
        job_id="j", order=1, team="t", class_name="normal", submitted_at=0.0, queued_since=0.0,
        shape=Shape(gpus=4, gpus_max=2),
    )  # fmt: skip
    refusal = checks.refuse_submit(state, Policy(), job, now=0.0)
    assert refusal is not None
    assert refusal.detail["field"] == "gpus"
