"""The log store: every byte once and in order, whatever is sent again, and paths made of ids alone."""

import asyncio
import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from makeway_admission.log_store import LogStore, LogTooLarge

RUN = "0123456789ab.1"


@pytest.fixture
def store(tmp_path: Path) -> LogStore:
    return LogStore(tmp_path / "logs", run_max_bytes=100)


def test_bytes_are_appended_where_they_follow(store: LogStore) -> None:
    assert store.append(RUN, 0, b"abc") == 3
    assert store.append(RUN, 3, b"def") == 6
    assert store.read(RUN, 0, 100) == b"abcdef"
    assert (store.read(RUN, 4, 1), store.read(RUN, 6, 10), store.size(RUN)) == (b"e", b"", 6)


def test_what_is_held_is_skipped_and_a_gap_adds_nothing(store: LogStore) -> None:
    store.append(RUN, 0, b"abc")
    assert store.append(RUN, 0, b"abc") == 3
    assert store.append(RUN, 1, b"bcde") == 5
    assert store.append(RUN, 9, b"xyz") == 5
    assert store.read(RUN, 0, 100) == b"abcde"


@given(st.binary(max_size=60), st.lists(st.tuples(st.integers(0, 70), st.integers(1, 20)), max_size=40))
def test_any_pieces_in_any_order_make_a_beginning_of_the_log(content: bytes, pieces: list[tuple[int, int]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        store = LogStore(Path(folder), run_max_bytes=1000)
        for offset, length in pieces:
            held = store.append(RUN, offset, content[offset : offset + length])
            assert held == store.size(RUN)
        assert content.startswith(store.read(RUN, 0, 1000))


@pytest.mark.parametrize(
    "run", ["../../etc/passwd", "0123456789ab.1\n", "0123456789ab.0", "0123456789ab", "0123456789ab.1/..", "", "x.1"]
)
def test_only_a_run_id_makes_a_path(store: LogStore, tmp_path: Path, run: str) -> None:
    for call in (lambda: store.append(run, 0, b"x"), lambda: store.size(run), lambda: store.read(run, 0, 1)):
        with pytest.raises(ValueError, match="no run id"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_a_log_has_a_most_that_is_kept(store: LogStore) -> None:
    store.append(RUN, 0, b"x" * 100)
    with pytest.raises(LogTooLarge):
        store.append(RUN, 100, b"y")
    assert store.append(RUN, 50, b"x" * 50) == 100


def test_only_the_service_can_read_a_log(store: LogStore, tmp_path: Path) -> None:
    store.append(RUN, 0, b"secret")
    (path,) = tmp_path.rglob("*.log")
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_a_full_disk_keeps_a_beginning_that_can_be_gone_on_from(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_write = os.write
    room = [4]

    def write(descriptor: int, data: bytes) -> int:
        if room[0] == 0:
            raise OSError(errno.ENOSPC, "no space left")
        part = bytes(data)[: room[0]]
        room[0] -= len(part)
        return real_write(descriptor, part)

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="no space"):
        store.append(RUN, 0, b"abcdef")
    room[0] = 100
    assert store.append(RUN, 0, b"abcdef") == 6
    assert store.read(RUN, 0, 100) == b"abcdef"


async def test_readers_are_woken_when_a_log_grows(store: LogStore) -> None:
    bell, other = asyncio.Event(), asyncio.Event()
    with store.watch(RUN, bell), store.watch("0123456789ab.2", other):
        store.append(RUN, 0, b"x")
        assert (bell.is_set(), other.is_set()) == (True, False)
    bell.clear()
    store.append(RUN, 1, b"y")
    assert not bell.is_set()
