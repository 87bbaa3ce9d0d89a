"""Holds: what a job keeps while the GPUs it was promised become empty."""

import pytest
from makeway_scheduler.enact import enact
from makeway_scheduler.stops import stop_run
from makeway_schemas.facts import GpuReport, RunEnd, RunReport
from makeway_schemas.plans import Verb
from makeway_schemas.states import StopCause
from scheduler_harness import CARD_MIB, Node, PoolUnderTest, ended, preempted, start_job


async def test_a_hold_on_a_gpu_that_is_quarantined_ends(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    victim = await start_job(pool, node, class_name="low")
    heir = await pool.submit()
    await pool.turn(*await pool.news())
    await pool.turn(node.exited(f"{victim}.1", preempted(), empty=()))
    sick = GpuReport(
        gpu_id="GPU-a-0", index=0, type_name="A100", vram_mib=CARD_MIB, condition="quarantined", reason="x"
    )
    runs = (RunReport(run_id=f"{victim}.1", state="ended", end=preempted()),)
    await pool.turn(node.report(gpus=(sick,), runs=runs))
    assert await pool.leases() == [(f"{heir}.1", "GPU-a-0", "NEXT")]
    assert pool.planned("a")[f"{heir}.1"].verb is Verb.WITHDRAW
    await pool.turn(node.exited(f"{heir}.1", RunEnd(outcome="never_started")))
    assert await pool.state(heir) == "QUEUED"
    assert await pool.leases() == []
    await pool.turn(node.report())
    assert await pool.leases() == [(f"{heir}.2", "GPU-a-0", "LIVE")]


async def hold_that_moves(pool: PoolUnderTest) -> tuple[Node, str, str]:
    """A hold behind a victim that drains, and another GPU that has become free meanwhile."""
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    victim = await start_job(pool, node)
    other = await start_job(pool, node)
    urgent = await pool.submit(class_name="urgent")
    await pool.turn(*await pool.news())
    stopping = victim if await pool.state(victim) == "STOPPING" else other
    ending = other if stopping == victim else victim
    gpu = next(gpu for run, gpu, _ in await pool.leases() if run == f"{ending}.1")
    await pool.turn(node.exited(f"{ending}.1", ended(), empty=[gpu]))
    return node, urgent, stopping


async def test_a_hold_moves_to_a_gpu_that_is_free_sooner(pool: PoolUnderTest) -> None:
    node, urgent, _ = await hold_that_moves(pool)
    assert pool.planned("a")[f"{urgent}.1"].verb is Verb.WITHDRAW
    assert await pool.state(urgent) == "RESERVED"
    await pool.turn(node.exited(f"{urgent}.1", RunEnd(outcome="never_started")))
    assert await pool.state(urgent) == "STARTING"
    assert pool.planned("a")[f"{urgent}.2"].after == ()
    assert await pool.sql.fetchval("SELECT preemptions FROM job_states WHERE job_id = $1", urgent) == 0


async def test_a_hold_that_had_started_before_it_was_withdrawn_goes_on(pool: PoolUnderTest) -> None:
    node, urgent, stopping = await hold_that_moves(pool)
    gpu = next(gpu for run, gpu, _ in await pool.leases() if run == f"{stopping}.1")
    await pool.turn(node.exited(f"{stopping}.1", preempted(), empty=[gpu]), node.started(f"{urgent}.1"))
    assert await pool.state(urgent) == "RUNNING"
    assert pool.planned("a")[f"{urgent}.1"].verb is Verb.RUN
    assert (f"{urgent}.1", gpu, "LIVE") in await pool.leases()
    assert await pool.sql.fetchval("SELECT count(*) FROM runs WHERE job_id = $1", urgent) == 1


async def kept_behind_a_hold_that_moves(pool: PoolUnderTest) -> tuple[Node, dict[str, str]]:
    """Three GPUs: `first` has ended, so that the hold of `high` moves there from behind `low`; `kept` is kept behind
    both without leases, and `second` still runs."""
    node = Node("a", gpus=3)
    await pool.turn(node.report())
    jobs = {name: await start_job(pool, node, class_name="urgent") for name in ("first", "second")}
    jobs["low"] = await start_job(pool, node, class_name="low")
    jobs["high"] = await pool.submit(class_name="high")
    await pool.turn(*await pool.news())
    jobs["kept"] = await pool.submit(class_name="normal")
    await pool.turn(*await pool.news())
    await pool.turn(node.exited(f"{jobs['first']}.1", ended(), empty=[await gpu_of(pool, jobs["first"])]))
    assert pool.planned("a")[f"{jobs['high']}.1"].verb is Verb.WITHDRAW
    assert await pool.state(jobs["kept"]) == "RESERVED"
    assert f"{jobs['kept']}.1" not in [run for run, _, _ in await pool.leases()]
    return node, jobs


async def gpu_of(pool: PoolUnderTest, job_id: str) -> str:
    return next(gpu for run, gpu, _ in await pool.leases() if run == f"{job_id}.1")


async def test_a_hold_without_leases_ends_when_the_run_before_it_goes_on_after_all(pool: PoolUnderTest) -> None:
    node, jobs = await kept_behind_a_hold_that_moves(pool)
    gpu = await gpu_of(pool, jobs["low"])
    await pool.turn(node.exited(f"{jobs['low']}.1", preempted(), empty=[gpu]), node.started(f"{jobs['high']}.1"))
    assert await pool.state(jobs["high"]) == "RUNNING"
    assert await pool.state(jobs["kept"]) == "STARTING"
    leases = await pool.leases()
    assert (f"{jobs['high']}.1", gpu, "LIVE") in leases
    assert [state for run, _, state in leases if run == f"{jobs['kept']}.2"] == ["LIVE"]


async def test_a_hold_without_leases_that_moves_is_forgotten_at_once(pool: PoolUnderTest) -> None:
    node, jobs = await kept_behind_a_hold_that_moves(pool)
    await pool.turn(node.exited(f"{jobs['second']}.1", ended(), empty=[await gpu_of(pool, jobs["second"])]))
    assert await pool.state(jobs["kept"]) == "STARTING"
    await pool.turn(node.started(f"{jobs['kept']}.2"))
    await pool.turn(*await pool.news())
    assert await pool.state(jobs["kept"]) == "RUNNING"
    assert await pool.sql.fetchval("SELECT state FROM runs WHERE run_id = $1", f"{jobs['kept']}.1") == "RELEASED"


async def test_nobody_gets_leases_behind_a_hold_that_moves_until_its_node_has_answered(pool: PoolUnderTest) -> None:
    node, jobs = await kept_behind_a_hold_that_moves(pool)
    gpu = await gpu_of(pool, jobs["low"])
    await pool.turn(node.exited(f"{jobs['low']}.1", preempted(), empty=[gpu]))
    assert (f"{jobs['high']}.1", gpu, "NEXT") in await pool.leases()
    assert await pool.state(jobs["kept"]) == "RESERVED"
    await pool.turn(node.started(f"{jobs['high']}.1"))
    assert (f"{jobs['high']}.1", gpu, "LIVE") in await pool.leases()
    assert await pool.state(jobs["high"]) == "RUNNING"
    assert await pool.state(jobs["kept"]) == "STARTING"


async def test_who_is_kept_behind_a_hold_that_moves_starts_once_it_has_gone(pool: PoolUnderTest) -> None:
    node, jobs = await kept_behind_a_hold_that_moves(pool)
    gpu = await gpu_of(pool, jobs["low"])
    await pool.turn(node.exited(f"{jobs['low']}.1", preempted(), empty=[gpu]))
    await pool.turn(node.exited(f"{jobs['high']}.1", RunEnd(outcome="never_started")))
    assert await pool.state(jobs["kept"]) == "STARTING"
    assert (f"{jobs['kept']}.1", gpu, "LIVE") in await pool.leases()
    assert await pool.state(jobs["high"]) == "STARTING"


async def test_a_stop_in_the_batch_that_planned_the_run_is_found_again_after_a_restart(pool: PoolUnderTest) -> None:
    await pool.turn(Node("a").report())
    job = await pool.submit()
    pool.cycle.steps.may_decide = lambda: False
    await pool.turn(*await pool.news())

    def plan_and_stop() -> None:
        (choice,) = choices
        enact(pool.ledger, choice, pool.cycle.steps.now)
        stop_run(pool.ledger, pool.ledger.runs[f"{job}.1"], StopCause.PREEMPT, 30.0, pool.cycle.steps.now)

    choices = pool.cycle.steps.look()
    await pool.cycle.steps.change(plan_and_stop)
    told = pool.ledger.runs[f"{job}.1"]
    await pool.take_over()
    found = pool.ledger.runs[f"{job}.1"]
    assert (found.stop_cause, found.stop_grace_seconds) == (StopCause.PREEMPT, 30.0)
    assert (found.stop_at, found.leaves_by) == pytest.approx((told.stop_at, told.leaves_by))
    assert await pool.state(job) == "STOPPING"
    assert await pool.leases() == [(f"{job}.1", "GPU-a-0", "LEAVING")]


async def test_a_job_that_is_kept_without_leases_is_cancelled_at_once(pool: PoolUnderTest) -> None:
    """No node knows its run, so there is nobody to wait for."""
    _, jobs = await kept_behind_a_hold_that_moves(pool)
    before = await pool.leases()
    await pool.turn(await pool.command(jobs["kept"], "cancel"))
    assert await pool.state(jobs["kept"]) == "CANCELLED"
    assert await pool.sql.fetchval("SELECT state FROM runs WHERE job_id = $1", jobs["kept"]) == "RELEASED"
    assert await pool.leases() == before
    assert f"{jobs['kept']}.1" not in pool.planned("a")


async def test_a_hold_that_is_cancelled_moves_nowhere_and_keeps_no_other_gpu(pool: PoolUnderTest) -> None:
    """Until its node has answered it has its leases, though its job wants none any more."""
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    jobs = [await start_job(pool, node, cpus=1, memory="16MiB") for _ in range(2)]
    urgent = await pool.submit(class_name="urgent", cpus=1, memory="16MiB")
    await pool.turn(*await pool.news())
    await pool.turn(await pool.command(urgent, "cancel"))
    ending = jobs[0] if await pool.state(jobs[0]) == "RUNNING" else jobs[1]
    other = await pool.submit(cpus=1, memory="16MiB")
    await pool.turn(node.exited(f"{ending}.1", ended(), empty=[await gpu_of(pool, ending)]), *await pool.news())
    assert await pool.state(other) == "STARTING"
    assert await pool.sql.fetchval("SELECT count(*) FROM decisions WHERE choice = 'withdraw'") == 0
    assert pool.planned("a")[f"{urgent}.1"].verb is Verb.STOP
