"""A silent node that an operator gives up: what ran there is lost, and its jobs run elsewhere."""

import pytest
from makeway_schemas.facts import RunReport
from makeway_schemas.plans import Verb
from scheduler_harness import Node, PoolUnderTest, ended, preempt, preempted, start_job


async def fall_silent(pool: PoolUnderTest, *nodes: Node) -> None:
    for node in nodes:
        pool.ledger.heard_at[node.name] -= 16.0
    await pool.turn()


async def declare_dead(pool: PoolUnderTest, node: Node, reason: str = "") -> str:
    command = await pool.node_command(node.name, "dead", reason=reason)
    await pool.turn(command)
    return await pool.outcome(command)


async def node_row(pool: PoolUnderTest, node: Node) -> tuple[str, str]:
    row = await pool.sql.fetchrow("SELECT state, note FROM nodes WHERE node_id = $1", node.name)
    return row["state"], row["note"]


async def end_causes(pool: PoolUnderTest, job: str) -> list[str]:
    rows = await pool.sql.fetch("SELECT end_cause FROM runs WHERE job_id = $1 ORDER BY run_number", job)
    return [row["end_cause"] for row in rows]


def alive(run_id: str, *gpus: str) -> RunReport:
    return RunReport(run_id=run_id, state="running", pid=4711, started_age_seconds=60.0, held_gpus=gpus)


async def test_the_jobs_of_a_dead_node_run_elsewhere(pool: PoolUnderTest) -> None:
    first, second = Node("a", gpus=2), Node("b", gpus=2)
    await pool.turn(first.report())
    jobs = [await start_job(pool, first), await start_job(pool, first)]
    await pool.turn(second.report())
    await fall_silent(pool, first)
    assert [await pool.state(job) for job in jobs] == ["UNKNOWN", "UNKNOWN"]
    assert await declare_dead(pool, first, "on fire") == "dead"
    assert await node_row(pool, first) == ("DEAD", "declared dead by tester: on fire")
    assert [await end_causes(pool, job) for job in jobs] == [["node_lost", None]] * 2
    assert {run for run, _, _ in await pool.leases()} == {f"{job}.2" for job in jobs}
    assert set(pool.planned("b")) == {f"{job}.2" for job in jobs}


