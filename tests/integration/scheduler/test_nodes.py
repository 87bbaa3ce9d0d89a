"""What nodes say of themselves and their GPUs: who may say it, and what outlives the next report."""

from typing import Any

import pytest
from makeway_scheduler.store import Committed
from makeway_schemas.facts import Ack, GpuHealthChanged, GpuReport, PlanNumber, RunReport
from scheduler_harness import CARD_MIB, Node, PoolUnderTest, ended, start_job
from structlog.testing import capture_logs


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


async def test_a_card_that_never_failed_is_as_it_was_when_it_is_said_to_be_well(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    before = dict(await pool.sql.fetchrow("SELECT * FROM gpus"))
    await pool.turn(health(node, healthy=True))
    assert dict(await pool.sql.fetchrow("SELECT * FROM gpus")) == before


async def test_a_card_that_is_lost_stays_so_whatever_is_said_of_its_health(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report(), node.report(gpus=()))
    for healthy in (False, True):
        await pool.turn(health(node, healthy=healthy))
        assert await gpu_rows(pool) == {"GPU-a-0": ("a", "lost")}


async def test_after_a_boot_the_executor_counts_whatever_its_session_is(pool: PoolUnderTest) -> None:
    """Sessions sort by the time since boot, which begins anew."""
    node = Node("a", session="0009")
    await pool.turn(node.report())
    node.session, node.boot_id = "0001", "boot-2"
    await pool.turn(node.report(cpus=5))
    row = await pool.sql.fetchrow("SELECT session, boot_id, cpus FROM nodes")
    assert tuple(row) == ("0001", "boot-2", 5)
    assert pool.plans("a")[-1].session == "0001"


@pytest.mark.parametrize(("read_again", "level"), [(False, "warning"), (True, "debug")])
async def test_a_report_of_a_replaced_executor_is_worth_a_warning_only_where_it_is_new(
    pool: PoolUnderTest, read_again: bool, level: str
) -> None:
    node = Node("a", session="0002")
    await pool.turn(node.report())
    if read_again:
        await pool.take_over()
        pool.cycle.hears = lambda: False
    node.session = "0001"
    with capture_logs() as lines:
        await pool.turn(node.report(cpus=5))
    assert [each["log_level"] for each in lines if "a newer one has replaced" in each["event"]] == [level]


async def test_a_gpu_belongs_to_the_node_that_is_heard(pool: PoolUnderTest) -> None:
    node, other = Node("a"), Node("b", gpus=0)
    await pool.turn(node.report())
    for state in ("READY", "UNKNOWN"):
        assert await pool.sql.fetchval("SELECT state FROM nodes WHERE node_id = 'a'") == state
        await pool.turn(other.report(gpus=(gpu_report("GPU-a-0"),)))
        assert await gpu_rows(pool) == {"GPU-a-0": ("a" if state == "READY" else "b", "ok")}
        pool.ledger.heard_at["a"] -= 16.0
        await pool.turn(other.report(gpus=(gpu_report("GPU-a-0"),)))


async def test_a_gpu_that_its_node_no_longer_shows_is_lost_and_those_of_others_are_not(pool: PoolUnderTest) -> None:
    node, other = Node("a", gpus=2), Node("b")
    await pool.turn(node.report(), other.report())
    await pool.turn(node.report(gpus=(gpu_report("GPU-a-1", index=1),)))
    assert await gpu_rows(pool) == {
        "GPU-a-0": ("a", "lost"),
        "GPU-a-1": ("a", "ok"),
        "GPU-b-0": ("b", "ok"),
    }
    await pool.turn(node.report())
    assert (await gpu_rows(pool))["GPU-a-0"] == ("a", "ok")


async def test_a_cordon_of_a_gpu_outlives_its_nodes_reports(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    await pool.sql.execute("UPDATE gpus SET cordoned = true, version = version + 1")
    await pool.take_over()
    await pool.turn(node.report(gpus=(gpu_report("GPU-a-0", index=7),)))
    await pool.submit()
    await pool.turn(*await pool.news())
    assert tuple(await pool.sql.fetchrow("SELECT gpu_index, cordoned FROM gpus")) == (7, True)
    assert await pool.leases() == []


async def test_a_node_that_has_heard_of_a_higher_number_gets_a_plan_above_it(pool: PoolUnderTest) -> None:
    """As after the database was set back within an epoch: the node would refuse every plan that is lower."""
    node = Node("a")
    await pool.turn(node.report())
    node.plan = PlanNumber(epoch=pool.ledger.epoch, number=99)
    await pool.turn(node.report())
    assert (pool.plans("a")[-1].epoch, pool.plans("a")[-1].number) == (pool.ledger.epoch, 100)


@pytest.mark.parametrize("asks", ["by its number", "by its session", "in words"])
async def test_a_node_without_its_newest_plan_gets_it(pool: PoolUnderTest, asks: str) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    newest = pool.plans("a")[-1]
    node.plan = PlanNumber(epoch=newest.epoch, number=newest.number)
    sent = len(pool.plans("a"))
    await pool.turn(node.report())
    assert len(pool.plans("a")) == sent
    if asks == "by its number":
        node.plan = PlanNumber(epoch=newest.epoch, number=newest.number - 1)
    elif asks == "by its session":
        node.session = "0002"
    await pool.turn(node.report(wants_plan=asks == "in words"))
    assert list(pool.planned("a")) == [f"{job}.1"]
    assert pool.plans("a")[-1].number > newest.number
    assert pool.plans("a")[-1].session == node.session


async def test_an_end_that_nobody_waits_for_any_more_is_no_run_to_stop(pool: PoolUnderTest) -> None:
    """The plan without it says that it is booked."""
    node = Node("a")
    await pool.turn(node.report())
    over = RunReport(run_id="00000000zzzz.1", state="ended", end=ended())
    await pool.turn(node.report(runs=(over,), wants_plan=True))
    assert pool.planned("a") == {}


async def test_a_report_repeats_an_ack_that_was_lost(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    await pool.turn(node.report(runs=(RunReport(run_id=f"{job}.1", state="running", ack=Ack(step=4)),)))
    assert await pool.sql.fetchval("SELECT last_ack_step FROM job_states") == 4


async def test_a_run_that_is_given_up_is_told_to_stop_after_a_database_that_was_away(
    pool: PoolUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a batch that failed has seen must not count as told."""
    node = Node("a")
    await pool.turn(node.report())
    newest = pool.plans("a")[-1]
    node.plan = PlanNumber(epoch=newest.epoch, number=newest.number)
    stray = node.report(runs=(RunReport(run_id="00000000zzzz.1", state="running"),))

    async def away(*_: Any, **__: Any) -> Committed:
        raise ConnectionRefusedError("the database is away")

    with monkeypatch.context() as outage:
        outage.setattr(pool.store, "commit", away)
        with pytest.raises(ConnectionRefusedError):
            await pool.turn(stray)
    await pool.turn()
    assert pool.planned("a")["00000000zzzz.1"].verb == "STOP"
