"""The record of a preemption: whole, also where messages were lost or the victim was quicker."""

import pytest
from makeway_schemas.facts import Resume, RunEnd, RunReport
from makeway_schemas.plans import Verb
from makeway_schemas.states import LeaseState, StopCause
from scheduler_harness import Node, PoolUnderTest, ended, preempt, preempted, start_job


async def test_a_preemption_is_recorded_step_by_step(pool: PoolUnderTest) -> None:
    node = Node("a")
    victim, urgent = await preempt(pool, node)
    await pool.turn(node.noticed(f"{victim}.1"), node.acked(f"{victim}.1", 7))
    await pool.turn(node.exited(f"{victim}.1", preempted()), node.started(f"{urgent}.1"))
    row = await pool.sql.fetchrow("SELECT * FROM preemptions")
    assert (row["preemptor_job"], row["victim_run"], row["trigger"]) == (urgent, f"{victim}.1", "arrival")
    assert row["acked_step"] == 7
    assert row["void"] is False
    times = [row[name] for name in ("decided_at", "noticed_at", "exited_at", "empty_at", "bound_at")]
    assert None not in times
    assert row["lost_gpu_seconds"] >= 0


async def test_a_victim_whose_follower_is_heard_first_had_left_before_its_gpu_was_empty(pool: PoolUnderTest) -> None:
    node = Node("a")
    victim, urgent = await preempt(pool, node)
    await pool.turn(node.noticed(f"{victim}.1"), node.started(f"{urgent}.1"))
    await pool.turn(node.exited(f"{victim}.1", preempted()))
    row = await pool.sql.fetchrow("SELECT * FROM preemptions")
    assert row["exited_at"] <= row["empty_at"] <= row["bound_at"]


async def test_a_victim_whose_follower_is_heard_first_stays_in_its_plan_over_a_restart(pool: PoolUnderTest) -> None:
    node = Node("a")
    victim, urgent = await preempt(pool, node)
    await pool.turn(node.noticed(f"{victim}.1"), node.started(f"{urgent}.1"))
    await pool.take_over()
    await pool.turn(node.report())
    assert pool.planned("a")[f"{victim}.1"].verb is Verb.STOP  # else the node would forget an end that nobody knows
    assert await pool.leases() == [(f"{urgent}.1", "GPU-a-0", "LIVE")]
    await pool.turn(node.exited(f"{victim}.1", preempted()))
    assert await pool.state(victim) == "QUEUED"


async def test_a_follower_whose_start_looks_older_than_the_exit_is_bound_after_it(pool: PoolUnderTest) -> None:
    node = Node("a")
    victim, urgent = await preempt(pool, node)
    await pool.turn(node.noticed(f"{victim}.1"), node.exited(f"{victim}.1", preempted()))
    started = node.started(f"{urgent}.1").model_copy(update={"age_seconds": 0.5})
    await pool.turn(started)
    row = await pool.sql.fetchrow("SELECT * FROM preemptions")
    assert row["exited_at"] <= row["empty_at"] <= row["bound_at"]


async def test_an_exit_before_the_notice_keeps_its_result_and_voids_the_preemption(pool: PoolUnderTest) -> None:
    node = Node("a")
    victim, urgent = await preempt(pool, node)
    await pool.turn(node.exited(f"{victim}.1", ended(0, cause=StopCause.PREEMPT, notice_delivered=False)))
    assert await pool.state(victim) == "SUCCEEDED"
    assert await pool.sql.fetchval("SELECT void FROM preemptions") is True
    assert await pool.leases() == [(f"{urgent}.1", "GPU-a-0", "LIVE")]


async def test_a_victim_without_a_gpu_is_recorded_as_gone_when_it_has_left(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node, gpus=0, cpus=1)
    await pool.turn(await pool.command(job, "preempt"))
    await pool.turn(node.noticed(f"{job}.1"), node.exited(f"{job}.1", preempted()))
    row = await pool.sql.fetchrow("SELECT * FROM preemptions")
    assert row["empty_at"] == row["exited_at"] is not None


async def test_a_victim_without_a_gpu_and_its_follower_are_found_as_they_were_after_a_restart(
    pool: PoolUnderTest,
) -> None:
    node = Node("a")
    await pool.turn(node.report())
    victim = await start_job(pool, node, gpus=0, cpus=8)
    urgent = await pool.submit(gpus=0, cpus=8, class_name="urgent")
    await pool.turn(*await pool.news())
    for _ in range(2):
        states = {run.run_id: run.lease_state for run in pool.ledger.runs}
        assert states == {f"{victim}.1": LeaseState.LEAVING, f"{urgent}.1": LeaseState.NEXT}
        await pool.take_over()


