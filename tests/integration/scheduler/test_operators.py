"""What operators ask for: preempting by hand, resuming what is held, cordoning and draining nodes."""

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from makeway_schemas.facts import CommandIssued
from makeway_schemas.plans import Verb
from makeway_schemas.states import StopCause
from scheduler_harness import Node, PoolUnderTest, ended, preempted, start_job


async def node_row(pool: PoolUnderTest, node: str) -> tuple[bool, str, str]:
    row = await pool.sql.fetchrow("SELECT cordoned, drain, note FROM nodes WHERE node_id = $1", node)
    return row["cordoned"], row["drain"], row["note"]


async def preemption(pool: PoolUnderTest) -> dict[str, Any]:
    return dict(await pool.sql.fetchrow("SELECT * FROM preemptions"))


async def hold(pool: PoolUnderTest, job: str) -> None:
    """Hold a waiting job, as ten lost runs do."""
    record = replace(pool.ledger.jobs[job], infrastructure_failures=10)

    def lose() -> None:
        pool.ledger.jobs.put(job, record)
        pool.cycle._hold(job, "ten runs in a row were lost")

    await pool.cycle.steps.change(lose)


async def test_a_job_that_is_preempted_by_hand_leaves_with_its_record_and_is_put_back(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    command = await pool.command(job, "preempt")
    await pool.turn(command)
    assert (await pool.outcome(command), await pool.state(job)) == ("stopping", "STOPPING")
    planned = pool.planned("a")[f"{job}.1"]
    assert planned.stop is not None
    assert (planned.verb, planned.stop.cause) == (Verb.STOP, StopCause.PREEMPT)
    record = await preemption(pool)
    assert (record["trigger"], record["preemptor_job"], record["victim_run"]) == ("manual", None, f"{job}.1")
    await pool.turn(node.noticed(f"{job}.1"), node.exited(f"{job}.1", preempted()))
    assert await pool.state(job) == "STARTING"
    assert len(pool.ledger.jobs[job].preempted_at) == 1
    await pool.turn(command)
    assert await pool.state(job) == "STARTING"


async def test_what_started_in_the_same_batch_can_be_preempted(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit()
    await pool.turn(*await pool.news())
    command = await pool.command(job, "preempt")
    await pool.turn(node.started(f"{job}.1"), command)
    assert await pool.outcome(command) == "stopping"


@pytest.mark.parametrize("way", ["told", "found"])
async def test_a_preemption_by_hand_that_comes_late_leaves_the_next_run_alone(pool: PoolUnderTest, way: str) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    first, repeated = [await pool.command(job, "preempt", run=1) for _ in range(2)]
    await pool.turn(first)
    await pool.turn(node.noticed(f"{job}.1"), node.exited(f"{job}.1", preempted()))
    await pool.turn(node.started(f"{job}.2"))
    await pool.turn(*([repeated] if way == "told" else await pool.news()))
    assert (await pool.outcome(repeated), await pool.state(job)) == ("refused: run 1 has ended already", "RUNNING")


@pytest.mark.parametrize(
    ("run", "outcome"),
    [
        (0, "refused: it had no run when this was asked for"),
        (2, "refused: it has had no run 2 yet"),
        (1, "stopping"),
        (None, "stopping"),
    ],
)
async def test_a_preemption_by_hand_is_carried_out_on_the_run_that_it_names(
    pool: PoolUnderTest, run: int | None, outcome: str
) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    command = await pool.command(job, "preempt", run=run)
    await pool.turn(command)
    assert await pool.outcome(command) == outcome


async def test_a_preemption_by_hand_of_a_run_that_has_ended_is_refused_by_its_number(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(await pool.node_command("a", "drain"))
    await pool.turn(node.exited(f"{job}.1", preempted()))
    command = await pool.command(job, "preempt", run=1)
    await pool.turn(command)
    assert (await pool.outcome(command), await pool.state(job)) == ("refused: run 1 has ended already", "QUEUED")


async def test_a_preemption_by_hand_of_a_job_that_has_ended_is_refused_too(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(node.exited(f"{job}.1", ended()))
    command = await pool.command(job, "preempt", run=1)
    await pool.turn(command)
    assert await pool.outcome(command) == "refused: the job has ended already"


@pytest.mark.parametrize("force", [False, True])
async def test_by_hand_a_job_that_is_not_preemptible_leaves_only_by_force(pool: PoolUnderTest, force: bool) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node, preemptible=False)
    command = await pool.command(job, "preempt", force=force)
    await pool.turn(command)
    assert await pool.outcome(command) == ("stopping" if force else "refused: it is not preemptible")
    assert await pool.state(job) == ("STOPPING" if force else "RUNNING")
    decision = await pool.sql.fetchval("SELECT reason FROM decisions WHERE job_id = $1 AND choice = 'evict'", job)
    wanted = "preempted by hand, although it is not preemptible; asked for by tester" if force else None
    assert decision == wanted


async def test_a_cordon_of_a_draining_node_and_a_gentler_drain_change_nothing(pool: PoolUnderTest) -> None:
    await pool.turn(Node("a").report())
    await pool.turn(await pool.node_command("a", "drain", reason="new fans", force=True))
    again = [await pool.node_command("a", "cordon"), await pool.node_command("a", "drain", reason="new fans")]
    await pool.turn(*again)
    assert [await pool.outcome(each) for each in again] == ["draining", "draining"]
    assert await node_row(pool, "a") == (True, "forced", "drained by tester: new fans")


async def test_a_drained_node_is_emptied_and_takes_nothing_until_it_is_uncordoned(pool: PoolUnderTest) -> None:
    node, other = Node("a"), Node("b")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    drain = await pool.node_command("a", "drain", reason="new fans")
    await pool.turn(drain)
    assert await pool.outcome(drain) == "draining"
    assert await node_row(pool, "a") == (True, "gently", "drained by tester: new fans")
    assert (await preemption(pool))["trigger"] == "drain"
    await pool.turn(node.exited(f"{job}.1", preempted()))
    assert await pool.state(job) == "QUEUED"
    assert (pool.ledger.jobs[job].preempted_at, pool.ledger.jobs[job].last_end) == ((), "drained")
    await pool.take_over()
    assert pool.ledger.jobs[job].preempted_at == ()
    await pool.turn(node.report())
    assert await pool.state(job) == "QUEUED"
    await pool.turn(other.report())
    await pool.turn(other.started(f"{job}.2"), other.exited(f"{job}.2", ended(run_seconds=0.0), empty=other.gpu_ids()))
    second = await pool.submit(gpus=1)
    await pool.turn(await pool.node_command("b", "cordon"), *await pool.news())
    assert await pool.state(second) == "QUEUED"
    await pool.turn(await pool.node_command("a", "uncordon"))
    assert await node_row(pool, "a") == (False, "no", "")
    assert await pool.state(second) == "STARTING"


async def test_a_drain_waits_for_what_is_not_preemptible_unless_forced(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node, preemptible=False)
    await pool.turn(await pool.node_command("a", "drain"))
    assert await pool.state(job) == "RUNNING"
    await pool.take_over()
    await pool.turn(node.report())
    assert await pool.state(job) == "RUNNING"
    await pool.turn(await pool.node_command("a", "drain", force=True))
    assert await pool.state(job) == "STOPPING"


async def drains_told(pool: PoolUnderTest, job: str) -> list[tuple[str, str, str | None]]:
    rows = await pool.sql.fetch(
        "SELECT reason_code, reason, detail ->> 'until' AS until FROM decisions WHERE job_id = $1 AND choice = 'drain' "
        "ORDER BY decision_id",
        job,
    )
    return [(row["reason_code"], row["reason"], row["until"]) for row in rows]


async def test_what_protects_a_run_on_a_drained_node_is_stored_when_it_changes(pool: PoolUnderTest) -> None:
    await pool.apply_policy(preset="default")
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    job, firm = await start_job(pool, node), await start_job(pool, node, preemptible=False)
    await pool.turn(await pool.node_command("a", "drain"))
    ((guard, reason, until),) = await drains_told(pool, job)
    assert (guard, reason) == ("minimum_run", "node a is drained, and it is inside its minimum run")
    started = await pool.sql.fetchval("SELECT started_at FROM runs WHERE job_id = $1", job)
    assert until is not None
    assert datetime.fromisoformat(until) - started == pytest.approx(timedelta(minutes=10), abs=timedelta(seconds=1))
    assert await drains_told(pool, firm) == [("not_preemptible", "node a is drained, and it is not preemptible", None)]
    await pool.turn(node.report())
    assert len(await drains_told(pool, job)) == 1
    await pool.turn(await pool.node_command("a", "drain", force=True))
    assert await pool.state(job) == "STOPPING"
    assert len(await drains_told(pool, job)) == 1


async def test_a_class_that_is_never_preempted_has_no_end_of_its_protection(pool: PoolUnderTest) -> None:
    await pool.apply_policy(preset="default", classes={"normal": {"preemptions_per_day": 0, "minimum_run": 0}})
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(await pool.node_command("a", "drain"))
    pool.cycle.steps.set_clock(await pool.store.clock() + 10)
    await pool.turn(node.report())
    assert await drains_told(pool, job) == [
        ("budget", "node a is drained, and its 0 preemptions of the last 24 h are used up", None)
    ]


async def test_nothing_is_stored_of_runs_on_nodes_that_are_not_drained(pool: PoolUnderTest) -> None:
    await pool.apply_policy(preset="default")
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(await pool.node_command("a", "cordon"))
    assert await drains_told(pool, job) == []


async def test_an_order_to_a_node_that_is_none_is_refused(pool: PoolUnderTest) -> None:
    command = await pool.node_command("z", "drain")
    await pool.turn(command)
    assert await pool.outcome(command) == "refused: the pool has no node z"


async def test_a_command_to_a_node_that_was_never_told_is_found(pool: PoolUnderTest) -> None:
    await pool.turn(Node("a").report())
    await pool.node_command("a", "cordon", reason="noisy")
    await pool.turn(*await pool.news())
    assert await node_row(pool, "a") == (True, "no", "cordoned by tester: noisy")
    assert await pool.news() == []


async def held_job(pool: PoolUnderTest) -> str:
    job = await pool.submit()
    await pool.turn(*await pool.news())
    await hold(pool, job)
    assert await pool.state(job) == "HELD"
    return job


async def test_a_held_job_goes_on_when_a_person_says_so(pool: PoolUnderTest) -> None:
    job = await held_job(pool)
    await pool.turn(await pool.command(job, "resume"))
    assert await pool.state(job) in ("QUEUED", "UNSATISFIABLE")
    assert pool.ledger.jobs[job].infrastructure_failures == 0
    again = await pool.command(job, "resume")
    await pool.turn(again)
    assert await pool.outcome(again) == "refused: it is not held"


@pytest.mark.parametrize("fact", ["policy", "team", "node"])
async def test_a_held_job_goes_on_when_a_fact_changes_and_has_one_more_try(pool: PoolUnderTest, fact: str) -> None:
    job = await held_job(pool)
    if fact == "policy":
        await pool.apply_policy(preset="plain")
        await pool.turn()
    elif fact == "team":
        await pool.sql.execute("UPDATE teams SET gpu_limit = 7, version = version + 1")
        teams, _ = await pool.store.load_teams()
        pool.ledger.new_teams = tuple(teams)
        await pool.turn()
    else:
        await pool.turn(Node("a").report())
    assert await pool.state(job) != "HELD"
    assert pool.ledger.jobs[job].infrastructure_failures == 9
    kinds = await pool.sql.fetch("SELECT kind, data FROM job_events WHERE job_id = $1 ORDER BY event_id", job)
    released = [json.loads(row["data"])["reason"] for row in kinds if row["kind"] == "released"]
    assert len(released) == 1


async def test_a_report_of_a_node_that_is_known_releases_nobody(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    await start_job(pool, node)
    job = await held_job(pool)
    await pool.turn(node.report())
    assert await pool.state(job) == "HELD"


async def test_a_node_that_takes_no_runs_says_why_in_its_own_words(pool: PoolUnderTest) -> None:
    await pool.turn(Node("a").report(accepts_runs=False, refusal="less than 5 % of its disk is free"))
    job = await pool.submit()
    await pool.turn(*await pool.news())
    row = await pool.sql.fetchrow("SELECT detail FROM decisions WHERE job_id = $1", job)
    assert json.loads(row["detail"])["gpus"] == {"node takes no runs: less than 5 % of its disk is free": 1}


async def limits(pool: PoolUnderTest, job: str, **values: float | None) -> CommandIssued:
    command_id = await pool.sql.fetchval(
        "INSERT INTO commands (pool_id, job_id, command, arguments, issued_by) "
        "VALUES ('default', $1, 'set_limits', $2::jsonb, 'tester') RETURNING command_id",
        job, json.dumps({"limits": values}),
    )  # fmt: skip
    return next(fact for fact in await pool.news() if isinstance(fact, CommandIssued) and fact.command_id == command_id)


async def test_another_time_limit_reaches_the_run_that_is_there(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node, time_limit=60)
    assert pool.planned("a")[f"{job}.1"].time_limit_seconds == 60
    await pool.turn(await limits(pool, job, time_limit=120.0))
    assert pool.planned("a")[f"{job}.1"].time_limit_seconds == 120
    assert pool.ledger.state.jobs[job].time_limit_seconds == 120
    await pool.take_over()
    assert pool.ledger.state.jobs[job].time_limit_seconds == 120
    await pool.turn(node.report(wants_plan=True), await limits(pool, job, time_limit=None))
    assert pool.planned("a")[f"{job}.1"].time_limit_seconds is None


async def test_a_deadline_can_be_moved_until_the_job_has_started(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    running = await start_job(pool, node, preemptible=False)
    late = await limits(pool, running, deadline=await pool.store.clock() + 60)
    await pool.turn(late)
    assert await pool.outcome(late) == "refused: it has started, which met its deadline"
    job = await pool.submit(on_deadline="cancel")
    await pool.turn(*await pool.news())
    await pool.turn(await limits(pool, job, deadline=await pool.store.clock() + 60))
    assert await pool.state(job) == "QUEUED"
    pool.cycle.steps.set_clock(await pool.store.clock() + 65)
    await pool.turn()
    assert await pool.state(job) == "EXPIRED"


async def test_a_held_job_that_waits_too_long_expires(pool: PoolUnderTest) -> None:
    job = await pool.submit(max_wait=60)
    await pool.turn(*await pool.news())
    await hold(pool, job)
    pool.cycle.steps.decide_again()
    pool.cycle.steps.set_clock(await pool.store.clock() + 65)
    await pool.turn()
    assert await pool.state(job) == "EXPIRED"
