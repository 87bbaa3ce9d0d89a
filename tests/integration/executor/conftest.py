"""Fixtures of the executor's tests."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `import shim_runs` from any test below

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
