"""Fixtures for every layer.

Servers start when the first test asks for them, once a session; each test has a database and topics of its own.
"""

import itertools
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
import structlog
from makeway.local.private_files import make_runtime_folder
from makeway.local.servers import ServerProcess

sys.path.insert(0, str(Path(__file__).parent))  # `import servers` from any test, whatever folder pytest was started in

import servers

_numbers = itertools.count(1)

# How long an example takes says nothing on a machine that does other things too.
hypothesis.settings.register_profile("makeway", deadline=None)
hypothesis.settings.load_profile("makeway")

# As the services log: by default structlog writes an error with all its values, which takes seconds for a large state.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)


def pytest_configure() -> None:
    """Let children take the signals that whoever runs the tests ignores: `nohup` and a shell's `&` hand that down.

    A handler that does nothing ignores a signal as well, and is no longer there after an exec.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The superuser's DSN of the session's PostgreSQL."""
    named = os.environ.get("MAKEWAY_TEST_POSTGRES")
    if named:
        yield named
        return
    sockets = make_runtime_folder()
    process = servers.embedded_postgres(tmp_path_factory.mktemp("postgres"), sockets)
    try:
        process.start()
        yield process.server.dsn()  # type: ignore[attr-defined]  # it is an EmbeddedPostgres
    finally:
        process.stop()
        process.server.wipe()
        shutil.rmtree(sockets, ignore_errors=True)


@pytest.fixture(scope="session")
def template_database(postgres_server: str) -> str:
    """The name of a database with all migrations applied, copied for each test."""
    from makeway_schemas.migrate import upgrade

    name = f"template_{secrets.token_hex(4)}"
    servers.run(servers.execute(postgres_server, f"CREATE DATABASE {name}"))
    upgrade(servers.with_database(postgres_server, name))
    servers.run(servers.set_role_passwords(postgres_server))
    return name


@pytest.fixture
def new_database(postgres_server: str, request: pytest.FixtureRequest) -> Callable[[], servers.Database]:
    """Makes a migrated database that only this test uses; it is dropped afterwards."""

    def make() -> servers.Database:
        template = request.getfixturevalue("template_database")
        name = f"test_{next(_numbers)}_{secrets.token_hex(3)}"
        servers.run(servers.execute(postgres_server, f"CREATE DATABASE {name} TEMPLATE {template}"))
        drop = f"DROP DATABASE {name} WITH (FORCE)"
        request.addfinalizer(lambda: servers.run(servers.execute(postgres_server, drop)))
        return servers.Database(name=name, dsn=servers.with_database(postgres_server, name))

    return make


@pytest.fixture
def database(new_database: Callable[[], servers.Database]) -> servers.Database:
    """A migrated database of this test's own."""
    return new_database()


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.KafkaAddress]:
    """The session's Kafka."""
    named = servers.named_kafka()
    if named:
        yield named
        return
    process = servers.embedded_kafka(tmp_path_factory.mktemp("kafka"))
    try:
        process.start()
        yield servers.address_of(process)
    finally:
        process.stop()


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[ServerProcess]:
    """A started broker of this test's own, to stop, kill and wipe; `servers.address_of` tells its address."""
    process = servers.embedded_kafka(tmp_path)
    try:
        process.start()
        yield process
    finally:
        process.stop()


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[ServerProcess]:
    """A started PostgreSQL of this test's own, to stop, kill and wipe."""
    sockets = make_runtime_folder()
    process = servers.embedded_postgres(tmp_path, sockets)
    try:
        process.start()
        yield process
    finally:
        process.stop()
        process.server.wipe()
        shutil.rmtree(sockets, ignore_errors=True)


@pytest.fixture
def topic_prefix() -> str:
    """Starts the names of this test's topics, so that tests share a broker without meeting."""
    return f"t{next(_numbers)}-{secrets.token_hex(3)}."
