"""The transaction of a batch: who may write, what is locked, and what is compared before anything is written."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import servers

JOB = "00000000zzzz"
ROWS = {"job_states": ("job_id", JOB), "nodes": ("node_id", "n"), "gpus": ("gpu_id", "GPU-0")}
SETUP = f"""
INSERT INTO pools (pool_id, epoch) VALUES ('p', 3), ('other', 7);
INSERT INTO nodes (node_id, pool_id, state, session, boot_id) VALUES ('n', 'p', 'READY', 's', 'b');
INSERT INTO gpus (gpu_id, node_id, gpu_index, type_name, capacity_mib) VALUES ('GPU-0', 'n', 0, 'A100', 81920);
INSERT INTO teams (team_id) VALUES ('default') ON CONFLICT DO NOTHING;
INSERT INTO jobs (job_id, pool_id, team_id, name, class_name, spec, submitted_by)
VALUES ('{JOB}', 'p', 'default', 'n', 'normal', '{{}}', 'tester');
INSERT INTO job_states (job_id, pool_id, team_id, state, queued_since)
VALUES ('{JOB}', 'p', 'default', 'QUEUED', now());
"""


@pytest.fixture
async def connection(database: servers.Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.dsn)
    await connection.execute(SETUP)
    yield connection
    await connection.close()


@pytest.fixture
async def other(database: servers.Database) -> AsyncIterator[asyncpg.Connection]:
    """Somebody else, who waits for no lock."""
    connection = await asyncpg.connect(database.dsn, server_settings={"lock_timeout": "20"})
    yield connection
    await connection.close()


async def commit(
    connection: asyncpg.Connection, table: str = "", *, epoch: int = 3, version: int = 1, skip_locked: bool = True
) -> None:
    """A batch that is about one row of a table and changes nothing."""
    locks: list[Any] = []
    for name, (_, row_id) in ROWS.items():
        locks += [[row_id], [version]] if name == table else [[], []]
    await connection.fetchval(
        "SELECT commit_batch('p', $1, $2, $3, $4, $5, $6, $7, $8, '{}')", epoch, skip_locked, *locks
    )


@pytest.mark.parametrize("epoch", [2, 4, 7])
async def test_only_the_owner_of_the_pool_writes_by_its_present_epoch(
    connection: asyncpg.Connection, epoch: int
) -> None:
    await commit(connection)
    with pytest.raises(asyncpg.PostgresError) as error:
        await commit(connection, epoch=epoch)
    assert error.value.sqlstate == "MW001"


async def test_whoever_takes_the_pool_over_waits_for_what_its_owner_is_committing(
    connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    """Else it would load a pool that a former owner still changes."""
    take_over = "UPDATE pools SET epoch = epoch + 1 WHERE pool_id = 'p'"
    async with connection.transaction():
        await commit(connection)
        with pytest.raises(asyncpg.LockNotAvailableError):
            await other.execute(take_over)
    await other.execute(take_over)
    with pytest.raises(asyncpg.PostgresError) as error:
        await commit(connection)
    assert error.value.sqlstate == "MW001"


@pytest.mark.parametrize("table", ROWS)
async def test_a_row_of_a_batch_is_its_own_until_it_is_committed(
    connection: asyncpg.Connection, other: asyncpg.Connection, table: str
) -> None:
    column, row_id = ROWS[table]
    async with connection.transaction():
        await commit(connection, table)
        with pytest.raises(asyncpg.LockNotAvailableError):
            await other.execute(f"UPDATE {table} SET version = version + 1 WHERE {column} = $1", row_id)


@pytest.mark.parametrize("table", ROWS)
async def test_a_row_that_somebody_else_is_changing_is_a_conflict_at_once(
    connection: asyncpg.Connection, other: asyncpg.Connection, table: str
) -> None:
    async with other.transaction():
        await other.execute(f"UPDATE {table} SET version = version + 1")
        with pytest.raises(asyncpg.PostgresError) as error:
            async with asyncio.timeout(10):
                await commit(connection, table)
    assert error.value.sqlstate == "MW002"


@pytest.mark.parametrize("table", ROWS)
async def test_facts_alone_wait_for_a_row_and_then_look_at_what_it_has_become(
    connection: asyncpg.Connection, other: asyncpg.Connection, table: str
) -> None:
    async with other.transaction():
        await other.execute(f"UPDATE {table} SET version = version + 1")
        waiting = asyncio.create_task(commit(connection, table, skip_locked=False))
        pid = connection.get_server_pid()
        async with asyncio.timeout(10):
            while await other.fetchval("SELECT cardinality(pg_blocking_pids($1))", pid) == 0:
                assert not waiting.done()
                await asyncio.sleep(0.005)
    with pytest.raises(asyncpg.PostgresError) as error:
        await waiting
    assert error.value.sqlstate == "MW003"
    await commit(connection, table, version=2, skip_locked=False)


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("table", ROWS)
async def test_a_row_of_another_version_than_was_seen_is_no_row_to_write(
    connection: asyncpg.Connection, table: str, version: int
) -> None:
    with pytest.raises(asyncpg.PostgresError) as error:
        await commit(connection, table, version=version)
    assert error.value.sqlstate == "MW003"
