"""Alembic's environment: runs the numbered SQL files through asyncpg inside one transaction."""

import asyncio

from alembic import context
from sqlalchemy import Connection, pool
from sqlalchemy.ext.asyncio import create_async_engine

_LOCK_KEY = 0x6D616B65776179  # "makeway": two migrations of one database wait for each other


def _run(connection: Connection) -> None:
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_KEY})")
    context.configure(connection=connection, target_metadata=None, transaction_per_migration=False)
    with context.begin_transaction():
        context.run_migrations()


async def _upgrade() -> None:
    url = context.config.attributes["url"]
    connect_args = context.config.attributes["connect_args"]
    engine = create_async_engine(url, connect_args=connect_args, poolclass=pool.NullPool)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_run)
    finally:
        await engine.dispose()


asyncio.run(_upgrade())
