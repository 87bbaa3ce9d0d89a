"""Checkpoints are whole or absent, the newest is found, and an older run spoils nothing."""

import os
from pathlib import Path

import numpy as np
import pytest
from makeway.job import CheckpointFolder, Superseded
from makeway.job.checkpoint import take_snapshot


def steps(folder: Path) -> list[int]:
    """The steps kept in a folder, in order."""
    return sorted(int(path.stem.rpartition("-")[2]) for path in folder.glob("*.checkpoint"))


def test_what_was_saved_comes_back_with_arrays_bit_for_bit(tmp_path: Path) -> None:
    generator = np.random.Generator(np.random.PCG64(3))
    state = {"w": generator.standard_normal(5), "random": generator.bit_generator.state, "rate": 0.1, "order": [1, 2]}
    CheckpointFolder(tmp_path, run=1).write(take_snapshot(7, state, epoch=2))
    found = CheckpointFolder(tmp_path, run=2).newest()
    assert found is not None
    assert (found.step, found.epoch, found.run, found.load_seconds >= 0) == (7, 2, 1, True)
    assert found.state["w"].tobytes() == state["w"].tobytes()
    assert found.state["random"] == state["random"]
    assert (found.state["rate"], found.state["order"]) == (0.1, [1, 2])


def test_a_snapshot_does_not_change_with_the_program(tmp_path: Path) -> None:
    weights = np.zeros(3)
    snapshot = take_snapshot(1, {"w": weights})
    weights += 1
    folder = CheckpointFolder(tmp_path, run=1)
    folder.write(snapshot)
    found = folder.newest()
    assert found is not None
    assert found.state["w"].tolist() == [0, 0, 0]


def test_only_the_last_ones_are_kept(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, run=1, keep=2)
    for step in (1, 2, 3, 10):
        folder.write(take_snapshot(step, step))
    assert steps(tmp_path) == [3, 10]


def test_an_empty_folder_has_none(tmp_path: Path) -> None:
    assert CheckpointFolder(tmp_path / "new" / "folder", run=1).newest() is None


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-1], lambda raw: raw[:30], lambda raw: raw[:-4] + b"XXXX", lambda _: b""]
)
def test_a_damaged_checkpoint_is_skipped_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: object
) -> None:
    folder = CheckpointFolder(tmp_path, run=1)
    folder.write(take_snapshot(1, "older"))
    folder.write(take_snapshot(2, "newer"))
    path = tmp_path / "run-1-step-2.checkpoint"
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    found = folder.newest()
    assert found is not None
    assert found.state == "older"
    assert "damaged" in capsys.readouterr().err


def test_a_half_written_file_is_never_taken_for_a_checkpoint(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, run=1)
    folder.write(take_snapshot(1, "whole"))
    (tmp_path / ".run-1-step-2.checkpoint.77").write_bytes(b"{")
    found = folder.newest()
    assert found is not None
    assert found.step == 1


def test_an_older_run_can_neither_save_nor_open_once_a_newer_one_was_here(tmp_path: Path) -> None:
    paused = CheckpointFolder(tmp_path, run=1)
    paused.write(take_snapshot(5, "from run 1"))
    newer = CheckpointFolder(tmp_path, run=2)
    newer.write(take_snapshot(6, "from run 2"))
    with pytest.raises(Superseded, match="run 2 owns"):
        paused.write(take_snapshot(9, "too late"))
    with pytest.raises(Superseded):
        CheckpointFolder(tmp_path, run=1)
    found = newer.newest()
    assert found is not None
    assert found.state == "from run 2"
    assert not list(tmp_path.glob(".run-*"))


def test_a_newer_runs_checkpoint_counts_more_than_a_later_step_of_an_older_run(tmp_path: Path) -> None:
    CheckpointFolder(tmp_path, run=1).write(take_snapshot(100, "old"))
    newer = CheckpointFolder(tmp_path, run=2)
    newer.write(take_snapshot(60, "went on from an older one"))
    found = newer.newest()
    assert found is not None
    assert found.step == 60


def test_without_a_number_each_opening_is_the_next_run(tmp_path: Path) -> None:
    first = CheckpointFolder(tmp_path)
    second = CheckpointFolder(tmp_path)
    assert (first.run, second.run) == (1, 2)
    with pytest.raises(Superseded):
        first.write(take_snapshot(1, "x"))


def test_a_full_disk_leaves_the_older_checkpoint_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CheckpointFolder(tmp_path, run=1)
    folder.write(take_snapshot(1, "kept"))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        folder.write(take_snapshot(2, "lost"))
    monkeypatch.undo()
    assert steps(tmp_path) == [1]
    assert not list(tmp_path.glob(".run-*"))
