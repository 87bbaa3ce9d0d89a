"""Ends of runs and stops: one end, one cause; what is told to stop is not asked for more time, nor given more."""

import itertools
from dataclasses import replace

import pytest
from makeway_scheduler.stops import stop_run
from makeway_schemas.facts import GpuEmpty, GpuReport, RunEnd, RunReport
from makeway_schemas.plans import Stop, Verb
from makeway_schemas.states import StopCause
from scheduler_harness import CARD_MIB, Node, PoolUnderTest, ended, preempt, preempted, start_job


def stop_of(pool: PoolUnderTest, run_id: str) -> Stop:
    stop = pool.planned("a")[run_id].stop
    assert stop is not None
    return stop


@pytest.mark.parametrize(
    ("end", "state", "exit_code"),
    [
        (ended(0, cause=StopCause.PREEMPT), "SUCCEEDED", 0),
        (ended(3, cause=StopCause.PREEMPT), "FAILED", 3),
        (ended(None, signal=15, cause=StopCause.PREEMPT), "FAILED", 143),
        (preempted(exit_code=143, done=True), "SUCCEEDED", 0),
        (preempted(exit_code=0), "QUEUED", None),
        (preempted(exit_code=3, cause=None), "QUEUED", None),
    ],
)
async def test_an_exit_of_a_victim_counts_by_whether_it_was_noticed_and_is_done(
    pool: PoolUnderTest, end: RunEnd, state: str, exit_code: int | None
) -> None:
    node = Node("a")
    victim, _ = await preempt(pool, node)
    await pool.turn(node.exited(f"{victim}.1", end))
    row = await pool.sql.fetchrow("SELECT state, exit_code FROM job_states WHERE job_id = $1", victim)
    assert tuple(row) == (state, exit_code)
    record = await pool.sql.fetchrow("SELECT void, lost_gpu_seconds > 0 AS lost FROM preemptions")
    assert tuple(record) == (state != "QUEUED", state == "QUEUED")


@pytest.mark.parametrize(
    "end",
    [RunEnd(outcome="lost", run_seconds=1.0), preempted(), ended(143, cause=StopCause.DRAIN, notice_delivered=True)],
)
async def test_a_job_that_is_to_be_cancelled_is_not_put_back_however_its_run_ends(
    pool: PoolUnderTest, end: RunEnd
) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(await pool.command(job, "cancel"))
    await pool.turn(node.exited(f"{job}.1", end))
    assert await pool.state(job) == "CANCELLED"


@pytest.mark.parametrize("outcome", ["exited", "never_started"])
async def test_only_a_run_that_ran_proves_that_whom_it_followed_had_left(pool: PoolUnderTest, outcome: str) -> None:
    """A follower that was over at once may be heard of before its predecessor's end, and without a start."""
    node = Node("a")
    victim, urgent = await preempt(pool, node)
    end = ended(run_seconds=0.0) if outcome == "exited" else RunEnd(outcome="never_started")
    await pool.turn(node.exited(f"{urgent}.1", end, empty=()))
    held = [run for run, _, _ in await pool.leases()]
    assert (f"{victim}.1" in held) is (outcome == "never_started")


async def test_a_run_is_no_longer_than_since_it_was_planned(pool: PoolUnderTest) -> None:
    """Else a wrong clock of a node would use up its job's time limit."""
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node, time_limit="1h")
    await pool.turn(node.exited(f"{job}.1", RunEnd(outcome="lost", run_seconds=7200.0)))
    assert await pool.sql.fetchval("SELECT used_seconds FROM job_states") < 60.0
    assert await pool.state(job) == "STARTING"


async def test_the_time_of_all_runs_of_a_job_counts_to_its_limit(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node, time_limit="1h")
    for number in (1, 2):
        await pool.sql.execute("UPDATE runs SET planned_at = planned_at - interval '1 hour'")
        await pool.take_over()
        await pool.turn(node.exited(f"{job}.{number}", RunEnd(outcome="lost", run_seconds=1000.0)))
        await pool.turn(node.started(f"{job}.{number + 1}"))
    assert await pool.sql.fetchval("SELECT used_seconds FROM job_states") == pytest.approx(2000.0)
    assert pool.planned("a")[f"{job}.3"].time_limit_seconds == pytest.approx(1600.0)


