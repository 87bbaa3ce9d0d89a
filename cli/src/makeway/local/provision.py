"""Prepares the database of a local cluster: `python -m makeway.local.provision`, a short-lived process.

It makes the database if it is missing, applies the migrations, and gives each service's role its password. It reads
MAKEWAY_POSTGRES_DSN (a role that may do all this) and MAKEWAY_ROLE_PASSWORDS (JSON: role to password). A process of its
own, so that the supervisor carries neither a migration tool nor a driver.
"""

import asyncio
import json
import os
import sys
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from makeway_schemas.migrate import upgrade

__all__ = ["provision"]


class RolesInUse(Exception):
    """Another cluster's services are connected as the roles that would get new passwords here."""


def provision(dsn: str, role_passwords: dict[str, str]) -> None:
    """Bring the database that `dsn` names to what the services need; safe to repeat. Raises RolesInUse."""
    asyncio.run(_ensure_database(dsn))
    asyncio.run(_check_unused(dsn, list(role_passwords)))
    upgrade(dsn)
    asyncio.run(_set_passwords(dsn, role_passwords))


async def _check_unused(dsn: str, roles: list[str]) -> None:
    """Roles and their passwords belong to the whole server: two clusters there would shut each other out."""
    connection = await asyncpg.connect(dsn)
    try:
        used = await connection.fetchrow(
            "SELECT usename, datname FROM pg_stat_activity WHERE usename = ANY($1::text[]) ORDER BY usename LIMIT 1",
            roles,
        )
    finally:
        await connection.close()
    if used is not None:
        raise RolesInUse(
            f"another cluster is connected to this PostgreSQL server as {used['usename']} "
            f"(database {used['datname']}): each cluster needs a server of its own"
        )


async def _ensure_database(dsn: str) -> None:
    try:
        connection = await asyncpg.connect(dsn)
    except asyncpg.InvalidCatalogNameError:
        name = urlsplit(dsn).path.lstrip("/")
        connection = await asyncpg.connect(urlunsplit(urlsplit(dsn)._replace(path="/postgres")))
        await connection.execute(await connection.fetchval("SELECT format('CREATE DATABASE %I', $1::text)", name))
    await connection.close()


async def _set_passwords(dsn: str, role_passwords: dict[str, str]) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for role, password in role_passwords.items():
            statement = await connection.fetchval(
                "SELECT format('ALTER ROLE %I PASSWORD %L', $1::text, $2::text)", role, password
            )
            await connection.execute(statement)
    finally:
        await connection.close()


def main() -> None:
    """Read the environment, provision, say what failed in one line."""
    try:
        provision(os.environ["MAKEWAY_POSTGRES_DSN"], json.loads(os.environ["MAKEWAY_ROLE_PASSWORDS"]))
    except (OSError, asyncpg.PostgresError, RolesInUse) as error:
        sys.exit(f"the database could not be prepared: {error}")


if __name__ == "__main__":
    main()
