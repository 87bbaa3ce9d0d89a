"""What nodes say of themselves and their GPUs: who may say it, and what outlives the next report."""

import pytest
from makeway_schemas.facts import GpuHealthChanged, GpuReport
from scheduler_harness import CARD_MIB, Node, PoolUnderTest, ended, start_job


def gpu_report(gpu_id: str, condition: str = "ok", *, index: int = 0) -> GpuReport:
    reason = "" if condition == "ok" else "said its node"
    return GpuReport(
        gpu_id=gpu_id, index=index, type_name="A100", vram_mib=CARD_MIB, condition=condition, reason=reason
    )


def health(node: Node, *, healthy: bool, gpu_id: str = "GPU-a-0") -> GpuHealthChanged:
    reason = "" if healthy else "XID 79"
    return GpuHealthChanged(
        id="health", node_id=node.name, session="sampler", gpu_id=gpu_id, healthy=healthy, reason=reason
    )


async def gpu_rows(pool: PoolUnderTest) -> dict[str, tuple[str, str]]:
    rows = await pool.sql.fetch("SELECT gpu_id, node_id, condition FROM gpus")
    return {row["gpu_id"]: (row["node_id"], row["condition"]) for row in rows}


async def test_a_card_that_has_failed_gets_no_new_run_until_it_is_well_again(pool: PoolUnderTest) -> None:
    """Its node shows it all the while as one that nobody uses: only the driver's events tell of the fault."""
    node = Node("a")
    await pool.turn(node.report())
    await pool.turn(health(node, healthy=False))
    await pool.turn(node.report())
    job = await pool.submit()
    await pool.turn(*await pool.news())
    await pool.take_over()
    await pool.turn(node.report())
    assert (await pool.leases(), await pool.state(job)) == ([], "QUEUED")
    assert "XID 79" in await pool.sql.fetchval("SELECT reason FROM gpus")
    await pool.turn(health(node, healthy=True))
    assert await pool.leases() == []  # whether it is empty says its node
    await pool.turn(node.report())
    assert await pool.leases() == [(f"{job}.1", "GPU-a-0", "LIVE")]


@pytest.mark.parametrize("condition", ["quarantined", "occupied", "lost"])
async def test_a_card_that_is_well_again_is_what_its_node_says_of_it(pool: PoolUnderTest, condition: str) -> None:
    node = Node("a")
    await pool.turn(node.report())
    await pool.turn(health(node, healthy=False))
    await pool.turn(node.report(gpus=(gpu_report("GPU-a-0", condition),)))
    await pool.turn(health(node, healthy=True))
    assert await gpu_rows(pool) == {"GPU-a-0": ("a", "lost" if condition == "lost" else "quarantined")}
    await pool.turn(node.report(gpus=(gpu_report("GPU-a-0", condition),)))
    assert await gpu_rows(pool) == {"GPU-a-0": ("a", condition)}


async def test_a_new_boot_makes_a_card_well_until_it_is_told_otherwise(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    await pool.turn(health(node, healthy=False))
    node.boot_id = "boot-2"
    await pool.turn(node.report())
    assert await gpu_rows(pool) == {"GPU-a-0": ("a", "ok")}


async def test_a_run_on_a_card_that_fails_goes_on(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(health(node, healthy=False))
    assert await pool.state(job) == "RUNNING"
    assert await pool.leases() == [(f"{job}.1", "GPU-a-0", "LIVE")]
    await pool.turn(node.exited(f"{job}.1", ended()))
    assert await pool.state(job) == "SUCCEEDED"
    assert await pool.leases() == []


async def test_a_node_says_nothing_of_the_health_of_anothers_card(pool: PoolUnderTest) -> None:
    node, other = Node("a"), Node("b", gpus=0)
    await pool.turn(node.report(), other.report())
    await pool.turn(health(other, healthy=False))
    assert await gpu_rows(pool) == {"GPU-a-0": ("a", "ok")}


async def test_a_card_that_is_lost_stays_so_whatever_is_said_of_its_health(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report(), node.report(gpus=()))
    for healthy in (False, True):
        await pool.turn(health(node, healthy=healthy))
        assert await gpu_rows(pool) == {"GPU-a-0": ("a", "lost")}
