"""What lets held jobs go on: another policy, also one that a take-over finds, and other rights of their team."""

import json
from dataclasses import replace

import pytest
from scheduler_harness import PoolUnderTest


async def held_job(pool: PoolUnderTest) -> str:
    """A job that is held after ten lost runs."""
    job = await pool.submit()
    await pool.turn(*await pool.news())
    record = replace(pool.ledger.jobs[job], infrastructure_failures=10)

    def lose() -> None:
        pool.ledger.jobs.put(job, record)
        pool.cycle._hold(job, "ten runs in a row were lost")

    await pool.cycle.steps.change(lose)
    assert await pool.state(job) == "HELD"
    return job


async def released(pool: PoolUnderTest, job: str) -> list[str]:
    """Why the job was let go on, each time."""
    rows = await pool.sql.fetch(
        "SELECT data FROM job_events WHERE job_id = $1 AND kind = 'released' ORDER BY event_id", job
    )
    return [json.loads(row["data"])["reason"] for row in rows]


async def take_over(pool: PoolUnderTest) -> None:
    await pool.take_over()
    await pool.turn()
    await pool.turn()


@pytest.mark.parametrize("applied", [False, True])
async def test_a_take_over_under_the_same_policy_releases_nobody(pool: PoolUnderTest, applied: bool) -> None:
    await pool.turn()
    if applied:
        await pool.apply_policy(preset="plain", delta=7)
        await pool.turn()
    job = await held_job(pool)
    for _ in range(2):
        await take_over(pool)
        assert (await pool.state(job), await released(pool, job)) == ("HELD", [])
    assert pool.ledger.jobs[job].infrastructure_failures == 10


@pytest.mark.parametrize("applied", [False, True])
async def test_a_policy_applied_while_no_scheduler_ran_releases_once(pool: PoolUnderTest, applied: bool) -> None:
    await pool.turn()
    if applied:
        await pool.apply_policy(preset="plain", delta=7)
        await pool.turn()
    job = await held_job(pool)
    number = await pool.keep_policy(preset="plain", delta=9)
    for _ in range(2):
        await take_over(pool)
        assert await pool.state(job) in ("QUEUED", "UNSATISFIABLE")
        assert await released(pool, job) == [f"policy {number} was applied"]


async def test_another_policy_of_the_settings_releases_once(pool: PoolUnderTest) -> None:
    await pool.turn()
    job = await held_job(pool)
    pool.policy = replace(pool.policy, delta=9)
    for _ in range(2):
        await take_over(pool)
        assert await released(pool, job) == ["the policy of the settings has changed"]


async def test_a_policy_whose_batch_was_not_committed_still_releases_after_the_take_over(pool: PoolUnderTest) -> None:
    await pool.turn()
    job = await held_job(pool)
    number = await pool.apply_policy(preset="plain", delta=9)
    real = pool.store.commit

    async def lose(*_arguments: object, **_options: object) -> None:
        raise ConnectionResetError("the database went away")

    pool.store.commit = lose  # type: ignore[assignment, method-assign]
    with pytest.raises(ConnectionResetError):
        await pool.turn()
    pool.store.commit = real  # type: ignore[method-assign]
    assert (await pool.state(job), pool.ledger.policy_in_force.policy_id) == ("HELD", 0)
    await take_over(pool)
    assert await released(pool, job) == [f"policy {number} was applied"]


async def test_what_a_team_uses_of_its_month_releases_nobody_and_another_right_does(pool: PoolUnderTest) -> None:
    job = await held_job(pool)
    team = pool.ledger.state.team("default")
    for used in (1.0, 2.0):
        pool.ledger.new_teams = (replace(team, gpu_hours_used=used),)
        await pool.turn()
        assert pool.ledger.state.team("default").gpu_hours_used == used
        assert (await pool.state(job), await released(pool, job)) == ("HELD", [])
    pool.ledger.new_teams = (replace(team, limit=5.0),)
    await pool.turn()
    assert await released(pool, job) == ["the rights of its team have changed"]
