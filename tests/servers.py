"""The real servers that tests run on: embedded PostgreSQL and Kafka, or those that the environment names.

`MAKEWAY_TEST_POSTGRES` is a superuser's DSN, `MAKEWAY_TEST_KAFKA` is `user:password@host:port` or `host:port`. Where
neither an embedded nor a named server can be had, the test fails: a skip would hide that nothing was tested.
"""

import asyncio
import os
import secrets
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg
from makeway.local.kafka import EmbeddedKafka, KafkaSettings, free_ports
from makeway.local.kafka_libraries import cached_libraries, default_cache
from makeway.local.postgres import EmbeddedPostgres, PostgresSettings
from makeway.local.servers import ServerProcess

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaAddress:
    """Where a broker is and how to log in; no username means no login (PLAINTEXT)."""

    bootstrap: str
    username: str | None
    password: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Database:
    """One database: its name and the superuser's DSN for it."""

    name: str
    dsn: str

    def role_dsn(self, role: str) -> str:
        """The DSN of a service's role; its password is its own name (see `set_role_passwords`)."""
        return with_login(self.dsn, role, role)


def embedded_postgres(folder: Path, socket_folder: Path) -> ServerProcess:
    """A PostgreSQL that skips what only a power cut needs; not started."""
    settings = PostgresSettings(
        data_folder=folder / "postgres",
        socket_folder=socket_folder,
        log_path=folder / "postgres.log",
        password=secrets.token_urlsafe(12),
        fast=True,
    )
    return ServerProcess(EmbeddedPostgres(settings))


def embedded_kafka(folder: Path) -> ServerProcess:
    """A Kafka; not started."""
    port, controller_port = free_ports(2)
    settings = KafkaSettings(
        data_folder=folder / "kafka",
        libraries=cached_libraries(default_cache()),
        log_path=folder / "kafka.log",
        port=port,
        controller_port=controller_port,
        username="makeway",
        password=secrets.token_urlsafe(12),
    )
    return ServerProcess(EmbeddedKafka(settings))


def address_of(broker: ServerProcess) -> KafkaAddress:
    """How to reach an embedded Kafka."""
    server = broker.server
    assert isinstance(server, EmbeddedKafka)
    settings = server.settings
    return KafkaAddress(bootstrap=settings.bootstrap, username=settings.username, password=settings.password)


def named_kafka() -> KafkaAddress | None:
    """The broker of MAKEWAY_TEST_KAFKA, if it is set."""
    value = os.environ.get("MAKEWAY_TEST_KAFKA")
    if not value:
        return None
    login, _, bootstrap = value.rpartition("@")
    username, _, password = login.partition(":")
    return KafkaAddress(bootstrap=bootstrap, username=username or None, password=password or None)


def run(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine from a plain fixture, on a loop in a thread of its own: the test's loop stays untouched."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


async def execute(dsn: str, *statements: str) -> None:
    """Run statements one by one, outside a transaction."""
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def set_role_passwords(dsn: str) -> None:
    """Give every makeway role its own name as password: for tests, where the socket is private."""
    connection = await asyncpg.connect(dsn)
    try:
        for row in await connection.fetch(
            "SELECT rolname FROM pg_roles WHERE rolname LIKE 'makeway\\_%' AND rolcanlogin"
        ):
            await connection.execute(f"ALTER ROLE {row['rolname']} PASSWORD '{row['rolname']}'")
    finally:
        await connection.close()


def with_database(dsn: str, name: str) -> str:
    """The same server, another database."""
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{name}"))


def with_login(dsn: str, user: str, password: str) -> str:
    """The same server and database, another login."""
    parts = urlsplit(dsn)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{quote(user)}:{quote(password, safe='')}@{host}"))
