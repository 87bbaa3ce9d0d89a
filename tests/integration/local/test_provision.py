"""The database that services find: migrated, each with its own login."""

import asyncio

import asyncpg
import pytest
import servers
from makeway.local.cluster import DATABASE_ROLES
from makeway.local.postgres import EmbeddedPostgres
from makeway.local.provision import RolesInUse, provision
from makeway.local.servers import ServerProcess
from makeway.local.services import role_dsn


async def login(dsn: str) -> str:
    connection = await asyncpg.connect(dsn)
    try:
        return str(await connection.fetchval("SELECT current_user"))
    finally:
        await connection.close()


def test_each_service_gets_a_login_of_its_own(own_postgres: ServerProcess) -> None:
    assert isinstance(own_postgres.server, EmbeddedPostgres)
    dsn = own_postgres.server.dsn(database="not_there_yet")
    passwords = {role: f"it's {role}" for role in DATABASE_ROLES}
    provision(dsn, passwords)
    provision(dsn, passwords)
    for role, password in passwords.items():
        assert servers.run(login(role_dsn(dsn, role, password))) == role
        with pytest.raises(asyncpg.InvalidPasswordError):
            servers.run(login(role_dsn(dsn, role, "guess")))


def test_a_server_that_another_cluster_is_using_is_refused(own_postgres: ServerProcess) -> None:
    assert isinstance(own_postgres.server, EmbeddedPostgres)
    passwords = {role: f"first {role}" for role in DATABASE_ROLES}
    provision(own_postgres.server.dsn(database="first"), passwords)
    second = own_postgres.server.dsn(database="second")

    async def provision_while_connected() -> None:
        role = DATABASE_ROLES[0]
        connection = await asyncpg.connect(role_dsn(own_postgres.server.dsn(database="first"), role, passwords[role]))  # type: ignore[attr-defined]
        try:
            with pytest.raises(RolesInUse, match=f"as {role} .database first.: each cluster needs a server"):
                await asyncio.to_thread(provision, second, dict.fromkeys(DATABASE_ROLES, "other"))
        finally:
            await connection.close()

    servers.run(provision_while_connected())


async def test_a_test_database_is_migrated_and_its_own(database: servers.Database) -> None:
    connection = await asyncpg.connect(database.role_dsn("makeway_scheduler"))
    try:
        assert await connection.fetchval("SELECT current_database()") == database.name
        assert await connection.fetchval("SELECT count(*) FROM leases") == 0
    finally:
        await connection.close()
