"""Facts that come again, late, or from a node whose run it is not: what was booked first stays."""

from typing import Any

import pytest
from makeway_scheduler import ledger
from makeway_schemas.facts import Ack, Fact, GpuEmpty, Resume, RunReport, RunResumed
from scheduler_harness import Node, PoolUnderTest, ended, preempted, start_job

BOOKED = (
    "SELECT to_jsonb(r) AS run, to_jsonb(s) AS job, (SELECT jsonb_agg(to_jsonb(l)) FROM leases AS l) AS leases, "
    "(SELECT count(*) FROM failing_facts) AS failing FROM job_states AS s LEFT JOIN runs AS r USING (job_id)"
)


async def booked(pool: PoolUnderTest) -> list[dict[str, Any]]:
    """Runs, jobs and leases as they are stored, and how many facts the database has refused."""
    return [dict(row) for row in await pool.sql.fetch(BOOKED)]


async def events(pool: PoolUnderTest) -> list[str]:
    return [row["kind"] for row in await pool.sql.fetch("SELECT kind FROM job_events ORDER BY event_id")]


def told_by(node: Node, kind: str, run_id: str) -> Fact:
    """A fact of each kind that a node tells of a run."""
    about = {"node_id": node.name, "session": node.session, "run_id": run_id}
    facts: dict[str, Fact] = {
        "started": node.started(run_id),
        "noticed": node.noticed(run_id),
        "acked": node.acked(run_id, 7),
        "resumed": RunResumed(id="resumed", step=3, load_seconds=0.5, age_seconds=0.0, **about),
        "exited": node.exited(run_id, ended()),
        "empty": GpuEmpty(id="empty", gpu_id="GPU-a-0", boot_id=node.boot_id, **about),
        "reported": node.report(
            runs=(RunReport(run_id=run_id, state="ended", end=ended(), started_age_seconds=1.0, held_gpus=()),)
        ),
    }
    return facts[kind]


@pytest.mark.parametrize("kind", ["started", "noticed", "acked", "resumed", "exited", "reported"])
async def test_what_another_node_tells_of_a_run_counts_for_nothing(pool: PoolUnderTest, kind: str) -> None:
    node, other = Node("a"), Node("b", gpus=0)
    await pool.turn(node.report(), other.report())
    job = await pool.submit()
    await pool.turn(*await pool.news())
    before = await booked(pool)
    await pool.turn(told_by(other, kind, f"{job}.1"))
    assert await booked(pool) == before


async def test_another_node_proves_no_gpu_empty(pool: PoolUnderTest) -> None:
    node, other = Node("a"), Node("b", gpus=0)
    await pool.turn(node.report(), other.report())
    job = await start_job(pool, node)
    await pool.turn(node.exited(f"{job}.1", ended(), empty=()))
    await pool.turn(told_by(other, "empty", f"{job}.1"))
    assert await pool.leases() == [(f"{job}.1", "GPU-a-0", "LEAVING")]


async def test_a_gpu_of_a_run_that_has_not_ended_is_not_empty_of_it_whoever_says_so(pool: PoolUnderTest) -> None:
    """Such a word can only be of another life of the run: it may have a process all the same."""
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(told_by(node, "empty", f"{job}.1"))
    assert await pool.leases() == [(f"{job}.1", "GPU-a-0", "LIVE")]


@pytest.mark.parametrize("phase", ["queued", "running", "ended"])
async def test_an_admission_told_again_changes_nothing(pool: PoolUnderTest, phase: str) -> None:
    """And it is no fact that fails: one that did would be tried three times and set aside."""
    node = Node("a")
    if phase != "queued":
        await pool.turn(node.report())
    await pool.submit()
    admitted = await pool.news()
    await pool.turn(*admitted)
    run_ids = [run.run_id for run in pool.ledger.runs]
    if phase != "queued":
        await pool.turn(*(node.started(run_id) for run_id in run_ids))
    if phase == "ended":
        await pool.turn(*(node.exited(run_id, ended()) for run_id in run_ids))
    state, told = await booked(pool), await events(pool)
    for _ in range(3):
        await pool.turn(*admitted)
    assert (await booked(pool), await events(pool)) == (state, told)


