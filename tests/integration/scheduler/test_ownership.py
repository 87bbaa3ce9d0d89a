"""The fence, the lock and the double check; what is lost and what is not when a commit fails."""

import asyncio
from datetime import datetime
from typing import Any

import pytest
from makeway_policy.choices import Choice, Withdraw
from makeway_runtime.errors import CommitUncertain
from makeway_runtime.kafka.publisher import Publisher
from makeway_scheduler import cycle, enact, job_moves, owner, steps, store
from makeway_scheduler.errors import Fenced, SchedulerError, Stale
from makeway_scheduler.ledger import Ledger
from makeway_scheduler.store import Committed
from makeway_schemas.facts import GpuHealthChanged, PlanNumber
from makeway_schemas.states import JobState
from scheduler_harness import Node, PoolUnderTest, ended, preempt, start_job
from structlog.testing import capture_logs


async def test_a_former_owner_writes_nothing(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    await pool.store.take_pool("somebody else", 0)
    job = await pool.submit()
    with pytest.raises(Fenced):
        await pool.turn(*await pool.news())
    assert await pool.state(job) is None
    assert await pool.leases() == []
    assert job not in pool.ledger.jobs


async def test_a_gpu_row_held_by_another_transaction_is_a_conflict_and_the_fact_is_kept(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit()
    async with pool.sql.transaction():
        await pool.sql.execute("SELECT 1 FROM gpus WHERE gpu_id = 'GPU-a-0' FOR UPDATE")
        news = await pool.news()
        await pool.turn(*news)
        assert await pool.leases() == []
    assert await pool.state(job) == "QUEUED"
    assert pool.ledger.jobs[job].run_number == 0
    pool.cycle.steps.decide_again()
    await pool.turn()
    assert await pool.leases() == [(f"{job}.1", "GPU-a-0", "LIVE")]


async def test_a_row_that_is_not_what_was_seen_is_loaded_again(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    await pool.sql.execute("UPDATE gpus SET cordoned = true, version = version + 1")
    job = await pool.submit()
    news = await pool.news()
    with pytest.raises(Stale):
        await pool.turn(*news)
    await pool.take_over()
    await pool.turn(*news)
    assert await pool.state(job) == "QUEUED"
    assert await pool.leases() == []


@pytest.mark.parametrize("table", ["job_states", "nodes"])
async def test_no_plan_is_made_over_a_job_or_a_node_that_is_not_what_was_seen(pool: PoolUnderTest, table: str) -> None:
    node = Node("a")
    await pool.turn(node.report(accepts_runs=False))
    job = await pool.submit()
    await pool.turn(*await pool.news())
    await pool.turn(node.report())
    await pool.turn(node.exited(f"{job}.1", ended(None, outcome="never_started", run_seconds=0.0)))
    await pool.sql.execute(f"UPDATE {table} SET version = version + 1")
    plans = len(pool.plans("a"))
    with pytest.raises(Stale):
        await pool.turn(node.exited(f"{job}.2", ended(None, outcome="never_started", run_seconds=0.0)))
    assert len(pool.plans("a")) == plans
    await pool.take_over()
    await pool.turn(node.report())
    assert [run for run, _, _ in await pool.leases()] == [f"{job}.2"]


@pytest.mark.parametrize("committed", [True, False])
async def test_a_commit_whose_answer_is_lost_is_a_takeover_from_oneself(pool: PoolUnderTest, committed: bool) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit()
    real = pool.store.commit

    async def lose_the_answer(*arguments: Any, **options: Any) -> Committed:
        if committed:
            await real(*arguments, **options)
        raise CommitUncertain("the connection broke")

    pool.store.commit = lose_the_answer  # type: ignore[method-assign]
    sent = len(pool.posts.messages)
    with pytest.raises(CommitUncertain):
        await pool.turn(*await pool.news())
    assert len(pool.posts.messages) == sent
    assert job not in pool.ledger.jobs
    pool.store.commit = real  # type: ignore[method-assign]
    await pool.take_over()
    await pool.turn(node.report())
    assert await pool.leases() == [(f"{job}.1", "GPU-a-0", "LIVE")]
    assert list(pool.planned("a")) == [f"{job}.1"]
    assert await pool.sql.fetchval("SELECT count(*) FROM runs") == 1


@pytest.mark.parametrize("step", ["commit", "settled_commands"])
async def test_what_a_batch_was_about_waits_for_a_database_that_is_away(
    pool: PoolUnderTest, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit()
    facts = [*await pool.news(), await pool.command(await pool.submit(), "cancel")]

    async def away(*_: Any, **__: Any) -> Committed:
        raise ConnectionRefusedError("the database is away")

    with monkeypatch.context() as outage:
        outage.setattr(pool.store, step, away)
        with pytest.raises(ConnectionRefusedError):
            await pool.turn(*facts)
        assert job not in pool.ledger.jobs
    await pool.turn()
    assert await pool.state(job) == "STARTING"
    assert await pool.sql.fetchval("SELECT count(*) FROM applied_commands") == 1


async def test_a_choice_that_the_database_refuses_holds_its_job_and_loses_no_fact(pool: PoolUnderTest) -> None:
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    bad, good, running = await pool.submit(), await pool.submit(), await pool.submit()
    await pool.sql.execute(
        "INSERT INTO runs (run_id, job_id, run_number, pool_id, node_id, state, value, gpus, planned_at) "
        "VALUES ($1 || '.7', $1, 7, 'elsewhere', 'a', 'PLANNED', 1, '[]', now())",
        bad,
    )
    await pool.turn(*await pool.news())
    assert await pool.state(bad) == "HELD"
    assert "one_unended_run" in await pool.sql.fetchval("SELECT reason FROM job_states WHERE job_id = $1", bad)
    pool.cycle.steps.decide_again()
    await pool.turn()
    assert sorted(run for run, _, _ in await pool.leases()) == sorted([f"{good}.1", f"{running}.1"])


async def test_a_choice_about_a_job_that_has_a_run_fails_alone_and_leaves_the_job_as_it_is(
    pool: PoolUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only who waits can be held."""
    node = Node("a")
    victim, urgent = await preempt(pool, node)
    real = enact.enact

    def refuse(ledger: Ledger, choice: Choice, now: float) -> None:
        if isinstance(choice, Withdraw):
            raise ValueError("no such thing")
        real(ledger, choice, now)

    monkeypatch.setattr(steps, "enact", refuse)
    monkeypatch.setattr(cycle, "enact", refuse)
    await pool.turn(await pool.node_command("a", "cordon"))
    assert (await pool.state(victim), await pool.state(urgent)) == ("STOPPING", "RESERVED")
    assert await pool.sql.fetchval("SELECT cordoned FROM nodes")
    monkeypatch.undo()
    pool.cycle.steps.decide_again()
    await pool.turn()
    assert pool.planned("a")[f"{urgent}.1"].verb == "WITHDRAW"


async def test_a_fact_that_cannot_be_applied_is_set_aside_and_the_others_are_not(
    pool: PoolUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit()
    await pool.turn(*await pool.news())
    await pool.sql.execute("ALTER TABLE runs ADD CONSTRAINT no_such_code CHECK (exit_code <> 77)")
    other = await pool.submit()
    await pool.turn(node.exited(f"{job}.1", ended(77)))
    assert pool.dead == []  # it is tried again first
    for _ in range(3):
        await pool.turn(node.exited(f"{job}.1", ended(77)), *await pool.news())
    assert await pool.state(other) == "QUEUED"
    assert {fact.id for fact, _ in pool.dead} == {f"{job}.1/exited"}
    assert await pool.state(job) == "STARTING"


async def test_a_fact_whose_rows_are_held_by_somebody_else_is_not_counted_as_failing(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit()
    await pool.turn(*await pool.news())
    async with pool.sql.transaction():
        await pool.sql.execute("SELECT 1 FROM job_states FOR UPDATE")
        with capture_logs() as lines:
            await pool.turn(node.started(f"{job}.1"))
        assert [each["log_level"] for each in lines] == ["warning"] * len(lines)
        assert not any("exc_info" in each for each in lines)
        assert await pool.state(job) == "STARTING"
    assert await pool.sql.fetchval("SELECT count(*) FROM failing_facts") == 0
    await pool.turn()
    assert await pool.state(job) == "RUNNING"


async def test_a_restart_finds_everything_again(pool: PoolUnderTest) -> None:
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    first, second = await pool.submit(), await pool.submit()
    waiting = [await pool.submit() for _ in range(3)]
    await pool.turn(*await pool.news())
    await pool.turn(node.started(f"{first}.1"), node.started(f"{second}.1"))
    await pool.turn(await pool.command(second, "cancel"))
    before = {job.job_id: (job.state, job.version, job.reason) for job in pool.ledger.jobs}
    runs = {run.run_id: run for run in pool.ledger.runs}
    await pool.take_over()
    assert {job.job_id: (job.state, job.version, job.reason) for job in pool.ledger.jobs} == before
    assert {run.run_id: (run.state, run.leases, run.lease_state, run.stop_cause) for run in pool.ledger.runs} == {
        run.run_id: (run.state, run.leases, run.lease_state, run.stop_cause) for run in runs.values()
    }
    await pool.turn()
    assert await pool.sql.fetchval("SELECT count(*) FROM runs") == len(runs)
    await pool.turn(node.exited(f"{second}.1", ended(143, cause="cancel", notice_delivered=True), empty=["GPU-a-1"]))
    assert await pool.state(second) == "CANCELLED"
    assert (f"{waiting[0]}.1", "GPU-a-1", "LIVE") in await pool.leases()


async def test_all_that_waited_long_for_an_owner_is_found_however_much_it_is(
    pool: PoolUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MOST_UNAPPLIED", 2)
    monkeypatch.setattr(owner, "MOST_UNAPPLIED", 2)
    jobs = [await pool.submit() for _ in range(5)]
    await pool.sql.execute("UPDATE jobs SET submitted_at = now() - interval '1 hour'")
    await pool.take_over()
    settings = pool.settings.model_copy(update={"sweep_seconds": 0.01})
    publisher = Publisher(settings, client="test", topics=())
    sweep = asyncio.create_task(
        owner.Owner(settings, pool.store, publisher, pool.policy)._sweep(pool.ledger, pool.inbox, pool.outlet)
    )
    try:
        async with asyncio.timeout(20):
            while None in [await pool.state(job) for job in jobs]:
                await pool.turn()
                await asyncio.sleep(0.01)
    finally:
        sweep.cancel()


async def test_an_owner_gives_signs_of_life(pool: PoolUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "SIGN_SECONDS", 0.01)
    publisher = Publisher(pool.settings, client="test", topics=())
    signs = asyncio.create_task(owner.Owner(pool.settings, pool.store, publisher, pool.policy)._give_signs())
    try:
        async with asyncio.timeout(20):
            seen: set[datetime | None] = set()
            while len(seen - {None}) < 2:
                seen.add(await pool.sql.fetchval("SELECT given_at FROM signs_of_life WHERE pool_id = 'default'"))
                await asyncio.sleep(0.01)
    finally:
        signs.cancel()


async def test_a_job_that_a_restored_database_does_not_know_is_not_taken_from_the_broker(pool: PoolUnderTest) -> None:
    node = Node("a")
    known = await pool.submit()
    gone = await pool.submit()
    told = await pool.news()
    await pool.sql.execute("DELETE FROM jobs WHERE job_id = $1", gone)  # the copy is older than the job
    await pool.take_over()
    await pool.turn(node.report(), *told)
    assert await pool.state(known) == "STARTING"
    assert await pool.state(gone) is None
    assert gone not in pool.ledger.jobs


async def test_a_number_that_a_node_has_heard_of_is_passed(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    node.plan = PlanNumber(epoch=pool.ledger.epoch + 5, number=3)
    with pytest.raises(Fenced):
        await pool.turn(node.report())
    await pool.take_over(pool.ledger.epoch_heard)
    assert pool.ledger.epoch > node.plan.epoch
    await pool.turn(node.report())
    assert pool.plans("a")[-1].epoch == pool.ledger.epoch


async def test_a_plan_names_the_session_that_asked_last(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    node.session = "0002"
    await pool.turn(node.report())
    assert pool.plans("a")[-1].session == "0002"
    node.session = "0001"
    await pool.turn(node.report())
    assert pool.plans("a")[-1].session == "0002"


async def test_a_plan_says_which_runs_have_started(pool: PoolUnderTest) -> None:
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    jobs = [await pool.submit() for _ in range(2)]
    await pool.turn(*await pool.news())
    await pool.turn(node.started(f"{jobs[0]}.1"))
    await pool.turn(node.report(wants_plan=True))
    assert {run: planned.started for run, planned in pool.planned("a").items()} == {
        f"{jobs[0]}.1": True,
        f"{jobs[1]}.1": False,
    }


async def test_a_node_that_knows_nothing_of_a_run_that_has_started_has_it_decided_again(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit()
    await pool.turn(*await pool.news())
    await pool.turn(node.started(f"{job}.1"))
    await pool.turn(node.exited(f"{job}.1", ended(None, outcome="never_started", run_seconds=0.0)))
    assert await pool.state(job) == "STARTING"
    assert [run for run, _, _ in await pool.leases()] == [f"{job}.2"]


async def test_a_silent_node_is_unknown_and_comes_back(pool: PoolUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit()
    await pool.turn(*await pool.news())
    await pool.turn(node.started(f"{job}.1"))
    pool.ledger.heard_at["a"] -= 16.0
    await pool.turn()
    assert await pool.state(job) == "UNKNOWN"
    waiting = await pool.submit(class_name="urgent")
    await pool.turn(*await pool.news())
    assert await pool.state(waiting) in ("QUEUED", "UNSATISFIABLE")
    assert await pool.sql.fetchval("SELECT count(*) FROM preemptions") == 0
    await pool.turn(node.report())
    assert await pool.state(job) == "STOPPING"
    assert await pool.sql.fetchval("SELECT count(*) FROM runs WHERE job_id = $1", job) == 1


async def test_what_the_sampler_says_of_a_card_is_no_sign_of_its_node(pool: PoolUnderTest) -> None:
    """It goes on where the executor, which starts and stops what runs, is gone."""
    node = Node("a")
    await pool.turn(node.report())
    pool.ledger.heard_at["a"] -= 10.0
    await pool.turn(
        GpuHealthChanged(id="h", node_id="a", session="s", gpu_id="GPU-a-0", healthy=False, reason="XID 79")
    )
    pool.ledger.heard_at["a"] -= 6.0
    await pool.turn()
    assert await pool.sql.fetchval("SELECT state FROM nodes") == "UNKNOWN"


async def test_our_own_outage_ages_nobody(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    pool.ledger.heard_at["a"] -= 60.0
    pool.cycle.hears = lambda: False
    await pool.turn()
    pool.cycle.hears = lambda: True
    await pool.turn()
    assert await pool.sql.fetchval("SELECT state FROM nodes") == "READY"


async def test_without_the_broker_nothing_starts_but_facts_are_booked(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    pool.cycle.steps.may_decide = lambda: False
    job = await pool.submit()
    await pool.turn(*await pool.news())
    assert await pool.state(job) == "QUEUED"
    await pool.turn(await pool.command(job, "cancel"))
    assert await pool.state(job) == "CANCELLED"
    assert await pool.leases() == []


async def test_a_run_without_its_job_stops_nobody(pool: PoolUnderTest) -> None:
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    await pool.sql.execute(
        "INSERT INTO runs (run_id, job_id, run_number, pool_id, node_id, state, value, gpus, planned_at) "
        "VALUES ('00000000zzzz.1', '00000000zzzz', 1, 'default', 'a', 'PLANNED', 1, '[]', now())"
    )
    await pool.take_over()
    job = await pool.submit()
    await pool.turn(node.report(), *await pool.news())
    assert await pool.state(job) == "STARTING"


async def test_a_move_of_a_job_that_the_table_does_not_name_is_refused(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    with pytest.raises(SchedulerError, match="may not go from RUNNING to RESERVED"):
        job_moves.move(pool.ledger, pool.ledger.jobs[job], JobState.RESERVED)
    assert pool.ledger.jobs[job].state is JobState.RUNNING


async def test_that_an_event_was_published_is_stored_once_by_the_next_batch(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    await start_job(pool, node)
    told = set(pool.outlet.published())
    assert told
    await pool.turn(node.report(wants_plan=True))
    assert not told & set(pool.outlet.published())
    rows = await pool.sql.fetch("SELECT event_id FROM job_events WHERE published")
    assert told <= {row["event_id"] for row in rows}
