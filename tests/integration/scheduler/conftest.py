"""A pool's owner on a database of the test's own."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import servers
from makeway_policy.rules import Policy
from scheduler_harness import PoolUnderTest, open_pool_under_test


def plain() -> Policy:
    """The default classes without minimum runs and daily budgets: what is asked for happens at once."""
    policy = Policy()
    classes = {
        name: replace(each, minimum_run_seconds=0.0, preemptions_per_day=None) for name, each in policy.classes.items()
    }
    return replace(policy, classes=classes)


@pytest.fixture
async def pool(database: servers.Database, tmp_path: Path) -> AsyncIterator[PoolUnderTest]:
    """An owner that has taken the pool over, under the policy `plain()`."""
    made = await open_pool_under_test(database, tmp_path, plain())
    await made.take_over()
    yield made
    made.connections.terminate()
    await made.sql.close()
