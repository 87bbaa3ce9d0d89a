"""The life of jobs as the owner of a pool commits it."""

import itertools

import pytest
from makeway_schemas.facts import Ack, GpuEmpty, GpuReport, PlanNumber, RunEnd, RunReport
from makeway_schemas.plans import Verb
from makeway_schemas.states import StopCause
from scheduler_harness import CARD_MIB, Node, PoolUnderTest, ended, preempt, preempted, start_job


async def test_a_job_runs_on_a_free_gpu_and_leaves_nothing_behind(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit()
    await pool.turn(*await pool.news())
    assert await pool.state(job) == "STARTING"
    assert await pool.leases() == [(f"{job}.1", "GPU-a-0", "LIVE")]
    assert pool.planned("a")[f"{job}.1"].verb is Verb.RUN
    await pool.turn(node.started(f"{job}.1"))
    assert await pool.state(job) == "RUNNING"
    await pool.turn(node.exited(f"{job}.1", ended()))
    assert await pool.state(job) == "SUCCEEDED"
    assert await pool.leases() == []
    assert pool.planned("a") == {}
    assert job not in pool.ledger.jobs
    assert len(pool.ledger.runs) == 0


async def test_a_preemption_keeps_the_freed_gpu_for_its_preemptor(pool: PoolUnderTest) -> None:
    node = Node("a")
    victim, urgent = await preempt(pool, node)
    assert await pool.leases() == sorted([(f"{victim}.1", "GPU-a-0", "LEAVING"), (f"{urgent}.1", "GPU-a-0", "NEXT")])
    plan = pool.planned("a")
    assert plan[f"{victim}.1"].verb is Verb.STOP
    assert plan[f"{urgent}.1"].after == (f"{victim}.1",)
    assert await pool.state(urgent) == "RESERVED"
    third = await pool.submit()
    await pool.turn(*await pool.news(), node.noticed(f"{victim}.1"), node.exited(f"{victim}.1", preempted()))
    assert await pool.leases() == [(f"{urgent}.1", "GPU-a-0", "LIVE")]
    assert await pool.state(victim) == "QUEUED"
    assert await pool.state(third) == "QUEUED"
    await pool.turn(node.started(f"{urgent}.1"))
    await pool.turn(node.exited(f"{urgent}.1", ended()))
    # The victim keeps its submit time and goes before the third.
    assert await pool.leases() == [(f"{victim}.2", "GPU-a-0", "LIVE")]


async def test_a_job_that_declared_itself_done_succeeds_although_it_was_noticed(pool: PoolUnderTest) -> None:
    node = Node("a")
    victim, _ = await preempt(pool, node)
    await pool.turn(node.exited(f"{victim}.1", preempted(done=True)))
    assert await pool.state(victim) == "SUCCEEDED"


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
async def test_facts_in_any_order_and_twice_come_to_the_same_end(pool: PoolUnderTest, order: tuple[int, ...]) -> None:
    node = Node("a")
    victim, urgent = await preempt(pool, node)
    facts = [
        node.noticed(f"{victim}.1"),
        node.exited(f"{victim}.1", preempted()),
        node.started(f"{urgent}.1"),
        node.acked(f"{victim}.1", 3),
    ]
    for position in order:
        await pool.turn(facts[position], facts[position])
    await pool.turn(*facts)
    assert await pool.state(victim) == "QUEUED"
    assert await pool.state(urgent) == "RUNNING"
    assert await pool.leases() == [(f"{urgent}.1", "GPU-a-0", "LIVE")]
    assert await pool.sql.fetchval("SELECT count(*) FROM runs WHERE ended_at IS NULL") == 1


async def test_two_preemptors_and_one_victim_make_one_eviction(pool: PoolUnderTest) -> None:
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    for _ in range(200):
        victim = await pool.submit(gpus=2)
        await pool.turn(*await pool.news())
        await pool.turn(node.started(f"{victim}.1"))
        urgent = [await pool.submit(class_name="urgent") for _ in range(2)]
        await pool.turn(*await pool.news())
        assert await pool.sql.fetchval("SELECT count(*) FROM preemptions WHERE victim_job = $1", victim) == 1
        assert len([lease for lease in await pool.leases() if lease[2] == "NEXT"]) == 2
        await pool.turn(node.exited(f"{victim}.1", preempted()), *(node.started(f"{job}.1") for job in urgent))
        await pool.turn(await pool.command(victim, "cancel"))
        await pool.turn(*(node.exited(f"{job}.1", ended()) for job in urgent))
        assert await pool.leases() == []
    assert await pool.sql.fetchval("SELECT count(*) FROM preemptions") == 200


async def test_a_run_cancelled_before_its_node_saw_it_never_starts(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit()
    await pool.turn(*await pool.news())
    await pool.turn(await pool.command(job, "cancel"))
    assert await pool.state(job) == "STOPPING"
    assert pool.planned("a")[f"{job}.1"].verb is Verb.STOP
    await pool.turn(node.exited(f"{job}.1", RunEnd(outcome="never_started")))
    assert await pool.state(job) == "CANCELLED"
    assert await pool.leases() == []


async def test_a_cancelled_next_run_keeps_its_lease_until_its_end_is_booked(pool: PoolUnderTest) -> None:
    node = Node("a")
    victim, urgent = await preempt(pool, node)
    waiting = await pool.submit(class_name="urgent")
    await pool.turn(*await pool.news(), await pool.command(urgent, "cancel"))
    assert (f"{urgent}.1", "GPU-a-0", "NEXT") in await pool.leases()
    await pool.turn(node.exited(f"{victim}.1", preempted()))
    assert (f"{urgent}.1", "GPU-a-0", "NEXT") in await pool.leases()
    assert await pool.state(waiting) != "STARTING"
    await pool.turn(node.exited(f"{urgent}.1", RunEnd(outcome="never_started")))
    assert await pool.state(urgent) == "CANCELLED"
    assert await pool.leases() == [(f"{waiting}.1", "GPU-a-0", "LIVE")]


async def test_a_cancel_of_a_waiting_job_is_booked_at_once(pool: PoolUnderTest) -> None:
    job = await pool.submit()
    await pool.turn(*await pool.news())
    await pool.turn(await pool.command(job, "cancel"))
    assert await pool.state(job) == "CANCELLED"


async def test_a_cancel_that_comes_before_its_job_reads_the_job_from_the_database(pool: PoolUnderTest) -> None:
    job = await pool.submit()
    await pool.turn(await pool.command(job, "cancel"))
    assert await pool.state(job) == "CANCELLED"
    await pool.turn(*await pool.news())
    assert await pool.state(job) == "CANCELLED"


async def test_a_cancel_after_the_end_changes_nothing(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(node.exited(f"{job}.1", ended()))
    command = await pool.command(job, "cancel")
    await pool.turn(command)
    await pool.turn(command)
    assert await pool.state(job) == "SUCCEEDED"
    assert await pool.sql.fetchval("SELECT outcome FROM applied_commands") == "the job has ended already"


async def test_an_admission_that_is_told_again_after_the_end_starts_nothing(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit()
    admitted = await pool.news()
    await pool.turn(*admitted)
    await pool.turn(node.started(f"{job}.1"), node.exited(f"{job}.1", ended()))
    await pool.turn(*admitted)
    await pool.take_over()
    await pool.turn(*admitted)
    assert await pool.sql.fetchval("SELECT count(*) FROM runs") == 1
    assert await pool.state(job) == "SUCCEEDED"


async def test_a_report_repeats_what_a_lost_message_said(pool: PoolUnderTest) -> None:
    node = Node("a")
    victim, urgent = await preempt(pool, node)
    reports = (
        RunReport(run_id=f"{victim}.1", state="ended", end=preempted(), ended_age_seconds=1.0, noticed_age_seconds=2.0,
                  started_age_seconds=9.0, empty_gpus=("GPU-a-0",)),
        RunReport(run_id=f"{urgent}.1", state="running", pid=5, started_age_seconds=0.5),
    )  # fmt: skip
    await pool.turn(node.report(runs=reports))
    assert await pool.state(victim) == "QUEUED"
    assert await pool.state(urgent) == "RUNNING"
    assert await pool.leases() == [(f"{urgent}.1", "GPU-a-0", "LIVE")]


async def test_a_gpu_is_free_only_when_it_is_proven_empty(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(node.exited(f"{job}.1", ended(), empty=()))
    waiting = await pool.submit()
    await pool.turn(*await pool.news())
    assert await pool.state(job) == "SUCCEEDED"
    assert (f"{job}.1", "GPU-a-0", "LEAVING") in await pool.leases()
    assert await pool.state(waiting) == "RESERVED"
    await pool.turn(
        GpuEmpty(id="e", node_id="a", session=node.session, gpu_id="GPU-a-0", run_id=f"{job}.1", boot_id="boot-1")
    )
    assert await pool.leases() == [(f"{waiting}.1", "GPU-a-0", "LIVE")]


@pytest.mark.parametrize("later", ["told again", "otherwise", "in reports", "to a successor"])
async def test_a_run_ends_once(pool: PoolUnderTest, later: str) -> None:
    """Until its GPU is proven empty a run is known to its node, which tells its end as often as it is asked."""
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node, retries={"max": 5})
    exited = node.exited(f"{job}.1", ended(3, run_seconds=0.1), empty=())
    await pool.turn(exited)
    tell = "SELECT to_jsonb(runs) - 'released_at' AS run, to_jsonb(jobs) AS job FROM runs JOIN jobs USING (job_id)"
    booked = dict(await pool.sql.fetchrow(tell))
    if later == "told again":
        await pool.turn(exited)
    elif later == "otherwise":
        await pool.turn(node.exited(f"{job}.1", ended(4, run_seconds=0.2), empty=()))
    else:
        if later == "to a successor":
            await pool.take_over()
        for _ in range(2):
            report = RunReport(run_id=f"{job}.1", state="ended", end=exited.end, ended_age_seconds=0.0)
            await pool.turn(node.report(runs=(report,)))
    assert dict(await pool.sql.fetchrow(tell)) == booked


async def test_a_quarantined_gpu_gets_no_new_run(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(node.exited(f"{job}.1", ended(), empty=()))
    sick = GpuReport(
        gpu_id="GPU-a-0", index=0, type_name="A100", vram_mib=CARD_MIB, condition="quarantined", reason="x"
    )
    runs = (RunReport(run_id=f"{job}.1", state="ended", end=ended()),)
    await pool.turn(node.report(gpus=(sick,), runs=runs))
    waiting = await pool.submit()
    await pool.turn(*await pool.news())
    assert await pool.leases() == []
    assert await pool.state(waiting) == "QUEUED"
    await pool.turn(node.report())
    assert await pool.leases() == [(f"{waiting}.1", "GPU-a-0", "LIVE")]


async def test_a_lost_run_is_requeued_without_counting_against_the_job(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(node.exited(f"{job}.1", RunEnd(outcome="lost", message="its shim was killed")))
    assert await pool.state(job) == "STARTING"
    row = await pool.sql.fetchrow("SELECT run_number, preemptions FROM job_states WHERE job_id = $1", job)
    assert tuple(row) == (2, 0)


async def test_a_job_whose_node_is_shut_down_again_and_again_is_never_held(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit()
    await pool.turn(*await pool.news())
    for number in range(1, 13):
        end = ended(143, cause=StopCause.DRAIN, notice_delivered=True)
        await pool.turn(node.started(f"{job}.{number}"), node.exited(f"{job}.{number}", end))
    assert await pool.state(job) == "STARTING"
    assert await pool.leases() == [(f"{job}.13", "GPU-a-0", "LIVE")]


async def test_own_failures_end_a_job_with_its_exit_code(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(node.exited(f"{job}.1", ended(exit_code=None, signal=9)))
    row = await pool.sql.fetchrow("SELECT state, exit_code, end_cause FROM job_states WHERE job_id = $1", job)
    assert tuple(row) == ("FAILED", 137, "failed")


async def test_a_priority_given_to_a_queued_job_counts_at_once(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    running = await start_job(pool, node, class_name="high")
    queued = await pool.submit()
    await pool.turn(*await pool.news())
    assert await pool.state(queued) == "QUEUED"
    await pool.turn(await pool.command(queued, "set_priority", 900))
    assert await pool.state(queued) == "RESERVED"
    assert await pool.state(running) == "STOPPING"


async def test_a_run_that_was_replaced_while_its_node_was_away_is_told_to_stop(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    stray = RunReport(run_id="00000000zzzz.1", state="running", pid=5, started_age_seconds=100.0)
    await pool.turn(node.report(runs=(stray,)))
    assert pool.planned("a")["00000000zzzz.1"].verb is Verb.STOP
    plans = len(pool.plans("a"))
    node.plan = PlanNumber(epoch=pool.plans("a")[-1].epoch, number=pool.plans("a")[-1].number)
    await pool.turn(node.report(runs=(stray,)))
    assert len(pool.plans("a")) == plans
    await pool.turn(node.report())
    assert pool.planned("a") == {}


async def test_a_job_is_decided_by_the_rights_it_was_admitted_by(pool: PoolUnderTest) -> None:
    node = Node("a", gpus=3)
    await pool.turn(node.report())
    await pool.sql.execute("INSERT INTO teams (team_id, gpu_limit, configured) VALUES ('t', 2, true)")
    jobs = [await pool.submit(team="t") for _ in range(3)]
    version = await pool.sql.fetchval("SELECT sum(version) FROM teams")
    news = [fact.model_copy(update={"job": fact.job.model_copy(update={"teams_version": version})})
            for fact in await pool.news()]  # fmt: skip
    await pool.turn(*news)
    assert [await pool.state(job) for job in jobs] == ["STARTING", "STARTING", "QUEUED"]


async def test_an_end_whose_start_nobody_heard_of_tells_both(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit()
    await pool.turn(*await pool.news())
    end = ended(run_seconds=4.0, ack=Ack(step=7))
    await pool.sql.execute("UPDATE runs SET planned_at = planned_at - interval '1 minute'")
    await pool.take_over()
    await pool.turn(node.exited(f"{job}.1", end).model_copy(update={"age_seconds": 20.0}))
    row = await pool.sql.fetchrow("SELECT * FROM runs")
    assert (row["ended_at"] - row["started_at"]).total_seconds() == pytest.approx(4.0)
    assert row["acked_at"] <= row["ended_at"]
    assert await pool.sql.fetchval("SELECT first_started_at FROM job_states") == row["started_at"]
    kinds = [each["kind"] for each in await pool.sql.fetch("SELECT kind FROM job_events ORDER BY event_id")]
    assert kinds == ["queued", "starting", "running", "acked", "succeeded"]
