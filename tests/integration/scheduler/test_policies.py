"""A policy that is applied decides from its batch on: order, values of runs and holds, shares of cards."""

import json
from datetime import timedelta
from typing import Any

import pytest
from makeway_schemas.facts import PolicyApplied
from scheduler_harness import Node, PoolUnderTest, ended

SWAPPED: dict[str, Any] = {
    "preset": "plain",
    "classes": {
        "low": {"value": 600, "own_value_min": 550, "own_value_max": 650},
        "normal": {"value": 200, "own_value_min": 100, "own_value_max": 300},
    },
}
"""low above normal."""


async def running_job(pool: PoolUnderTest, node: Node, **spec: Any) -> str:
    """Submit a job and let it run."""
    job = await pool.submit(**spec)
    await pool.turn(*await pool.news())
    await pool.turn(node.started(f"{job}.1"))
    return job


async def run_value(pool: PoolUnderTest, job: str) -> int:
    return int(await pool.sql.fetchval("SELECT value FROM runs WHERE run_id = $1", f"{job}.1"))


async def events(pool: PoolUnderTest, job: str) -> list[tuple[str, dict[str, Any]]]:
    rows = await pool.sql.fetch("SELECT kind, data FROM job_events WHERE job_id = $1 ORDER BY event_id", job)
    return [(row["kind"], json.loads(row["data"])) for row in rows]


