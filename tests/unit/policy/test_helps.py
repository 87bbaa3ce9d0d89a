"""What would help a job that can never run: nothing is named that could not help."""

from dataclasses import replace
from typing import Any

import pytest
from makeway_policy.explain import Explanation, explain
from makeway_policy.model import GpuHealth, NodeHealth, Reason
from makeway_policy.worst_case import worst_case_wait

Pool = Any


def told(pool: Pool, job_id: str) -> Explanation:
    found = explain(pool.state, pool.policy, job_id, pool.now)
    assert found is not None
    return found


def test_only_the_policy_helps_whoever_asks_for_more_shares_than_a_card_may_have(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.submit("other", pri=1)
    pool.submit("job-1", at=1, pri=9, shares=65)
    pool.run_until(2)
    found = told(pool, "job-1")
    assert found.refusal is not None
    assert found.refusal.reason is Reason.NEVER_FITS
    assert found.would_help == ("a policy with max_shares of at least 65; no node and no end of a run changes it",)


def test_a_card_in_use_that_has_still_the_old_number_of_shares_is_waited_for(pool: Pool) -> None:
    pool.add_node("node-a", 1, slots=4)
    pool.submit("job-1", shares=5)
    pool.run_until(1)
    assert told(pool, "job-1").would_help == (
        "the end of the runs on a suitable card, which then takes the policy's max_shares of 64",
    )


def test_a_gang_that_is_too_large_needs_more_nodes(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    pool.submit("job-1", gpus=2, members=3)
    pool.run_until(1)
    assert told(pool, "job-1").would_help == ("more nodes that have what each member asks for",)


def test_nobody_who_could_make_way_and_no_time_is_named_where_neither_helps(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    pool.add_team("small", limit=1)
    pool.submit("low", pri=1)
    pool.submit("too-large", pri=9, gpus=3)
    pool.submit("too-many", pri=9, gpus=2, team="small")
    pool.run_until(1)
    for job_id, helps in (
        ("too-large", "a node that has what the job asks for"),
        ("too-many", "a higher limit for team small"),
    ):
        found = told(pool, job_id)
        assert (found.possible_victims, found.wakes_at, found.would_help) == ((), None, (helps,))


def test_whoever_waits_behind_a_job_that_nobody_knows_the_start_of_is_told_so(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    pool.submit("serves", class_name="urgent", pri=1000)
    pool.submit("trains", class_name="low", pri=200)
    pool.submit("large", class_name="urgent", pri=1000, gpus=2, at=1)
    pool.submit("small", class_name="urgent", pri=1000, at=2, preemptible=False)
    pool.run_until(3)
    found = told(pool, "small")
    assert found.refusal is not None
    assert found.refusal.sentence == (
        "no node has room for 1 GPU now, and no set of runs that would make room may be preempted for it now; some "
        "GPUs are kept for job large, which comes first and could not evict this one later; what it waits for has no "
        "time limit"
    )
    assert found.would_help[0] == "the start or the end of job large, which comes first"


def turn_off(pool: Pool, gpu_id: str, health: GpuHealth) -> None:
    pool.state.put_gpu(replace(pool.state.gpus[gpu_id], health=health))


@pytest.mark.parametrize("health", [GpuHealth.LOST, GpuHealth.QUARANTINED, GpuHealth.CORDONED])
def test_whoever_is_kept_out_by_a_card_alone_that_is_out_of_use_is_told_which(pool: Pool, health: GpuHealth) -> None:
    pool.add_node("node-a", 2)
    pool.add_node("node-b", 1)
    turn_off(pool, "node-a/1", health)
    turn_off(pool, "node-b/0", health)
    pool.submit("runs", pri=1)
    pool.submit("wide", at=1, pri=9, gpus=2)
    pool.run_until(2)
    found, card = told(pool, "wide"), f"GPU 1 of node-a ({health})"
    assert found.would_help == (f"{card} in use again, or another node that has what the job asks for",)
    assert (found.possible_victims, found.wakes_at) == ((), None)
    assert (found.expected_start, found.no_start) == (None, f"all that could run it is out of use: {card}")
    bound = worst_case_wait(pool.state, pool.policy, pool.state.jobs["wide"], pool.now)
    assert bound.cause == f"all that could run it is out of use, such as {card}"


def test_nodes_and_cards_that_are_out_of_use_are_named_beside_one_another(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.add_node("node-b", 1)
    pool.add_node("node-c", 1, type_name="other")
    turn_off(pool, "node-a/0", GpuHealth.LOST)
    pool.state.put_node(replace(pool.state.nodes["node-b"], health=NodeHealth.DEAD))
    pool.submit("job-1", gpu_type="gpu-x")
    pool.run_until(2)
    (helps,) = told(pool, "job-1").would_help
    assert helps.startswith("GPU 0 of node-a (lost), node node-b (dead) in use again, or another node")


def test_a_card_that_is_out_of_use_is_not_named_where_another_could_do(pool: Pool) -> None:
    pool.add_node("node-a", 2)
    turn_off(pool, "node-a/1", GpuHealth.LOST)
    pool.submit("runs", pri=1)
    pool.submit("waits", at=1)
    pool.run_until(2)
    assert "the end of runs on suitable GPUs, or another node with such GPUs" in told(pool, "waits").would_help
