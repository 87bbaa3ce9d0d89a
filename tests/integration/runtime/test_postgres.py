"""Pool, transactions and locks on the real database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
import servers
from asyncpg.pool import Pool
from makeway.local.servers import ServerProcess
from makeway_runtime.errors import CommitUncertain, TransientError
from makeway_runtime.postgres.pool import DedicatedConnection, lock_key, open_pool, ping, transaction
from makeway_runtime.postgres.transient import is_connection_lost, is_transient
from runtime_builders import database_settings, eventually

SCRATCH = "CREATE TABLE scratch (id int PRIMARY KEY, body jsonb)"
INSERT = "INSERT INTO scratch (id) VALUES ($1)"
COUNT = "SELECT count(*) FROM scratch"


@asynccontextmanager
async def opened(database: servers.Database, **values: object) -> AsyncIterator[Pool]:
    await servers.execute(database.dsn, SCRATCH)
    pool = await open_pool(database_settings(database.dsn, **values), service="test")
    try:
        yield pool
    finally:
        await asyncio.wait_for(pool.close(), 10)


async def test_json_goes_in_and_out_as_values(database: servers.Database) -> None:
    async with opened(database) as pool:
        await pool.execute("INSERT INTO scratch VALUES (1, $1)", {"a": [1, None, "é"]})
        assert await pool.fetchval("SELECT body FROM scratch") == {"a": [1, None, "é"]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lock_timeout", "500ms"),
        ("statement_timeout", "10s"),
        ("idle_in_transaction_session_timeout", "5s"),
        ("application_name", "makeway-test"),
        ("TimeZone", "UTC"),
    ],
)
async def test_every_session_has_its_limits(name: str, value: str, database: servers.Database) -> None:
    async with opened(database) as pool:
        assert await pool.fetchval(f"SHOW {name}") == value


async def test_a_transaction_commits_at_its_end_and_rolls_back_on_an_error(database: servers.Database) -> None:
    async with opened(database) as pool:
        async with transaction(pool) as connection:
            await connection.execute(INSERT, 1)

        async def fail() -> None:
            async with transaction(pool) as connection:
                await connection.execute(INSERT, 2)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await pool.fetchval(COUNT) == 1


async def test_a_pool_without_a_free_connection_says_so_in_time(database: servers.Database) -> None:
    async with opened(database, postgres_pool_max=1) as pool, pool.acquire():
        with pytest.raises(TimeoutError):
            async with transaction(pool, acquire_timeout_seconds=0.05):
                pass


SLOW_COMMIT = """
CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(20); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON scratch DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION dawdle()
"""


async def test_a_lost_answer_to_commit_is_uncertain(database: servers.Database) -> None:
    async with opened(database) as pool:
        await servers.execute(database.dsn, SLOW_COMMIT)

        async def write() -> None:
            async with transaction(pool) as connection:
                await connection.execute(INSERT, 1)

        writing = asyncio.create_task(write())
        observer = await asyncpg.connect(database.dsn)
        kill = (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE query = 'COMMIT;' AND wait_event = 'PgSleep' AND datname = current_database()"
        )
        async with asyncio.timeout(20):
            while await observer.fetchval(kill) == 0:
                await asyncio.sleep(0.01)
        await observer.close()
        with pytest.raises(CommitUncertain) as caught:
            await writing
        assert not is_transient(caught.value), "repeating it blindly could apply it twice"
        await ping(pool)


REFUSE_AT_COMMIT = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE check_violation; END $$;
CREATE CONSTRAINT TRIGGER refusing AFTER INSERT ON scratch DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION refuse()
"""


async def test_a_commit_that_the_database_refuses_is_not_uncertain(database: servers.Database) -> None:
    async with opened(database) as pool:
        await servers.execute(database.dsn, REFUSE_AT_COMMIT)
        with pytest.raises(asyncpg.CheckViolationError):
            async with transaction(pool) as connection:
                await connection.execute(INSERT, 1)


async def test_a_held_row_and_a_deadlock_are_transient(database: servers.Database) -> None:
    async with opened(database) as pool:
        await pool.execute(INSERT, 1)
        async with transaction(pool) as holder:
            await holder.execute("UPDATE scratch SET body = '1' WHERE id = 1")
            with pytest.raises(asyncpg.LockNotAvailableError) as caught:
                await pool.execute("UPDATE scratch SET body = '2' WHERE id = 1")
        assert is_transient(caught.value)
        assert is_transient(asyncpg.DeadlockDetectedError("x"))
        assert not is_transient(asyncpg.UniqueViolationError("x"))


async def test_an_idle_transaction_is_ended_and_the_whole_of_it_may_be_repeated(database: servers.Database) -> None:
    async with opened(database, postgres_idle_transaction_timeout_ms=50) as pool:

        async def dawdle() -> None:
            async with transaction(pool) as connection:
                await connection.execute(INSERT, 1)
                await eventually(lambda: connection.is_closed())
                await connection.execute(INSERT, 2)

        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)) as caught:
            await dawdle()
        assert is_transient(caught.value)
        assert is_connection_lost(caught.value)
        assert await pool.fetchval(COUNT) == 0


async def test_one_session_has_the_lock_and_the_next_gets_it_when_the_first_ends(database: servers.Database) -> None:
    settings, lost = database_settings(database.dsn), asyncio.Event()
    first = await DedicatedConnection.open(settings, service="test", on_lost=lost.set)
    second = await DedicatedConnection.open(settings, service="test", on_lost=lambda: None)
    try:
        assert await first.try_lock("pool/default")
        assert not await second.try_lock("pool/default")
        await servers.execute(database.dsn, f"SELECT pg_terminate_backend({first.connection.get_server_pid()})")
        await asyncio.wait_for(lost.wait(), 10)
        assert await second.try_lock("pool/default")
    finally:
        await first.close()
        await second.close()


async def test_closing_is_not_losing(database: servers.Database) -> None:
    calls: list[str] = []
    owner = await DedicatedConnection.open(
        database_settings(database.dsn), service="test", on_lost=lambda: calls.append("lost")
    )
    await owner.close()
    assert calls == []
    assert lock_key("pool/a") != lock_key("pool/b")


async def test_a_pool_goes_on_after_the_database_was_restarted(
    own_postgres: ServerProcess,
) -> None:
    dsn: str = own_postgres.server.dsn()  # type: ignore[attr-defined]
    pool = await open_pool(database_settings(dsn), service="test")
    try:
        await asyncio.to_thread(own_postgres.restart)
        try:
            await ping(pool)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            assert is_transient(error)  # noqa: PT017 - whether the pool had noticed yet is the system's choice
        await ping(pool)
        own_postgres.kill()
        with pytest.raises(TransientError):
            await open_pool(database_settings(dsn), service="test")
    finally:
        pool.terminate()


async def test_a_connection_left_in_a_transaction_is_rolled_back_when_it_is_given_back(
    database: servers.Database,
) -> None:
    async with opened(database, postgres_pool_max=1) as pool:
        left_open = await pool.acquire()
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        await left_open.execute("BEGIN")
        await left_open.execute(INSERT, 1)
        await pool.release(left_open)
        assert await pool.fetchval(COUNT) == 0


async def test_a_wrong_password_is_not_taken_for_a_database_that_is_away(database: servers.Database) -> None:
    wrong = servers.with_login(database.dsn, "makeway_telemetry", "guess")
    with pytest.raises(asyncpg.InvalidPasswordError):
        await open_pool(database_settings(wrong), service="test")
