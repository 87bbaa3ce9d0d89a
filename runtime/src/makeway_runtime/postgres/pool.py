"""Connections to Postgres: every wait has a limit, on the client and on the server."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import structlog
from asyncpg.pool import Pool, PoolConnectionProxy

from makeway_runtime.errors import CommitUncertain, TransientError
from makeway_runtime.postgres.queries import load_queries
from makeway_runtime.postgres.transient import is_connection_lost, is_transient
from makeway_runtime.settings import DatabaseServiceSettings

_LOG: Final = structlog.get_logger(__name__)

if TYPE_CHECKING:
    # asyncpg's classes are generic for the type checker only.
    Connection = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]
else:
    Connection = asyncpg.Connection | PoolConnectionProxy

_QUERIES: Final = load_queries("makeway_runtime.postgres")

CONNECT_TIMEOUT_SECONDS: Final = 5.0
PING_SECONDS: Final = 5.0
IDLE_CONNECTION_SECONDS: Final = 60.0
# The server notices a dead client host within about 15 s, so that its locks do not outlive it for hours.
_KEEPALIVE: Final = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "3",
    "tcp_keepalives_count": "3",
}


async def open_pool(settings: DatabaseServiceSettings, *, service: str) -> Pool[asyncpg.Record]:
    """Opens a pool with one connection. Raises TransientError when the database is out of reach."""
    with _connecting():
        return await asyncpg.create_pool(
            **_connect_options(settings, service=service),
            min_size=1,
            max_size=settings.postgres_pool_max,
            max_inactive_connection_lifetime=IDLE_CONNECTION_SECONDS,
            init=_set_codecs,
            reset=_leave_as_it_is,
        )


@asynccontextmanager
async def transaction(
    pool: Pool[asyncpg.Record], *, acquire_timeout_seconds: float = 5.0
) -> AsyncIterator[PoolConnectionProxy[asyncpg.Record]]:
    """A transaction on a connection of the pool; commits at the end, rolls back on an error. See `committing`."""
    async with pool.acquire(timeout=acquire_timeout_seconds) as connection, committing(connection):
        yield connection


@asynccontextmanager
async def committing(connection: Connection) -> AsyncIterator[None]:
    """A transaction on `connection` whose outcome is known at the end, or CommitUncertain is raised."""
    block = connection.transaction()
    await block.start()
    try:
        yield
    except BaseException:
        await _roll_back(block)
        raise
    try:
        await block.commit()
    except Exception as error:
        if is_connection_lost(error):
            raise CommitUncertain("the answer to a COMMIT was lost") from error
        raise


class DedicatedConnection:
    """A connection outside the pool, for session advisory locks; `on_lost` is called once when its session ends.

    A pool releases advisory locks whenever a connection goes back to it. The lock is not a fence: between the end of
    the session and `on_lost` another process may own it already, so writes are guarded by an epoch.
    """

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], on_lost: Callable[[], None]) -> None:
        """Use `open`."""
        self.connection = connection
        self._on_lost: Callable[[], None] | None = on_lost
        connection.add_termination_listener(self._ended)
        self._pinging = asyncio.create_task(self._ping())

    @classmethod
    async def open(
        cls, settings: DatabaseServiceSettings, *, service: str, on_lost: Callable[[], None]
    ) -> DedicatedConnection:
        """Connects. Raises TransientError when the database is out of reach."""
        with _connecting():
            connection = await asyncpg.connect(**_connect_options(settings, service=service))
            await _set_codecs(connection)
        return cls(connection, on_lost)

    async def try_lock(self, name: str) -> bool:
        """Takes the session's advisory lock of that name; False when another session has it."""
        return bool(await _QUERIES.try_lock(self.connection, key=lock_key(name)))

    async def close(self) -> None:
        """Ends the session and with it the locks; `on_lost` is not called."""
        self._on_lost = None
        self._pinging.cancel()
        await asyncio.gather(self._pinging, return_exceptions=True)
        try:
            await self.connection.close(timeout=CONNECT_TIMEOUT_SECONDS)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self.connection.terminate()

    def _ended(self, _connection: object) -> None:
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            _LOG.warning("the database session with our locks has ended")
            on_lost()

    async def _ping(self) -> None:
        """A peer that vanished without a word closes no socket: ask now and then, with a limit."""
        while not self.connection.is_closed():
            await asyncio.sleep(PING_SECONDS)
            try:
                async with asyncio.timeout(PING_SECONDS):
                    await _QUERIES.ping(self.connection)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                if "another operation is in progress" in str(error):
                    continue
                self.connection.terminate()
                self._ended(self.connection)
                return


def lock_key(name: str) -> int:
    """Returns the signed 64-bit key of a named advisory lock, the same in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


async def ping(pool: Pool[asyncpg.Record]) -> None:
    """One round trip. Raises what asyncpg raises."""
    async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS), pool.acquire() as connection:
        await _QUERIES.ping(connection)


@contextmanager
def _connecting() -> Iterator[None]:
    """A database that is away is TransientError; a wrong password or name stays what it is."""
    try:
        yield
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        if is_transient(error):
            raise TransientError(f"the database is out of reach: {error!r}") from error
        raise


def _connect_options(settings: DatabaseServiceSettings, *, service: str) -> dict[str, Any]:
    return {
        "dsn": settings.postgres_dsn.get_secret_value(),
        "timeout": CONNECT_TIMEOUT_SECONDS,
        "command_timeout": settings.postgres_command_timeout_seconds,
        "server_settings": {
            "application_name": f"makeway-{service}",
            "timezone": "UTC",
            "lock_timeout": str(settings.postgres_lock_timeout_ms),
            "statement_timeout": str(settings.postgres_statement_timeout_ms),
            "idle_in_transaction_session_timeout": str(settings.postgres_idle_transaction_timeout_ms),
            # Planning with JIT costs milliseconds and never pays for statements this short.
            "jit": "off",
            **_KEEPALIVE,
        },
    }


async def _leave_as_it_is(connection: Connection) -> None:
    """What runs when a connection goes back: nothing of ours changes a session's state.

    asyncpg rolls an open transaction back before this; its own reset (advisory locks, cursors, settings) would cost a
    round trip each time, which is a fifth of a commit. Locks are taken on a `DedicatedConnection`.
    """


async def _set_codecs(connection: Connection) -> None:
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, schema="pg_catalog", encoder=_to_json, decoder=json.loads, format="text")


def _to_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


async def _roll_back(block: Any) -> None:
    try:
        await block.rollback()
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        # The session is gone, and the transaction with it; the error that led here says more.
        _LOG.info("a transaction could not be rolled back", error=repr(error))
