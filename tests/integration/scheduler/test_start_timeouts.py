"""Starts that take longer than the policy's start time-out: the nodes are told to stop them, and each counts."""

import pytest
from makeway_policy.rules import Policy
from makeway_schemas.facts import RunEnd
from makeway_schemas.plans import Verb
from makeway_schemas.states import StopCause
from scheduler_harness import Node, PoolUnderTest, ended

NEVER_STARTED = RunEnd(outcome="never_started", cause=StopCause.DRAIN)
STOPPED = ended(143, cause=StopCause.DRAIN, notice_delivered=True, run_seconds=0.0)


async def let_the_start_time_out(pool: PoolUnderTest, node: Node, run_id: str) -> None:
    """Its start began as long ago as a start may take."""
    await pool.sql.execute(
        "UPDATE runs SET planned_at = planned_at - $2 * interval '1 second', "
        "begun_at = begun_at - $2 * interval '1 second' WHERE run_id = $1",
        run_id, Policy().start_timeout_seconds + 1.0,
    )  # fmt: skip
    await pool.take_over()
    await pool.turn(node.report())
    stop = pool.planned(node.name)[run_id].stop
    assert stop is not None
    assert (pool.planned(node.name)[run_id].verb, stop.cause) == (Verb.STOP, StopCause.DRAIN)


@pytest.mark.parametrize("end", [NEVER_STARTED, STOPPED], ids=["never started", "stopped while it started"])
async def test_start_time_outs_are_followed_by_a_growing_wait_and_the_tenth_holds_the_job(
    pool: PoolUnderTest, end: RunEnd
) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit()
    await pool.turn(*await pool.news())
    waits = []
    for number in range(1, 11):
        await let_the_start_time_out(pool, node, f"{job}.{number}")
        await pool.turn(node.exited(f"{job}.{number}", end))
        row = await pool.sql.fetchrow(
            "SELECT state, infrastructure_failures, retry_at - queued_since AS wait FROM job_states"
        )
        waits.append(row["wait"] and row["wait"].total_seconds())
        assert row["infrastructure_failures"] == number
        if row["state"] == "HELD":
            break
        await pool.sql.execute("UPDATE job_states SET retry_at = NULL, version = version + 1")
        await pool.take_over()
        await pool.turn(node.report())
    assert waits == [None, *[10.0 * 2**each for each in range(8)], None]
    assert await pool.state(job) == "HELD"
    reason = await pool.sql.fetchval("SELECT reason FROM job_states")
    assert "took longer than the start time-out" in reason


async def test_a_job_whose_start_timed_out_takes_no_victims_for_a_while(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit(class_name="urgent")
    await pool.turn(*await pool.news())
    await let_the_start_time_out(pool, node, f"{job}.1")
    row = await pool.sql.fetchrow(
        "SELECT hold_failures, extract(epoch FROM no_victims_until - now()) AS seconds FROM job_states"
    )
    assert row["hold_failures"] == 1
    assert float(row["seconds"]) == pytest.approx(Policy().backing_off_seconds, abs=5.0)


async def test_a_start_time_out_is_no_end_of_a_job_that_is_not_to_be_requeued(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit(requeue=False)
    await pool.turn(*await pool.news())
    await let_the_start_time_out(pool, node, f"{job}.1")
    await pool.turn(node.exited(f"{job}.1", NEVER_STARTED))
    assert await pool.state(job) == "STARTING"


async def test_a_job_whose_start_timed_out_is_tried_on_another_node(pool: PoolUnderTest) -> None:
    node, other = Node("a"), Node("b")
    await pool.turn(node.report())
    job = await pool.submit()
    await pool.turn(*await pool.news())
    await pool.turn(other.report())
    await let_the_start_time_out(pool, node, f"{job}.1")
    await pool.turn(other.report())
    await pool.turn(node.exited(f"{job}.1", NEVER_STARTED))
    assert await pool.sql.fetchval("SELECT node_id FROM runs WHERE run_number = 2") == "b"