async def test_a_run_whose_gpu_is_not_proven_empty_stays_in_its_plan_to_be_stopped(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(node.exited(f"{job}.1", ended(), empty=()))
    assert pool.planned("a")[f"{job}.1"].verb is Verb.STOP
    empty = GpuEmpty(id="e", node_id="a", session=node.session, gpu_id="GPU-a-0", run_id=f"{job}.1", boot_id="boot-1")
    await pool.turn(empty)
    assert pool.planned("a") == {}


async def test_a_gpu_that_is_proven_empty_is_released_alone(pool: PoolUnderTest) -> None:
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    job = await start_job(pool, node, gpus=2)
    await pool.turn(await pool.command(job, "preempt", run=1), node.noticed(f"{job}.1"))
    await pool.turn(node.exited(f"{job}.1", preempted(), empty=["GPU-a-1"]))
    assert await pool.leases() == [(f"{job}.1", "GPU-a-0", "LEAVING")]
    assert await pool.sql.fetchval("SELECT empty_at FROM preemptions") is None
    assert pool.planned("a")[f"{job}.1"].verb is Verb.STOP


async def test_a_follower_of_two_waits_for_both(pool: PoolUnderTest) -> None:
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    victims = [await start_job(pool, node) for _ in range(2)]
    urgent = await pool.submit(class_name="urgent", gpus=2)
    await pool.turn(*await pool.news())
    gpus = {run: gpu for run, gpu, state in await pool.leases() if state == "LEAVING"}
    for number, victim in enumerate(victims):
        held = [state for run, _, state in await pool.leases() if run == f"{urgent}.1"]
        assert (held, await pool.state(urgent)) == (["NEXT", "NEXT"], "RESERVED")
        assert len(pool.planned("a")[f"{urgent}.1"].after) == 2 - number
        await pool.turn(node.exited(f"{victim}.1", preempted(), empty=[gpus[f"{victim}.1"]]))
    assert [state for _, _, state in await pool.leases()] == ["LIVE", "LIVE"]
    assert await pool.state(urgent) == "STARTING"


@pytest.mark.parametrize("condition", ["quarantined", "occupied"])
async def test_nobody_is_promoted_on_a_gpu_that_is_released_without_being_empty(
    pool: PoolUnderTest, condition: str
) -> None:
    node = Node("a")
    victim, urgent = await preempt(pool, node)
    sick = GpuReport(gpu_id="GPU-a-0", index=0, type_name="A100", vram_mib=CARD_MIB, condition=condition, reason="x")
    await pool.turn(node.report(gpus=(sick,)))
    await pool.turn(node.exited(f"{victim}.1", preempted()))
    assert await pool.leases() == [(f"{urgent}.1", "GPU-a-0", "NEXT")]
    assert await pool.state(urgent) == "RESERVED"


@pytest.mark.parametrize("condition", ["quarantined", "lost"])
async def test_a_gpu_where_nothing_is_placed_any_more_keeps_no_lease_of_a_run_that_has_ended(
    pool: PoolUnderTest, condition: str
) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(node.exited(f"{job}.1", ended(), empty=()))
    gone = GpuReport(gpu_id="GPU-a-0", index=0, type_name="A100", vram_mib=CARD_MIB, condition=condition, reason="x")
    await pool.turn(node.report(gpus=(gone,), runs=(RunReport(run_id=f"{job}.1", state="ended", end=ended()),)))
    assert await pool.leases() == []


async def test_a_notice_moves_no_moment_by_which_a_run_has_to_leave(pool: PoolUnderTest) -> None:
    node = Node("a")
    victim, _ = await preempt(pool, node)
    leaves_by = await pool.sql.fetchval("SELECT leaves_by FROM runs WHERE run_id = $1", f"{victim}.1")
    await pool.turn(node.noticed(f"{victim}.1"))
    assert await pool.sql.fetchval("SELECT leaves_by FROM runs WHERE run_id = $1", f"{victim}.1") == leaves_by


STRENGTH = (StopCause.PREEMPT, StopCause.DRAIN, StopCause.TIME_LIMIT, StopCause.CANCEL)


@pytest.mark.parametrize(("weaker", "stronger"), list(itertools.combinations_with_replacement(STRENGTH, 2)))
async def test_a_weaker_cause_replaces_no_stronger_one(
    pool: PoolUnderTest, weaker: StopCause, stronger: StopCause
) -> None:
    node = Node("a")
    await pool.turn(node.report())
    run_id = f"{await start_job(pool, node)}.1"

    async def stop(cause: StopCause, grace_seconds: float) -> None:
        now = pool.cycle.steps.now
        await pool.cycle.steps.change(
            lambda: stop_run(pool.ledger, pool.ledger.runs[run_id], cause, grace_seconds, now)
        )

    await stop(stronger, 30.0)
    before = await pool.sql.fetchrow("SELECT stop_cause, stop_at, leaves_by, stop_grace_seconds FROM runs")
    await stop(weaker, 1.0)
    assert await pool.sql.fetchrow("SELECT stop_cause, stop_at, leaves_by, stop_grace_seconds FROM runs") == before
    if weaker is not stronger:
        return
    for cause in STRENGTH[STRENGTH.index(weaker) + 1 :]:
        await stop(cause, 30.0)
        assert await pool.sql.fetchval("SELECT stop_cause FROM runs") == cause


async def test_a_stronger_cause_gives_no_more_time_than_is_left(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node, preemption={"grace": "30s"})
    await pool.turn(await pool.command(job, "preempt", run=1))
    first = await pool.sql.fetchrow("SELECT stop_at, leaves_by, stop_grace_seconds FROM runs")
    run = pool.ledger.runs[f"{job}.1"]
    job_record = pool.ledger.jobs[job]
    spec = job_record.spec.model_copy(
        update={"preemption": job_record.spec.preemption.model_copy(update={"grace": 90.0})}
    )
    pool.ledger.jobs.put(job, replace(job_record, spec=spec))
    await pool.turn(await pool.command(job, "cancel"))
    assert await pool.sql.fetchrow("SELECT stop_at, leaves_by, stop_grace_seconds FROM runs") == first
    assert (stop_of(pool, run.run_id).cause, stop_of(pool, run.run_id).grace_seconds) == (StopCause.CANCEL, 30.0)


async def test_a_run_that_has_ended_is_told_to_stop_by_nobody(pool: PoolUnderTest) -> None:
    """Its job waits for the proof that the GPU is empty; a cancel ends the job at once and the run as it was."""
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(node.exited(f"{job}.1", RunEnd(outcome="lost", run_seconds=0.1), empty=()))
    run = dict(await pool.sql.fetchrow("SELECT * FROM runs"))
    await pool.turn(await pool.command(job, "cancel"))
    assert await pool.state(job) == "CANCELLED"
    assert dict(await pool.sql.fetchrow("SELECT * FROM runs")) == run


@pytest.mark.parametrize(("outcome", "ran", "started"), [("lost", 4.0, True), ("lost", 0.0, False)])
async def test_only_a_run_that_ran_is_said_to_have_started(
    pool: PoolUnderTest, outcome: str, ran: float, started: bool
) -> None:
    """One that its node could not start has met no deadline, and its job has waited on."""
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit()
    await pool.turn(*await pool.news())
    await pool.turn(node.exited(f"{job}.1", RunEnd(outcome=outcome, run_seconds=ran)))
    row = await pool.sql.fetchrow(
        "SELECT r.started_at, s.first_started_at FROM runs AS r JOIN job_states AS s USING (job_id)"
    )
    assert [at is not None for at in row.values()] == [started, started]


async def test_a_run_ends_no_earlier_than_it_started_and_was_noticed(pool: PoolUnderTest) -> None:
    """Each age comes in a message of its own."""
    node = Node("a")
    victim, _ = await preempt(pool, node)
    await pool.turn(node.noticed(f"{victim}.1"))
    end = preempted(run_seconds=0.1)
    await pool.turn(node.exited(f"{victim}.1", end).model_copy(update={"age_seconds": 60.0}))
    assert await pool.sql.fetchval("SELECT ended_at >= noticed_at FROM runs WHERE run_id = $1", f"{victim}.1")


async def test_a_job_that_is_to_be_cancelled_is_not_tried_again_when_it_fails(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node, retries={"max": 5})
    await pool.turn(await pool.command(job, "cancel"), node.exited(f"{job}.1", ended(3)))
    assert await pool.state(job) == "FAILED"


async def test_a_job_that_ended_while_its_gpu_is_not_empty_is_known_until_it_is(pool: PoolUnderTest) -> None:
    """Its run is still in the plan of its node, with the job's own signal."""
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node, preemption={"signal": "SIGUSR1"})
    await pool.turn(node.exited(f"{job}.1", ended(), empty=()))
    await pool.turn(node.report(wants_plan=True))
    assert stop_of(pool, f"{job}.1").signal == "SIGUSR1"
    await pool.take_over()
    await pool.turn(node.report(wants_plan=True))
    assert stop_of(pool, f"{job}.1").signal == "SIGUSR1"
    assert await pool.leases() == [(f"{job}.1", "GPU-a-0", "LEAVING")]


async def test_a_job_whose_runs_are_lost_waits_longer_each_time_and_an_orderly_end_counts_for_none(
    pool: PoolUnderTest,
) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    waits = []
    for number, end in enumerate((preempted(cause=StopCause.DRAIN), *[RunEnd(outcome="lost", run_seconds=0.1)] * 3), 1):
        await pool.turn(node.exited(f"{job}.{number}", end))
        row = await pool.sql.fetchrow("SELECT infrastructure_failures, retry_at - queued_since AS wait FROM job_states")
        waits.append((row["infrastructure_failures"], row["wait"] and row["wait"].total_seconds()))
        await pool.sql.execute("UPDATE job_states SET retry_at = NULL, version = version + 1")
        await pool.take_over()
        await pool.turn(node.report())
        await pool.turn(node.started(f"{job}.{number + 1}"))
    assert waits == [(0, None), (1, None), (2, 10.0), (3, 20.0)]
