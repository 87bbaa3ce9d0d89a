"""A pool's owner on a database of the test's own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import servers
from makeway_policy.rules import PRESETS
from scheduler_harness import PoolUnderTest, open_pool_under_test


@pytest.fixture
async def pool(database: servers.Database, tmp_path: Path) -> AsyncIterator[PoolUnderTest]:
    """An owner that has taken the pool over, under the policy `plain`."""
    made = await open_pool_under_test(database, tmp_path, PRESETS["plain"])
    await made.take_over()
    yield made
    made.connections.terminate()
    await made.sql.close()
