"""Where the runs of a job were lost it is not tried again for a while; a scheduler that takes over knows that."""

import json

import pytest
from makeway_schemas.facts import GpuHealthChanged, NodeReport, RunEnd
from scheduler_harness import Node, PoolUnderTest, ended, start_job

LOST = RunEnd(outcome="lost", run_seconds=0.1)


async def node_of(pool: PoolUnderTest, run_id: str) -> str | None:
    return await pool.sql.fetchval("SELECT node_id FROM runs WHERE run_id = $1", run_id)


async def avoidance(pool: PoolUnderTest, job: str) -> tuple[list[str], list[str]]:
    found = json.loads(await pool.sql.fetchval("SELECT avoidance FROM job_states WHERE job_id = $1", job))
    return found.get("nodes", []), found.get("gpus", [])


async def two_nodes_one_full(pool: PoolUnderTest) -> tuple[Node, Node, str, str]:
    """A job on node a, and another one on node b, each of one GPU."""
    first, second = Node("a"), Node("b")
    await pool.turn(first.report())
    job = await start_job(pool, first)
    await pool.turn(second.report())
    other = await start_job(pool, second)
    return first, second, job, other


async def test_a_job_whose_run_was_lost_runs_on_another_node(pool: PoolUnderTest) -> None:
    first, second = Node("a"), Node("b")
    await pool.turn(first.report())
    job = await start_job(pool, first)
    await pool.turn(second.report())
    await pool.turn(first.exited(f"{job}.1", LOST))
    assert await node_of(pool, f"{job}.2") == "b"


async def test_a_job_waits_for_another_node_for_a_while_whoever_takes_over(pool: PoolUnderTest) -> None:
    first, second, job, _ = await two_nodes_one_full(pool)
    await pool.turn(first.exited(f"{job}.1", LOST))
    assert (await pool.state(job), await avoidance(pool, job)) == ("QUEUED", (["a"], []))
    await pool.take_over()
    await pool.turn(first.report(), second.report())
    assert await pool.state(job) == "QUEUED"
    await pool.sql.execute(
        "UPDATE job_states SET avoidance = jsonb_set(avoidance, '{until}', '1.0'), version = version + 1 "
        "WHERE job_id = $1",
        job,
    )
    await pool.take_over()
    await pool.turn(first.report(), second.report())
    assert await node_of(pool, f"{job}.2") == "a"


async def test_a_job_returns_to_its_node_as_soon_as_nothing_else_could_run_it(pool: PoolUnderTest) -> None:
    first, _, job, _ = await two_nodes_one_full(pool)
    await pool.turn(first.exited(f"{job}.1", LOST))
    assert await pool.state(job) == "QUEUED"
    pool.ledger.heard_at["b"] -= 16.0
    await pool.turn(first.report())
    assert await node_of(pool, f"{job}.2") == "a"


async def test_the_job_of_a_node_that_was_declared_dead_and_came_back_runs_there(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    pool.ledger.heard_at["a"] -= 16.0
    await pool.turn()
    await pool.turn(await pool.node_command("a", "dead"))
    assert (await pool.state(job), await avoidance(pool, job)) == ("QUEUED", (["a"], []))
    await pool.turn(node.report())
    assert await node_of(pool, f"{job}.2") == "a"


async def test_a_person_who_resumes_a_job_gives_it_all_nodes_back(pool: PoolUnderTest) -> None:
    first, _, job, _ = await two_nodes_one_full(pool)
    await pool.sql.execute(
        "UPDATE job_states SET infrastructure_failures = 9, version = version + 1, "
        """avoidance = '{"nodes": ["a"], "gpus": [], "until": 1e12}' WHERE job_id = $1""",
        job,
    )
    await pool.take_over()
    await pool.turn(first.report(), Node("b").report())
    await pool.turn(first.exited(f"{job}.1", LOST))
    assert (await pool.state(job), await avoidance(pool, job)) == ("HELD", (["a"], []))
    await pool.turn(await pool.command(job, "resume"))
    assert (await node_of(pool, f"{job}.2"), await avoidance(pool, job)) == ("a", ([], []))


def fault(node: Node, gpu_id: str) -> GpuHealthChanged:
    return GpuHealthChanged(
        id="health", node_id=node.name, session="sampler", gpu_id=gpu_id, healthy=False, reason="XID 79"
    )


def without_first_card(node: Node) -> NodeReport:
    report = node.report()
    return report.model_copy(update={"gpus": report.gpus[1:]})


@pytest.mark.parametrize("word", ["a fault", "missing"])
@pytest.mark.parametrize("end", [ended(1), LOST], ids=["failed", "lost"])
async def test_the_end_of_a_run_whose_card_has_failed_is_not_the_jobs_own(
    pool: PoolUnderTest, end: RunEnd, word: str
) -> None:
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(fault(node, "GPU-a-0") if word == "a fault" else without_first_card(node))
    await pool.turn(node.exited(f"{job}.1", end))
    row = await pool.sql.fetchrow("SELECT state, own_failures, infrastructure_failures, message FROM job_states")
    assert tuple(row)[:3] == ("STARTING", 0, 1)
    assert await pool.sql.fetchval("SELECT end_cause FROM runs WHERE run_number = 1") == "gpu_lost"
    assert await avoidance(pool, job) == ([], ["GPU-a-0"])
    assert [lease for lease in await pool.leases() if lease[0] == f"{job}.2"] == [(f"{job}.2", "GPU-a-1", "LIVE")]


async def test_a_job_that_fails_beside_a_card_that_has_failed_has_failed_itself(pool: PoolUnderTest) -> None:
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(fault(node, "GPU-a-1"))
    await pool.turn(node.exited(f"{job}.1", ended(1)))
    assert await pool.state(job) == "FAILED"


async def test_why_a_job_waits_says_what_it_avoids(pool: PoolUnderTest) -> None:
    first, _, job, _ = await two_nodes_one_full(pool)
    await pool.turn(first.exited(f"{job}.1", LOST))
    told = await pool.sql.fetchval(
        "SELECT detail FROM decisions WHERE job_id = $1 AND choice = 'wait' ORDER BY decision_id DESC LIMIT 1", job
    )
    assert json.loads(told)["gpus"] == {"avoided after a loss": 1, "in use": 1}
    assert any("it avoids a, where a run of it was lost" in each for each in json.loads(told)["would_help"])
