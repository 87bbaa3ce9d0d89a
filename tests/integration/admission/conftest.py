"""A running admission on the session's servers, one of its own for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import admission_harness as harness
import pytest
import servers


@pytest.fixture
async def admission(
    tmp_path: Path, database: servers.Database, kafka_server: servers.KafkaAddress
) -> AsyncIterator[harness.Admission]:
    """Admission with PostgreSQL and Kafka."""
    async with harness.running(harness.settings_for(tmp_path, database, kafka_server), database) as running:
        yield running


@pytest.fixture
async def lone_admission(tmp_path: Path, database: servers.Database) -> AsyncIterator[harness.Admission]:
    """Admission with PostgreSQL alone: its broker is out of reach."""
    async with harness.running(harness.settings_for(tmp_path, database, harness.NO_KAFKA), database) as running:
        yield running


@pytest.fixture
def tls_file() -> Path:
    """A certificate for localhost, valid for a century, with its key."""
    return Path(__file__).with_name("localhost.pem")