async def test_the_order_of_the_queue_follows_the_new_policy(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    first = await running_job(pool, node, class_name="urgent")
    normal, low = await pool.submit(), await pool.submit(class_name="low")
    await pool.turn(*await pool.news())
    await pool.apply_policy(**SWAPPED)
    await pool.turn()
    await pool.turn(node.exited(f"{first}.1", ended()))
    assert (await pool.state(low), await pool.state(normal)) == ("STARTING", "QUEUED")


async def test_runs_and_holds_take_the_new_value_at_once_and_it_is_told(pool: PoolUnderTest) -> None:
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    low, normal = await running_job(pool, node, class_name="low"), await running_job(pool, node)
    holder = await pool.submit(class_name="high")
    await pool.turn(*await pool.news())
    assert await pool.state(holder) == "RESERVED"
    number = await pool.apply_policy(**SWAPPED | {"classes": SWAPPED["classes"] | {"high": {"value": 850}}})
    await pool.turn()
    assert [await run_value(pool, job) for job in (low, normal, holder)] == [600, 200, 850]
    assert ("revalued", {"policy": number, "before": 500, "value": 200}) in await events(pool, normal)
    assert pool.ledger.state.runs[f"{normal}.1"].v == 200
    assert pool.ledger.policy_id == number


async def test_the_fact_that_one_was_applied_is_enough(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await running_job(pool, node)
    number = await pool.keep_policy(**SWAPPED)
    await pool.turn(PolicyApplied(id=f"admission/policy/{number}", policy_id=number))
    assert await run_value(pool, job) == 200
    await pool.turn(PolicyApplied(id=f"admission/policy/{number}", policy_id=number))
    assert len([kind for kind, _ in await events(pool, job) if kind == "revalued"]) == 1


async def test_a_job_that_could_never_run_is_judged_again(pool: PoolUnderTest) -> None:
    await pool.turn(Node("a").report())
    job = await pool.submit(gpu_type="Big")
    await pool.turn(*await pool.news())
    assert await pool.state(job) == "UNSATISFIABLE"
    await pool.apply_policy(preset="plain", gpu_aliases={"big": ["A100"]})
    await pool.turn()
    assert await pool.state(job) == "STARTING"


async def test_a_waiting_job_may_evict_what_the_former_policy_spared(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    victim = await running_job(pool, node)
    low = await pool.submit(class_name="low")
    await pool.turn(*await pool.news())
    assert (await pool.state(victim), await pool.state(low)) == ("RUNNING", "QUEUED")
    await pool.apply_policy(**SWAPPED)
    await pool.turn()
    assert (await pool.state(victim), await pool.state(low)) == ("STOPPING", "RESERVED")


async def test_a_policy_that_cannot_be_read_leaves_the_former_in_force(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    good = await pool.apply_policy(preset="plain", delta=7)
    await pool.turn()
    for wrong in ({"detla": 3}, {"delta": 90}, {"classes": {"normal": None}}):
        await pool.apply_policy(**wrong)
        await pool.turn()
        assert pool.ledger.policy.delta == 7
    assert pool.ledger.policy_id > good
    await pool.take_over()
    assert pool.ledger.policy.delta == 7


async def test_a_new_owner_decides_by_the_newest_policy_and_revalues_what_an_older_one_decided(
    pool: PoolUnderTest,
) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await running_job(pool, node)
    await pool.apply_policy(preset="plain", classes={"normal": {"value": 400}})
    await pool.take_over()
    await pool.turn(node.report())
    assert await run_value(pool, job) == 400
    assert pool.ledger.policy.name == "custom"


async def test_a_policy_of_a_batch_that_fails_is_taken_again(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await running_job(pool, node)
    before = pool.ledger.policy
    await pool.apply_policy(preset="plain", classes={"normal": {"value": 400}}, max_shares=2)
    real = pool.store.commit

    async def lose(*_arguments: Any, **_options: Any) -> Any:
        raise ConnectionResetError("the database went away")

    pool.store.commit = lose  # type: ignore[method-assign]
    with pytest.raises(ConnectionResetError):
        await pool.turn()
    pool.store.commit = real  # type: ignore[method-assign]
    assert (pool.ledger.policy, pool.ledger.runs[f"{job}.1"].value) == (before, 500)
    await pool.turn()
    assert (pool.ledger.policy.max_shares, await run_value(pool, job)) == (2, 400)


async def test_a_card_takes_the_new_number_of_shares_once_nobody_is_on_it(pool: PoolUnderTest) -> None:
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    job = await running_job(pool, node)
    used = next(gpu for run, gpu, _ in await pool.leases() if run == f"{job}.1")

    async def slots() -> dict[bool, int]:
        return {
            row["gpu_id"] == used: row["capacity_slots"]
            for row in await pool.sql.fetch("SELECT gpu_id, capacity_slots FROM gpus")
        }

    await pool.apply_policy(preset="plain", max_shares=8)
    await pool.turn(node.report())
    assert await slots() == {True: 4, False: 8}
    await pool.turn(node.exited(f"{job}.1", ended()))
    await pool.turn(node.report())
    assert await slots() == {True: 8, False: 8}


@pytest.mark.parametrize("restarted", [False, True])
async def test_past_use_is_read_from_the_runs_that_are_kept(pool: PoolUnderTest, restarted: bool) -> None:
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    for team in ("a", "b"):
        job = await running_job(pool, node, team=team)
        await pool.turn(node.exited(f"{job}.1", ended()))
        hours = 3 if team == "a" else 2
        await pool.sql.execute(
            "UPDATE runs SET planned_at = now() - $2::interval, started_at = now() - $2::interval, "
            "ended_at = now() - interval '1 hour' WHERE job_id = $1",
            job, timedelta(hours=hours),
        )  # fmt: skip
    await pool.apply_policy(order="fair", usage_half_life="1h")
    if restarted:
        await pool.take_over()
    await pool.turn(node.report())
    past = {team: pool.ledger.state.past_use_of(team) for team in ("a", "b")}
    assert past["a"].average == pytest.approx(0.5 - 0.125, abs=0.01)
    assert past["b"].average == pytest.approx(0.5 - 0.25, abs=0.01)


@pytest.mark.parametrize("restarted", [False, True])
async def test_teams_come_in_turn_under_round_robin(pool: PoolUnderTest, restarted: bool) -> None:
    await pool.apply_policy(preset="round-robin")
    node = Node("a")
    await pool.turn(node.report())
    waiting = [await pool.submit(team=team) for team in "aabc"]
    await pool.turn(*await pool.news())
    order = []
    while len(order) < len(waiting):
        ((run_id, _, _),) = await pool.leases()
        order.append(run_id.removesuffix(".1"))
        await pool.turn(node.started(run_id))
        if restarted:
            await pool.take_over()
        await pool.turn(node.exited(run_id, ended()), node.report())
    first, second, *others = waiting
    assert order == [first, *others, second]
