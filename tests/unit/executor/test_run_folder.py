"""What is kept of a run in its folder, also where a write was cut off."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from makeway_executor import run_folder
from makeway_executor.run_folder import RunFolder
from plans import run_id


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path, run_id(1))
    os.close(made.create())
    return made


def test_of_a_journal_whose_last_line_was_cut_off_the_rest_counts(folder: RunFolder) -> None:
    (folder.path / "journal.jsonl").write_text('{"ack": {"step": 1}}\n{"ack": {"step": 2}}\n{"done": {}}\n{"ack": {"st')
    journal = folder.read_journal()
    assert (journal.ack, journal.resumed, journal.done) == ({"step": 2}, None, True)


def test_a_run_without_a_journal_was_promised_nothing(folder: RunFolder) -> None:
    journal = folder.read_journal()
    assert (journal.ack, journal.resumed, journal.done) == (None, None, False)


def test_an_end_that_could_not_be_written_whole_is_none(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(path: Path, content: bytes, *, mode: int) -> None:
        path.write_bytes(content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_folder, "_write", cut_off)
    with pytest.raises(OSError, match="No space"):
        folder.write_end({"outcome": "lost"})
    assert not (folder.path / "end.json").exists()
    assert folder.read_end() is None


def test_only_one_holds_the_lock_of_a_run(folder: RunFolder) -> None:
    lock = folder.try_lock()
    assert lock is not None
    assert folder.try_lock() is None
    os.close(lock)
    again = folder.try_lock()
    assert again is not None
    os.close(again)


def test_a_run_folder_is_made_once(folder: RunFolder) -> None:
    with pytest.raises(FileExistsError):
        folder.create()