async def test_a_node_that_is_heard_is_not_declared_dead(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    assert await declare_dead(pool, node) == "refused: the node is heard; a drain empties it"
    assert (await pool.state(job), (await node_row(pool, node))[0]) == ("RUNNING", "READY")


async def test_declaring_a_node_dead_twice_says_the_same_and_loses_nothing_more(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await fall_silent(pool, node)
    assert [await declare_dead(pool, node), await declare_dead(pool, node)] == ["dead", "dead"]
    assert await end_causes(pool, job) == ["node_lost"]
    assert await pool.state(job) in ("QUEUED", "UNSATISFIABLE")


async def test_of_a_node_that_was_drained_and_is_dead_every_newest_reason_is_kept_until_it_is_taken_back(
    pool: PoolUnderTest,
) -> None:
    node = Node("a")
    await pool.turn(node.report())
    await pool.turn(await pool.node_command("a", "drain", reason="new fans"))
    await pool.turn(await pool.node_command("a", "cordon", reason="noisy"))
    closed = "drained by tester: new fans\ncordoned by tester: noisy"
    assert await node_row(pool, node) == ("READY", closed)
    await fall_silent(pool, node)
    await declare_dead(pool, node, "silent")
    since = await pool.sql.fetchval("SELECT state_since FROM nodes")
    await declare_dead(pool, node, "on fire")
    assert await node_row(pool, node) == ("DEAD", f"{closed}\ndeclared dead by tester: on fire")
    assert await pool.sql.fetchval("SELECT state_since FROM nodes") == since
    await pool.turn(await pool.node_command("a", "uncordon"))
    assert await node_row(pool, node) == ("DEAD", "declared dead by tester: on fire")
    await pool.turn(node.report())
    assert await node_row(pool, node) == ("READY", "")


async def test_who_waits_for_a_victim_on_a_dead_node_gets_its_gpu_elsewhere(pool: PoolUnderTest) -> None:
    node = Node("a")
    victim, urgent = await preempt(pool, node)
    await fall_silent(pool, node)
    assert await declare_dead(pool, node) == "dead"
    assert (await end_causes(pool, victim), await end_causes(pool, urgent)) == (["node_lost"], ["never_started"])
    assert await pool.leases() == []
    await pool.turn(Node("b").report())
    assert [run for run, _, _ in await pool.leases()] == [f"{urgent}.2"]
    record = await pool.sql.fetchrow("SELECT void, empty_at FROM preemptions WHERE victim_run = $1", f"{victim}.1")
    assert record["void"]
    assert record["empty_at"] is not None


async def test_a_run_that_had_ended_but_was_not_proven_empty_lets_its_gpu_go(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(node.exited(f"{job}.1", ended(), empty=()))
    await fall_silent(pool, node)
    await declare_dead(pool, node)
    assert (await pool.state(job), await end_causes(pool, job)) == ("SUCCEEDED", ["done"])
    assert await pool.leases() == []


async def test_a_job_that_was_to_be_cancelled_ends_with_its_node(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await fall_silent(pool, node)
    await pool.turn(await pool.command(job, "cancel"))
    assert await pool.state(job) == "UNKNOWN"
    await declare_dead(pool, node)
    assert (await pool.state(job), await pool.leases()) == ("CANCELLED", [])


async def test_a_job_that_asks_not_to_be_requeued_fails_with_its_node(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node, requeue=False)
    await fall_silent(pool, node)
    await declare_dead(pool, node)
    assert await pool.state(job) == "FAILED"


async def test_a_dead_node_that_is_heard_takes_part_again_and_stops_what_it_still_runs(pool: PoolUnderTest) -> None:
    node, other = Node("a"), Node("b")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(other.report())
    await fall_silent(pool, node)
    await declare_dead(pool, node)
    await pool.turn(node.report(runs=[alive(f"{job}.1")]))
    assert await node_row(pool, node) == ("READY", "")
    assert pool.planned("a")[f"{job}.1"].verb is Verb.STOP
    await pool.turn(other.started(f"{job}.2"), node.exited(f"{job}.1", ended()))
    assert await pool.state(job) == "RUNNING"
    waiting = await pool.submit()
    await pool.turn(node.report(), *await pool.news())
    assert await pool.state(waiting) == "STARTING"
    assert set(pool.planned("a")) == {f"{waiting}.1"}


@pytest.mark.parametrize("command", ["cordon", "drain"])
async def test_a_cordon_outlives_the_death_of_its_node(pool: PoolUnderTest, command: str) -> None:
    node = Node("a")
    await pool.turn(node.report())
    await pool.turn(await pool.node_command("a", command, reason="new fans"))
    await fall_silent(pool, node)
    await declare_dead(pool, node, "no fans")
    await pool.turn(node.report())
    verb = "drained" if command == "drain" else "cordoned"
    assert await node_row(pool, node) == ("READY", f"{verb} by tester: new fans")
    job = await pool.submit()
    await pool.turn(*await pool.news())
    assert await pool.leases() == []
    assert await pool.state(job) in ("QUEUED", "UNSATISFIABLE")


async def test_a_take_over_finds_the_dead_dead(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await fall_silent(pool, node)
    await declare_dead(pool, node)
    await pool.take_over()
    await pool.turn()
    assert (await node_row(pool, node))[0] == "DEAD"
    assert await pool.state(job) in ("QUEUED", "UNSATISFIABLE")
    await pool.turn(node.report())
    assert await pool.state(job) == "STARTING"


async def test_an_uncordon_that_came_later_does_not_overtake_a_death(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    await fall_silent(pool, node)
    dead, uncordon = await pool.node_command("a", "dead"), await pool.node_command("a", "uncordon")
    await pool.turn(uncordon)
    await pool.turn(dead)
    assert await pool.outcome(dead) == "dead"


async def test_nothing_new_is_placed_where_a_run_that_was_given_up_is_still_there(pool: PoolUnderTest) -> None:
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    job = await start_job(pool, node, gpus=2)
    await fall_silent(pool, node)
    await declare_dead(pool, node)
    left = RunReport(run_id=f"{job}.1", state="ended", held_gpus=("GPU-a-1",))
    await pool.turn(node.report(runs=[alive(f"{job}.1", "GPU-a-0", "GPU-a-1")]))
    assert (await pool.leases(), await pool.state(job)) == ([], "QUEUED")
    reason = await pool.sql.fetchval("SELECT reason FROM gpus WHERE gpu_id = 'GPU-a-0'")
    assert reason == f"run {job}.1, which was given up, is still there and is told to stop"
    await pool.turn(node.report(runs=[left]))
    assert await pool.leases() == []
    await pool.turn(node.report())
    assert {gpu for _, gpu, _ in await pool.leases()} == {"GPU-a-0", "GPU-a-1"}


async def test_a_run_that_was_given_up_gets_the_grace_and_the_signal_of_its_job(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node, preemption={"grace": 77, "signal": "SIGUSR1"})
    await fall_silent(pool, node)
    await declare_dead(pool, node)
    await pool.turn(node.report(runs=[alive(f"{job}.1", "GPU-a-0")]))
    stop = pool.planned("a")[f"{job}.1"].stop
    assert stop is not None
    assert (stop.grace_seconds, stop.signal) == (77, "SIGUSR1")


@pytest.mark.parametrize("dead", [True, False])
async def test_what_a_node_said_before_it_fell_silent_brings_it_back_under_no_new_owner(
    pool: PoolUnderTest, dead: bool
) -> None:
    node = Node("a")
    said = node.report()
    await pool.turn(said)
    job = await start_job(pool, node)
    await fall_silent(pool, node)
    if dead:
        await declare_dead(pool, node)
    state, job_state = (await node_row(pool, node))[0], await pool.state(job)
    await pool.take_over()
    pool.cycle.hears = lambda: False
    await pool.turn(said)
    pool.inbox.put([said])
    pool.cycle.hears = lambda: True
    await pool.turn()
    assert ((await node_row(pool, node))[0], await pool.state(job)) == (state, job_state)
    await pool.turn(node.report())
    assert (await node_row(pool, node))[0] == "READY"


async def test_a_report_from_before_a_run_was_booked_takes_no_gpu_from_whoever_holds_it_now(
    pool: PoolUnderTest,
) -> None:
    node = Node("a")
    await pool.turn(node.report())
    first = await start_job(pool, node)
    said = node.report(runs=[alive(f"{first}.1", "GPU-a-0")])
    await pool.turn(said)
    await pool.turn(node.exited(f"{first}.1", ended()))
    victim = await start_job(pool, node)
    urgent = await pool.submit(class_name="urgent")
    await pool.turn(*await pool.news())
    await pool.take_over()
    await pool.turn(said)
    assert {run: state for run, _, state in await pool.leases()} == {f"{victim}.1": "LEAVING", f"{urgent}.1": "NEXT"}
    assert await pool.sql.fetchval("SELECT condition FROM gpus") == "ok"
    assert pool.planned("a")[f"{urgent}.1"].verb is Verb.RUN


async def test_a_gpu_where_something_was_left_behind_stays_so_under_a_new_owner(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await fall_silent(pool, node)
    await declare_dead(pool, node)
    await pool.turn(node.report(runs=[alive(f"{job}.1", "GPU-a-0")]))
    await pool.take_over()
    await pool.turn(node.report(runs=[alive(f"{job}.1", "GPU-a-0")]))
    assert (await pool.leases(), await pool.sql.fetchval("SELECT condition FROM gpus")) == ([], "occupied")


async def test_a_hold_that_is_taken_back_on_a_dead_node_has_never_started(pool: PoolUnderTest) -> None:
    """Its node has not answered yet, and nobody is before it any more: it counts against nobody."""
    node = Node("a")
    await pool.turn(node.report())
    victim = await start_job(pool, node, class_name="low")
    heir = await pool.submit()
    await pool.turn(*await pool.news())
    await pool.turn(node.exited(f"{victim}.1", preempted(), empty=()))
    sick = [gpu.model_copy(update={"condition": "quarantined", "reason": "x"}) for gpu in node.report().gpus]
    over = RunReport(run_id=f"{victim}.1", state="ended", end=preempted())
    await pool.turn(node.report(gpus=tuple(sick), runs=(over,)))
    assert pool.planned("a")[f"{heir}.1"].verb is Verb.WITHDRAW
    await fall_silent(pool, node)
    await declare_dead(pool, node)
    assert await end_causes(pool, heir) == ["never_started"]
    assert await pool.sql.fetchval("SELECT infrastructure_failures FROM job_states WHERE job_id = $1", heir) == 0
    assert await pool.leases() == []
