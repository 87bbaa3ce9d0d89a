"""Room for new runs, what has expired, and the plan's number."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from makeway_executor.housekeeping import disk_refusal, expire_checkpoints, writable_cgroup
from makeway_executor.launch import FINISHED_MARK, NodeFolders, mark_finished, prepare
from makeway_executor.plan_number import PlanNumberFile
from makeway_executor.run_folder import RunFolder
from makeway_schemas.facts import RunEnd
from makeway_schemas.states import StopCause
from plans import planned


def test_a_disk_with_room_refuses_nothing_and_a_full_one_says_how_full(tmp_path: Path) -> None:
    assert disk_refusal(tmp_path, 0.0) == ""
    assert "new runs need 101 %" in disk_refusal(tmp_path, 101.0)


def checkpoint(root: Path, job: str, *, finished_days_ago: float | None) -> Path:
    folder = root / job
    folder.mkdir()
    (folder / "step-1").write_text("weights")
    if finished_days_ago is not None:
        (folder / ".finished").touch()
        then = time.time() - finished_days_ago * 86400
        for entry in folder.iterdir():
            os.utime(entry, (then, then))
    return folder


def test_only_checkpoints_of_jobs_that_finished_long_ago_expire(tmp_path: Path) -> None:
    old = checkpoint(tmp_path, "old", finished_days_ago=8)
    kept = [
        checkpoint(tmp_path, "young", finished_days_ago=6),
        checkpoint(tmp_path, "waiting", finished_days_ago=None),
        checkpoint(tmp_path, "running", finished_days_ago=8),
    ]
    assert expire_checkpoints(tmp_path, keep_days=7, in_use={"running"}) == ["old"]
    assert not old.exists()
    assert all(folder.exists() for folder in kept)


def test_what_a_run_on_another_node_saves_does_not_expire(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "goes-on", finished_days_ago=8)
    (folder / "step-2").write_text("weights")
    assert expire_checkpoints(tmp_path, keep_days=7, in_use=()) == []
    assert (folder / "step-1").exists()


@pytest.mark.parametrize(
    ("end", "marked"),
    [
        (RunEnd(outcome="exited", exit_code=0), True),
        (RunEnd(outcome="exited", exit_code=1), True),
        (RunEnd(outcome="exited", exit_code=0, notice_delivered=True, cause=StopCause.PREEMPT), False),
        (RunEnd(outcome="exited", exit_code=0, notice_delivered=True, cause=StopCause.PREEMPT, done=True), True),
        (RunEnd(outcome="exited", signal=9, notice_delivered=True, cause=StopCause.CANCEL), True),
        (RunEnd(outcome="lost"), False),
        (RunEnd(outcome="never_started"), False),
    ],
)
def test_a_job_that_was_pushed_aside_is_not_marked_as_finished(tmp_path: Path, end: RunEnd, marked: bool) -> None:
    run = planned(1, checkpoint=True)
    (tmp_path / run.job_id).mkdir()
    mark_finished(run, end, tmp_path)
    assert (tmp_path / run.job_id / ".finished").exists() is marked


def test_the_number_of_the_newest_plan_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "plan-number"
    first = PlanNumberFile(path)
    assert first.read() == (0, 0)
    first.write((10**15, 7))
    first.write((10**15, 8))
    first.close()
    second = PlanNumberFile(path)
    assert second.read() == (10**15, 8)
    second.close()


def test_a_torn_record_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "plan-number"
    path.write_bytes(b"     12")
    file = PlanNumberFile(path)
    assert file.read() == (0, 0)
    file.close()


def test_nodes_of_one_name_in_two_state_folders_share_no_cgroup(tmp_path: Path) -> None:
    folders = [writable_cgroup("node-1", tmp_path / name) for name in ("one", "two")]
    made = [folder for folder in folders if folder is not None]
    assert len(set(made)) == len(made)
    for folder in made:
        folder.rmdir()


@pytest.mark.parametrize("checkpoint", [True, False])
def test_the_next_run_of_a_job_takes_the_mark_away(tmp_path: Path, checkpoint: bool) -> None:
    """A job that is tried again and then pushed aside may wait for longer than the checkpoints of finished ones."""
    folders = NodeFolders(sockets=tmp_path / "s", checkpoints=tmp_path, cgroup=None, log_head_bytes=1, log_tail_bytes=1)
    run = planned(1, checkpoint=checkpoint)
    (tmp_path / run.job_id).mkdir()
    mark = tmp_path / run.job_id / FINISHED_MARK
    mark.touch()
    prepare(run, RunFolder(tmp_path / "runs", run.run_id), folders, key="k", boot_id="b")
    assert mark.exists() is not checkpoint
