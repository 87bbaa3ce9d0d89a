"""Fixtures: the stub of the API and the command pointed at it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `import api_stub`, whatever folder pytest was started in

from api_stub import Makeway, StubServer


@pytest.fixture
def server() -> Iterator[StubServer]:
    stub = StubServer()
    yield stub
    stub.close()


@pytest.fixture
def makeway(server: StubServer, tmp_path: Path) -> Makeway:
    """The command, pointed at the stub server."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return Makeway(kept | {"MAKEWAY_URL": server.url, "MAKEWAY_TOKEN": "secret"}, tmp_path)
