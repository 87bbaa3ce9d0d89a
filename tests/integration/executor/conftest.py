"""Fixtures of the executor's tests."""

from __future__ import annotations

import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import servers

sys.path.insert(0, str(Path(__file__).parent))  # `import shim_runs` from any test below

from desk import Desk
from shim_runs import Shims


@pytest.fixture
def sockets() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="mw"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def shims(tmp_path: Path, sockets: Path) -> Iterator[Shims]:
    root = tmp_path / "runs"
    root.mkdir()
    made = Shims(root, sockets)
    yield made
    made.close()


@pytest.fixture
async def desk(tmp_path: Path, sockets: Path, kafka_server: servers.KafkaAddress) -> AsyncIterator[Desk]:
    """An executor of its own node, and what it is told and tells."""
    name = secrets.token_hex(4)
    made = Desk(tmp_path, sockets, kafka_server, node=f"node-{name}", pool=f"pool-{name}")
    await made.open()
    yield made
    await made.close()
