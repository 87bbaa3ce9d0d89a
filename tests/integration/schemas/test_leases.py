"""Law 1 in the database: oversell is refused by constraint, whatever statement tries it."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
import servers

CARD_MIB = 81920


@pytest.fixture
async def connection(database: servers.Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.dsn)
    await connection.execute("INSERT INTO pools (pool_id) VALUES ('p')")
    await connection.execute(
        "INSERT INTO nodes (node_id, pool_id, state, session, boot_id) VALUES ('n', 'p', 'READY', 's', 'b')"
    )
    await connection.execute(
        "INSERT INTO gpus (gpu_id, node_id, gpu_index, type_name, capacity_mib) "
        f"SELECT 'GPU-' || i, 'n', i, 'A100', {CARD_MIB} FROM generate_series(0, 3) AS i"
    )
    yield connection
    await connection.close()


async def add_run(connection: asyncpg.Connection, run_id: str) -> None:
    await connection.execute(
        "INSERT INTO runs (run_id, job_id, run_number, pool_id, node_id, state, value, gpus, planned_at) "
        "VALUES ($1, split_part($1, '.', 1), 1, 'p', 'n', 'PLANNED', 1, '[]', now())",
        run_id,
    )


async def lease(
    connection: asyncpg.Connection, run_id: str, state: str, *, gpu: str = "GPU-0", mib: int = CARD_MIB, slots: int = 4
) -> None:
    await connection.execute(
        "INSERT INTO leases (run_id, gpu_id, state, vram_mib, slots) VALUES ($1, $2, $3, $4, $5)",
        run_id, gpu, state, mib, slots,
    )  # fmt: skip


async def sums(connection: asyncpg.Connection, gpu: str = "GPU-0") -> tuple[int, int, int]:
    row = await connection.fetchrow("SELECT live_mib, leaving_mib, next_mib FROM gpus WHERE gpu_id = $1", gpu)
    return tuple(row)


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ("LIVE", "LIVE", False),
        ("LIVE", "LEAVING", False),
        ("LEAVING", "LEAVING", False),
        ("LIVE", "NEXT", False),
        ("NEXT", "NEXT", False),
        ("LEAVING", "NEXT", True),
    ],
)
async def test_two_whole_cards_fit_one_gpu_only_as_leaving_and_next(
    connection: asyncpg.Connection, first: str, second: str, fits: bool
) -> None:
    await add_run(connection, "a.1")
    await add_run(connection, "b.1")
    await lease(connection, "a.1", first)
    if fits:
        await lease(connection, "b.1", second)
        return
    with pytest.raises(asyncpg.CheckViolationError, match="no_oversell"):
        await lease(connection, "b.1", second)


async def test_shares_fit_up_to_the_last_mib_and_slot(connection: asyncpg.Connection) -> None:
    for name in ("a.1", "b.1", "c.1"):
        await add_run(connection, name)
    await lease(connection, "a.1", "LIVE", mib=CARD_MIB - 100, slots=1)
    await lease(connection, "b.1", "LIVE", mib=100, slots=1)
    with pytest.raises(asyncpg.CheckViolationError):
        await lease(connection, "c.1", "LIVE", mib=1, slots=1)
    with pytest.raises(asyncpg.CheckViolationError):
        await lease(connection, "c.1", "LIVE", mib=0, slots=3)


@pytest.mark.parametrize("order", [("a.1", "b.1"), ("b.1", "a.1")])
async def test_a_swap_of_states_in_one_statement_passes_in_every_row_order(
    connection: asyncpg.Connection, order: tuple[str, str]
) -> None:
    for name in order:
        await add_run(connection, name)
    await lease(connection, order[0], "LEAVING")
    await lease(connection, order[1], "NEXT")
    await connection.execute("UPDATE leases SET state = CASE state WHEN 'LEAVING' THEN 'NEXT' ELSE 'LEAVING' END")
    assert await sums(connection) == (0, CARD_MIB, CARD_MIB)


async def test_next_becomes_live_only_when_its_predecessor_is_released(connection: asyncpg.Connection) -> None:
    await add_run(connection, "a.1")
    await add_run(connection, "b.1")
    await lease(connection, "a.1", "LEAVING")
    await lease(connection, "b.1", "NEXT")
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute("UPDATE leases SET state = 'LIVE' WHERE run_id = 'b.1'")
    await connection.execute("DELETE FROM leases WHERE run_id = 'a.1'")
    await connection.execute("UPDATE leases SET state = 'LIVE' WHERE run_id = 'b.1'")
    assert await sums(connection) == (CARD_MIB, 0, 0)


async def test_of_two_concurrent_grants_on_one_gpu_exactly_one_is_committed(
    connection: asyncpg.Connection, database: servers.Database
) -> None:
    other = await asyncpg.connect(database.dsn)
    try:
        for number in range(20):
            await add_run(connection, f"a{number}.1")
            await add_run(connection, f"b{number}.1")
            outcomes = await asyncio.gather(
                lease(connection, f"a{number}.1", "LIVE"), lease(other, f"b{number}.1", "LIVE"), return_exceptions=True
            )
            refused = [outcome for outcome in outcomes if outcome is not None]
            assert [type(each) for each in refused] == [asyncpg.CheckViolationError]
            await connection.execute("DELETE FROM leases")
    finally:
        await other.close()


async def test_a_lease_on_an_unknown_gpu_is_refused(connection: asyncpg.Connection) -> None:
    await add_run(connection, "a.1")
    with pytest.raises(asyncpg.PostgresError, match="not registered"):
        await lease(connection, "a.1", "LIVE", gpu="GPU-unknown")


async def test_a_job_has_one_unended_run(connection: asyncpg.Connection) -> None:
    await add_run(connection, "a.1")
    with pytest.raises(asyncpg.UniqueViolationError, match="one_unended_run_a_job"):
        await connection.execute(
            "INSERT INTO runs (run_id, job_id, run_number, pool_id, node_id, state, value, gpus, planned_at) "
            "VALUES ('a.2', 'a', 2, 'p', 'n', 'PLANNED', 1, '[]', now())"
        )


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE gpus SET live_mib = 0",
        "UPDATE leases SET vram_mib = 1",
        "UPDATE jobs SET name = 'x'",
        "DELETE FROM runs",
        "INSERT INTO teams (team_id) VALUES ('t')",
        "UPDATE team_progress SET settled = 0",
        "SELECT apply_gpu_deltas('{}', '{}', '{}', '{}')",
        "TRUNCATE leases",
    ],
)
async def test_the_scheduler_may_not(connection: asyncpg.Connection, statement: str) -> None:
    await connection.execute("SET ROLE makeway_scheduler")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE job_states SET state = 'QUEUED'",
        "DELETE FROM leases",
        "INSERT INTO runs (run_id) VALUES ('a.1')",
        "UPDATE jobs SET name = 'x'",
        "UPDATE pools SET epoch = 0",
    ],
)
async def test_admission_may_not(connection: asyncpg.Connection, statement: str) -> None:
    await connection.execute("SET ROLE makeway_admission")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(statement)


async def test_a_terminal_state_never_changes(connection: asyncpg.Connection) -> None:
    await connection.execute(
        "INSERT INTO job_states (job_id, pool_id, team_id, state, ended_at) VALUES ('a', 'p', 't', 'SUCCEEDED', now())"
    )
    with pytest.raises(asyncpg.PostgresError, match="stays so"):
        await connection.execute("UPDATE job_states SET state = 'QUEUED', ended_at = NULL, queued_since = now()")


async def test_the_number_of_settled_jobs_follows_every_move(connection: asyncpg.Connection) -> None:
    async def settled() -> int:
        return await connection.fetchval("SELECT coalesce(sum(settled), 0) FROM team_progress WHERE team_id = 't'")

    await connection.execute(
        "INSERT INTO job_states (job_id, pool_id, team_id, state, queued_since) "
        "VALUES ('a', 'p', 't', 'QUEUED', now()), ('b', 'p', 't', 'QUEUED', now()), ('c', 'p', 't', 'STARTING', now())"
    )
    assert await settled() == 1
    await connection.execute("UPDATE job_states SET state = 'RUNNING' WHERE job_id IN ('a', 'c')")
    assert await settled() == 2
    await connection.execute("UPDATE job_states SET state = 'QUEUED'")
    assert await settled() == 0