async def test_a_report_repeats_a_resume_that_was_lost(pool: PoolUnderTest) -> None:
    node = Node("a")
    victim, urgent = await preempt(pool, node)
    await pool.turn(node.exited(f"{victim}.1", preempted()), node.started(f"{urgent}.1"))
    await pool.turn(node.exited(f"{urgent}.1", ended()))
    report = RunReport(
        run_id=f"{victim}.2", state="running", pid=5, started_age_seconds=2.0,
        resumed=Resume(step=7, load_seconds=0.25, age_seconds=1.0),
    )  # fmt: skip
    await pool.turn(node.report(runs=(report,)))
    await pool.turn(node.report(runs=(report,)))
    row = await pool.sql.fetchrow("SELECT * FROM preemptions")
    assert (row["resumed_step"], row["load_seconds"]) == (7, 0.25)
    assert row["resumed_at"] is not None
    resumed = "SELECT count(*) FROM job_events WHERE job_id = $1 AND kind = 'resumed'"
    assert await pool.sql.fetchval(resumed, victim) == 1


async def hold_that_is_taken_over(pool: PoolUnderTest, node: Node) -> tuple[str, str, str]:
    """The runs of a victim and of the hold behind it, and the urgent job that takes the hold over."""
    await pool.turn(node.report())
    victim = await start_job(pool, node, class_name="low")
    holder = await pool.submit(class_name="high")
    await pool.turn(*await pool.news())
    urgent = await pool.submit(class_name="urgent")
    await pool.turn(*await pool.news())
    return f"{victim}.1", f"{holder}.1", urgent


async def test_a_hold_that_had_just_started_when_it_was_taken_over_is_preempted(pool: PoolUnderTest) -> None:
    node = Node("a")
    victim, held, urgent = await hold_that_is_taken_over(pool, node)
    await pool.turn(node.exited(victim, preempted()), node.started(held), node.noticed(held))
    await pool.turn(node.exited(held, preempted()))
    row = await pool.sql.fetchrow("SELECT * FROM preemptions WHERE victim_run = $1", held)
    assert (row["preemptor_job"], row["void"]) == (urgent, False)
    assert row["exited_at"] is not None


async def test_a_hold_that_had_not_started_when_it_was_taken_over_was_not_preempted(pool: PoolUnderTest) -> None:
    node = Node("a")
    _, held, _ = await hold_that_is_taken_over(pool, node)
    await pool.turn(node.exited(held, RunEnd(outcome="never_started")))
    row = await pool.sql.fetchrow("SELECT * FROM preemptions WHERE victim_run = $1", held)
    assert (row["void"], row["empty_at"]) == (True, row["exited_at"])
    holder = "SELECT preemptions FROM job_states WHERE job_id = $1"
    assert await pool.sql.fetchval(holder, held.removesuffix(".1")) == 0


async def test_the_record_of_a_victim_that_is_cancelled_under_its_notice_ends(pool: PoolUnderTest) -> None:
    node = Node("a")
    victim, _ = await preempt(pool, node)
    await pool.turn(node.noticed(f"{victim}.1"))
    await pool.turn(await pool.command(victim, "cancel"))
    await pool.turn(node.exited(f"{victim}.1", ended(143, cause=StopCause.CANCEL, notice_delivered=True)))
    assert await pool.state(victim) == "CANCELLED"
    record = await pool.sql.fetchrow("SELECT void, exited_at, empty_at FROM preemptions")
    assert record["void"]
    assert None not in (record["exited_at"], record["empty_at"])


@pytest.mark.parametrize("kind", ["void", "long ago", "today"])
async def test_a_new_owner_counts_against_a_job_the_preemptions_that_its_predecessor_counted(
    pool: PoolUnderTest, kind: str
) -> None:
    node = Node("a")
    victim, urgent = await preempt(pool, node)
    if kind == "void":
        await pool.turn(node.exited(f"{victim}.1", RunEnd(outcome="lost")), node.started(f"{urgent}.1"))
    else:
        await pool.turn(node.noticed(f"{victim}.1"), node.exited(f"{victim}.1", preempted()))
    if kind == "long ago":
        await pool.sql.execute("UPDATE preemptions SET exited_at = exited_at - interval '25 hours'")
    counted = pool.ledger.jobs[victim].preempted_at
    assert len(counted) == (0 if kind == "void" else 1)
    await pool.take_over()
    assert len(pool.ledger.jobs[victim].preempted_at) == (1 if kind == "today" else 0)


async def test_each_step_is_kept_in_the_record_that_it_belongs_to(pool: PoolUnderTest) -> None:
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    victims = [await start_job(pool, node) for _ in range(2)]
    for _ in range(2):
        await pool.submit(class_name="urgent")
        await pool.turn(*await pool.news())
    gone, other = victims
    heir, gpu = await pool.sql.fetchrow(
        "SELECT p.preemptor_run, l.gpu_id FROM preemptions AS p JOIN leases AS l ON l.run_id = p.victim_run "
        "WHERE p.victim_job = $1",
        gone,
    )
    await pool.turn(
        node.noticed(f"{gone}.1"), node.acked(f"{gone}.1", 7), node.exited(f"{gone}.1", preempted(), empty=[gpu]),
        node.started(heir),
    )  # fmt: skip
    steps = "noticed_at, acked_at, acked_step, exited_at, empty_at, bound_at, lost_gpu_seconds"
    row = await pool.sql.fetchrow(f"SELECT {steps} FROM preemptions WHERE victim_job = $1", gone)
    assert None not in tuple(row)
    row = await pool.sql.fetchrow(f"SELECT {steps} FROM preemptions WHERE victim_job = $1", other)
    assert set(row) == {None}