async def test_a_start_is_booked_once(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    state, told = await booked(pool), await events(pool)
    report = RunReport(run_id=f"{job}.1", state="running", pid=9, started_age_seconds=0.0, held_gpus=("GPU-a-0",))
    await pool.turn(node.started(f"{job}.1"))
    await pool.turn(node.report(runs=(report,)))
    assert (await booked(pool), await events(pool)) == (state, told)


@pytest.mark.parametrize("kind", ["started", "acked", "resumed"])
async def test_nothing_happens_to_a_run_before_it_was_planned(pool: PoolUnderTest, kind: str) -> None:
    """Ages are measured on the node: by a wrong one a run would be exempt, or its checkpoint old, from the start."""
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit()
    await pool.turn(*await pool.news())
    fact = told_by(node, kind, f"{job}.1")
    if kind == "acked":
        fact = node.acked(f"{job}.1", 7).model_copy(update={"ack": Ack(step=7, age_seconds=3600.0)})
    else:
        fact = fact.model_copy(update={"age_seconds": 3600.0})
    await pool.turn(fact)
    happened = "coalesce(started_at, acked_at, resumed_at)"
    assert await pool.sql.fetchval(f"SELECT {happened} = planned_at FROM runs")


async def test_the_first_start_of_a_job_stays_its_first(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    first = await pool.sql.fetchval("SELECT first_started_at FROM job_states")
    await pool.turn(await pool.command(job, "preempt", run=1))
    await pool.turn(node.noticed(f"{job}.1"), node.exited(f"{job}.1", preempted()))
    await pool.turn(node.started(f"{job}.2"))
    row = await pool.sql.fetchrow("SELECT first_started_at, last_started_at FROM job_states")
    assert row["first_started_at"] == first
    assert row["last_started_at"] > first


async def test_a_notice_is_booked_once(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(await pool.command(job, "preempt", run=1), node.noticed(f"{job}.1"))
    state, told = await booked(pool), await events(pool)
    await pool.turn(node.noticed(f"{job}.1"))
    assert (await booked(pool), await events(pool)) == (state, told)


async def test_a_notice_that_is_heard_after_the_end_wakes_nothing(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(await pool.command(job, "cancel"), node.exited(f"{job}.1", ended(143), empty=()))
    state, told = await booked(pool), await events(pool)
    await pool.turn(node.noticed(f"{job}.1"))
    assert (await booked(pool), await events(pool)) == (state, told)


async def test_a_start_that_is_heard_after_the_end_fills_in_times_and_wakes_nothing(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await pool.submit()
    await pool.turn(*await pool.news())
    await pool.turn(node.exited(f"{job}.1", ended(run_seconds=0.0), empty=()))
    assert await pool.state(job) == "SUCCEEDED"
    told = await events(pool)
    await pool.turn(node.started(f"{job}.1"))
    row = await pool.sql.fetchrow("SELECT r.state, r.started_at IS NOT NULL, s.state FROM runs AS r, job_states AS s")
    assert tuple(row) == ("EXITED", True, "SUCCEEDED")
    assert await events(pool) == told
    assert await pool.leases() == [(f"{job}.1", "GPU-a-0", "LEAVING")]


@pytest.mark.parametrize("step", [7, 5])
async def test_only_a_newer_ack_counts(pool: PoolUnderTest, step: int) -> None:
    """A step that was saved is never taken back: what is lost by a preemption is counted from it."""
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(node.acked(f"{job}.1", 7))
    state, told = await booked(pool), await events(pool)
    await pool.turn(node.acked(f"{job}.1", step))
    assert (await booked(pool), await events(pool)) == (state, told)


async def test_a_resume_is_booked_once(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(told_by(node, "resumed", f"{job}.1"))
    state, told = await booked(pool), await events(pool)
    later = Resume(step=8, load_seconds=9.0, age_seconds=0.0)
    await pool.turn(node.report(runs=(RunReport(run_id=f"{job}.1", state="running", resumed=later),)))
    assert (await booked(pool), await events(pool)) == (state, told)


async def test_a_command_that_comes_twice_in_one_batch_is_carried_out_once(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    command = await pool.command(job, "preempt", run=1)
    await pool.turn(command, command)
    assert await pool.outcome(command) == "stopping"
    assert await pool.sql.fetchval("SELECT count(*) FROM preemptions") == 1


async def test_a_priority_given_to_a_job_that_runs_protects_its_run(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(await pool.command(job, "set_priority", 900))
    assert await pool.sql.fetchval("SELECT value FROM runs") == 900
    other = await pool.submit(class_name="high")
    await pool.turn(*await pool.news())
    assert (await pool.state(job), await pool.state(other)) == ("RUNNING", "QUEUED")


async def test_a_job_whose_end_memory_has_forgotten_is_not_run_again(
    pool: PoolUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ends of so many jobs are kept; of older ones the database is asked."""
    monkeypatch.setattr(ledger, "ENDED_JOBS_KEPT", 1)
    node = Node("a", gpus=3)
    await pool.turn(node.report())
    jobs = [await pool.submit() for _ in range(3)]
    told = await pool.news()
    await pool.turn(*told)
    for number in (1, 0, 2):
        await pool.turn(node.exited(f"{jobs[number]}.1", ended()))
    assert list(pool.ledger.ended) == [jobs[2]]
    before = await booked(pool)
    await pool.turn(*told)
    assert await booked(pool) == before
    assert len(pool.ledger.jobs) == 0
