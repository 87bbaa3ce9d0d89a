"""Commands that come late or in another order than they were given: what was said last holds."""

import json
from typing import Any

import pytest
from makeway_schemas.facts import CommandIssued
from scheduler_harness import Node, PoolUnderTest

OVERTAKEN = "refused: a newer command about the same was carried out before it"


async def waiting_job(pool: PoolUnderTest) -> str:
    job = await pool.submit()
    await pool.turn(*await pool.news())
    return job


async def limits(pool: PoolUnderTest, job: str, **values: float | None) -> CommandIssued:
    command_id = await pool.sql.fetchval(
        "INSERT INTO commands (pool_id, job_id, command, arguments, issued_by) "
        "VALUES ('default', $1, 'set_limits', $2::jsonb, 'tester') RETURNING command_id",
        job, json.dumps({"limits": values}),
    )  # fmt: skip
    return next(fact for fact in await pool.news() if isinstance(fact, CommandIssued) and fact.command_id == command_id)


@pytest.mark.parametrize("way", ["told", "found", "together"])
async def test_an_older_priority_that_comes_late_does_not_replace_a_newer_one(pool: PoolUnderTest, way: str) -> None:
    job = await waiting_job(pool)
    older, newer = await pool.command(job, "set_priority", 400), await pool.command(job, "set_priority", 600)
    if way == "together":
        await pool.turn(newer, older)
        assert (await pool.outcome(older), await pool.outcome(newer)) == ("set", "set")
    else:
        await pool.turn(newer)
        await pool.turn(*([older] if way == "told" else await pool.news()))
        assert (await pool.outcome(older), await pool.outcome(newer)) == (OVERTAKEN, "set")
    assert pool.ledger.jobs[job].manual_priority == 600
    assert await pool.news() == []


async def test_limits_are_overtaken_only_by_the_same_limits(pool: PoolUnderTest) -> None:
    job = await waiting_job(pool)
    run_time, both = await limits(pool, job, time_limit=60.0), await limits(pool, job, time_limit=1.0, deadline=None)
    newer = await limits(pool, job, deadline=None)
    for command, outcome in ((newer, "set"), (both, OVERTAKEN), (run_time, "set")):
        await pool.turn(command)
        assert await pool.outcome(command) == outcome
    assert pool.ledger.jobs[job].amendments == {"deadline": None, "time_limit": 60.0}


@pytest.mark.parametrize(
    ("first", "then", "outcome", "drain"),
    [
        ("drain", "uncordon", OVERTAKEN, "no"),
        ("cordon", "uncordon", OVERTAKEN, "no"),
        ("uncordon", "drain", OVERTAKEN, "gently"),
        ("drain", "cordon", "draining", "gently"),
    ],
)
async def test_an_older_word_about_a_node_does_not_take_back_a_newer_one(
    pool: PoolUnderTest, first: str, then: str, outcome: str, drain: str
) -> None:
    await pool.turn(Node("a").report())
    late, newer = await pool.node_command("a", first), await pool.node_command("a", then)
    await pool.turn(newer)
    await pool.turn(late)
    assert await pool.outcome(late) == outcome
    assert await pool.sql.fetchval("SELECT drain FROM nodes") == drain


async def test_a_newer_command_that_was_refused_overtakes_nothing(pool: PoolUnderTest) -> None:
    job = await waiting_job(pool)
    older, newer = await pool.command(job, "set_priority", 400), await pool.command(job, "set_priority", 600)
    await pool.sql.execute(
        "INSERT INTO applied_commands (command_id, outcome) VALUES ($1, 'refused: for a test')", newer.command_id
    )
    await pool.turn(older)
    assert await pool.outcome(older) == "set"


async def test_commands_about_other_jobs_overtake_nothing(pool: PoolUnderTest) -> None:
    job, other = await waiting_job(pool), await waiting_job(pool)
    older: Any = await pool.command(job, "set_priority", 400)
    await pool.turn(await pool.command(other, "set_priority", 600))
    await pool.turn(older)
    assert await pool.outcome(older) == "set"


async def test_a_priority_and_limits_do_not_overtake_each_other(pool: PoolUnderTest) -> None:
    job = await waiting_job(pool)
    priority, deadline = await pool.command(job, "set_priority", 400), await limits(pool, job, deadline=None)
    time_limit, newest = await limits(pool, job, time_limit=60.0), await pool.command(job, "set_priority", 600)
    for command in (deadline, priority, newest, time_limit):
        await pool.turn(command)
        assert await pool.outcome(command) == "set"
