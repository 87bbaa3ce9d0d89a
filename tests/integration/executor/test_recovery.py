"""A new executor finds what an earlier one left: runs alive, ends that nobody heard, shims that died."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from makeway_executor import clock
from makeway_executor.reconcile import Phase
from makeway_executor.run import Run
from makeway_executor.run_folder import RunFolder
from makeway_runtime.devices.proc import is_alive
from makeway_schemas.states import StopCause
from node_runs import GPUS, IGNORES, SAVES, NodeRun, planned, python, run_id, shell, stopped, until


@pytest.fixture
async def first(tmp_path: Path, sockets: Path) -> NodeRun:
    return NodeRun(tmp_path, sockets)


@pytest.fixture
async def second(first: NodeRun, tmp_path: Path, sockets: Path) -> AsyncIterator[NodeRun]:
    made = NodeRun(tmp_path, sockets, session="s2")
    yield made
    await made.end_all()


async def test_runs_live_on_and_are_followed_again(first: NodeRun, second: NodeRun) -> None:
    run = planned(1, python(SAVES))
    first.plan(run)
    started = await first.facts.wait(1, "run_started")
    await until(lambda: b"ready\n" in first.log(1))
    first.close()
    second.adopt()
    again = await second.facts.wait(1, "run_started")
    assert (again.pid, again.id) == (started.pid, started.id)
    second.plan(stopped(run))
    end = (await second.facts.wait(1, "run_exited")).end
    assert (end.notice_delivered, end.exit_code) == (True, 0)


async def test_an_end_while_the_executor_was_dead_keeps_its_exit_code(first: NodeRun, second: NodeRun) -> None:
    first.plan(planned(1, shell("read x < /dev/null; sleep 0.1; echo late; exit 9")))
    await first.facts.wait(1, "run_started")
    first.close()
    folder = RunFolder(first.state / "runs", run_id(1))
    await until(folder.read_end)
    second.adopt()
    fact = await second.facts.wait(1, "run_exited")
    assert (fact.end.outcome, fact.end.exit_code, fact.end.log_bytes) == ("exited", 9, 5)
    assert fact.empty_gpus == (GPUS[0],)


async def test_what_happened_meanwhile_is_told_with_the_same_ids(first: NodeRun, second: NodeRun) -> None:
    first.plan(planned(1))
    await first.facts.wait(1, "run_started")
    first.close()
    second.adopt()
    await second.facts.wait(1, "run_started")
    assert first.facts.of(1, "run_started")[0].id == second.facts.of(1, "run_started")[0].id


async def test_a_stop_that_is_repeated_by_the_next_executor_moves_nothing(first: NodeRun, second: NodeRun) -> None:
    run = planned(1, python(IGNORES))
    first.plan(run)
    await until(lambda: b"ready\n" in first.log(1))
    first.plan(stopped(run, grace=1.0))
    await first.facts.wait(1, "notice_delivered")
    first.close()
    second.adopt()
    await second.facts.wait(1, "notice_delivered")
    second.plan(stopped(run, grace=60.0))
    end = (await second.facts.wait(1, "run_exited")).end
    assert end.forced
    assert end.run_seconds < 10


async def test_a_run_whose_shim_died_is_stopped_with_its_grace_and_lost(first: NodeRun) -> None:
    run = planned(1, shell(f'setsid sleep 300 & exec python3 -ISu -c "{SAVES}"'.replace("python3", os.sys.executable)))
    first.plan(run)
    started = await first.facts.wait(1, "run_started")
    await until(lambda: b"ready\n" in first.log(1))
    shim_pid = first.node.runs[run_id(1)].shim_pid
    assert shim_pid is not None
    os.kill(shim_pid, signal.SIGKILL)
    fact = await first.facts.wait(1, "run_exited")
    assert (fact.end.outcome, fact.end.message) == ("lost", "its shim died")
    assert fact.end.run_seconds > 0
    assert not is_alive(started.pid)
    assert fact.empty_gpus == (GPUS[0],)
    await first.end_all()


async def test_what_a_dead_shim_leaves_has_the_grace_of_its_run_to_save(first: NodeRun, tmp_path: Path) -> None:
    save = f"time.sleep(0.3); open('{tmp_path}/saved', 'w').write('whole'); sys.exit()"
    code = SAVES.replace("time.sleep(0.2); os.write(1, b'saved\\n'); sys.exit(0)", save)
    first.plan(planned(1, python(code)))
    await until(lambda: b"ready\n" in first.log(1))
    shim_pid = first.node.runs[run_id(1)].shim_pid
    assert shim_pid is not None
    os.kill(shim_pid, signal.SIGKILL)
    assert (await first.facts.wait(1, "run_exited")).end.outcome == "lost"
    assert (tmp_path / "saved").read_text() == "whole"
    await first.end_all()


async def test_a_main_process_that_wiped_its_environment_is_found_without_its_shim(
    tmp_path: Path, sockets: Path
) -> None:
    node = NodeRun(tmp_path, sockets, cgroups=False)
    node.plan(planned(1, shell("exec env -i /bin/sh -c 'echo ready; exec /bin/sleep 300'")))
    started = await node.facts.wait(1, "run_started")
    await until(lambda: b"ready\n" in node.log(1))
    shim_pid = node.node.runs[run_id(1)].shim_pid
    assert shim_pid is not None
    os.kill(shim_pid, signal.SIGKILL)
    assert (await node.facts.wait(1, "run_exited")).end.outcome == "lost"
    assert not is_alive(started.pid)
    await node.end_all()


async def test_a_shim_that_died_with_the_executor_away_is_found(first: NodeRun, second: NodeRun) -> None:
    first.plan(planned(1))
    started = await first.facts.wait(1, "run_started")
    shim_pid = first.node.runs[run_id(1)].shim_pid
    first.close()
    assert shim_pid is not None
    os.kill(shim_pid, signal.SIGKILL)
    os.waitpid(shim_pid, 0)
    second.adopt()
    assert (await second.facts.wait(1, "run_exited")).end.outcome == "lost"
    assert not is_alive(started.pid)


async def test_a_new_boot_ends_runs_without_an_end(first: NodeRun, tmp_path: Path, sockets: Path) -> None:
    """Another boot id in the run folder stands for the reboot."""
    earlier = NodeRun(tmp_path, sockets, boot="the boot before")
    earlier.plan(planned(1, python(SAVES)))
    await earlier.facts.wait(1, "run_started")
    shim_pid, pid = earlier.node.runs[run_id(1)].shim_pid, earlier.node.runs[run_id(1)].pid
    earlier.close()
    assert shim_pid is not None
    assert pid is not None
    os.kill(shim_pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(shim_pid, 0)
    first.adopt()
    end = (await first.facts.wait(1, "run_exited")).end
    assert (end.outcome, end.message) == ("lost", "the node was restarted")
    await first.end_all()


async def test_a_waiting_run_is_forgotten_and_planned_again(first: NodeRun, second: NodeRun) -> None:
    one, two = planned(1, python(SAVES)), planned(2, shell("true"), after=(run_id(1),))
    first.plan(one, two)
    await until(lambda: b"ready\n" in first.log(1))
    first.close()
    second.adopt()
    await second.facts.wait(1, "run_started")
    second.plan(stopped(one, "cancel"), two)
    assert (await second.facts.wait(1, "run_exited")).end.cause is StopCause.CANCEL
    await second.facts.wait(2, "run_exited")


async def test_an_adopted_run_blocks_its_card(first: NodeRun, second: NodeRun) -> None:
    first.plan(planned(1))
    await first.facts.wait(1, "run_started")
    first.close()
    second.adopt()
    second.plan(planned(1), planned(2, shell("true")))
    assert second.node.runs[run_id(2)].phase is Phase.WAITING
    await second.facts.wait(1, "run_started")
    assert second.node.runs[run_id(2)].phase is Phase.WAITING
    second.plan(stopped(planned(1)), planned(2, shell("true")))
    await second.facts.wait(2, "run_exited")


async def test_what_a_run_has_sent_into_the_background_is_no_stranger_to_the_next_executor(
    first: NodeRun, second: NodeRun
) -> None:
    """Its parent has gone, so it is a child of the run's shim, which this executor has not started."""
    first.plan(planned(1, shell("(sleep 300 & echo $!); echo; exec sleep 300")))
    pid = int((await until(lambda: b"\n\n" in first.log(1) and first.log(1))).split()[0])
    first.close()
    second.adopt()
    await second.facts.wait(1, "run_started")
    (first.state / "sim" / "hooks.json").write_text(json.dumps({GPUS[0]: {"processes": [{"pid": pid}]}}))
    await second.watch.look_for_strangers(GPUS)
    assert second.watch.condition(GPUS[0]) == ("ok", "")


@pytest.mark.parametrize("intent", [None, b"", b"run_id\0cut o"])
async def test_a_start_that_was_cut_off_before_its_shim_gives_its_gpus_back(
    second: NodeRun, tmp_path: Path, intent: bytes | None
) -> None:
    run = planned(1)
    folder = RunFolder(tmp_path / "runs", run_id(1))
    os.close(folder.create())
    if intent is not None:
        (folder.path / "intent").write_bytes(intent)
    second.adopt()
    assert (await second.facts.wait(1, "run_exited")).end.outcome == "never_started"
    second.plan(run)
    await until(lambda: second.facts.of(1, "run_exited")[-1].empty_gpus == (GPUS[0],))
    assert second.facts.of(1, "run_started") == []


async def test_a_run_with_a_spoilt_intent_gives_its_gpus_back_once_they_are_empty(
    first: NodeRun, second: NodeRun
) -> None:
    run = planned(1, shell("exit 0"))
    first.plan(run)
    await first.facts.wait(1, "run_exited")
    first.close()
    folder = RunFolder(first.state / "runs", run_id(1))
    (folder.path / "end.json").unlink()
    (folder.path / "intent").write_bytes(b"spoilt")
    second.adopt()
    assert (await second.facts.wait(1, "run_exited")).end.outcome == "lost"
    second.plan(run)
    await until(lambda: second.facts.of(1, "run_exited")[-1].empty_gpus == (GPUS[0],))


async def test_a_run_with_a_spoilt_intent_keeps_its_gpus_while_something_is_on_them(
    first: NodeRun, second: NodeRun
) -> None:
    run = planned(1, shell("exit 0"))
    first.plan(run)
    await first.facts.wait(1, "run_exited")
    first.close()
    folder = RunFolder(first.state / "runs", run_id(1))
    (folder.path / "end.json").unlink()
    (folder.path / "intent").write_bytes(b"spoilt")
    hooks = first.state / "sim" / "hooks.json"
    hooks.write_text(json.dumps({GPUS[0]: {"processes": [{"pid": 2**22 + 1, "stuck": True}]}}))
    second.adopt()
    await second.facts.wait(1, "run_exited")
    second.plan(run, planned(2, shell("true"), after=(run_id(1),)))
    await until(lambda: len(second.facts.of(1, "run_exited")) == 2)
    assert second.facts.of(1, "run_exited")[-1].empty_gpus == ()
    assert second.facts.kinds(2) == []
    hooks.write_text("{}")
    await second.facts.wait(2, "run_exited")
    assert second.facts.of(1, "gpu_empty") != []


async def test_a_run_that_cannot_be_followed_at_once_is_followed_later(
    first: NodeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach, refusals = first.events.attach, [OSError(24, "Too many open files")]

    def attach_later(run: Run, connection: socket.socket) -> None:
        if refusals:
            raise refusals.pop()
        attach(run, connection)

    monkeypatch.setattr(first.events, "attach", attach_later)
    first.plan(planned(1, shell("exit 3")))
    assert (await first.facts.wait(1, "run_exited")).end.exit_code == 3


async def test_a_stop_that_its_shim_may_not_have_read_is_sent_again(first: NodeRun) -> None:
    run = planned(1, python(SAVES))
    first.plan(run)
    await until(lambda: b"ready\n" in first.log(1))
    here = first.node.runs[run_id(1)]
    assert here.link is not None
    here.link.send = lambda line: True  # type: ignore[method-assign]  # into a buffer that nobody reads any more
    first.plan(stopped(run))
    here.link.close()
    here.link = None
    first.events.on_shim_gone(here)
    assert (await first.facts.wait(1, "run_exited")).end.notice_delivered
    await first.end_all()


async def test_an_end_that_a_shim_wrote_while_nobody_followed_it_is_taken_and_not_written_over(first: NodeRun) -> None:
    first.plan(planned(1, shell("read x < /dev/null; sleep 0.1; exit 9")))
    await first.facts.wait(1, "run_started")
    here = first.node.runs[run_id(1)]
    assert here.link is not None
    here.link.close()
    here.link = None
    await until(here.folder.read_end)
    first.events.on_shim_gone(here)
    fact = await first.facts.wait(1, "run_exited")
    assert (fact.end.outcome, fact.end.exit_code) == ("exited", 9)
    assert (here.folder.read_end() or {})["exit_code"] == 9
    await first.end_all()


async def test_a_shim_that_died_before_it_could_write_what_it_started_leaves_nothing_behind(
    first: NodeRun, second: NodeRun
) -> None:
    first.plan(planned(1))
    started = await first.facts.wait(1, "run_started")
    here = first.node.runs[run_id(1)]
    first.close()
    assert here.shim_pid is not None
    os.kill(here.shim_pid, signal.SIGKILL)
    os.waitpid(here.shim_pid, 0)
    (here.folder.path / "started.json").unlink()
    second.adopt()
    assert (await second.facts.wait(1, "run_exited")).end.outcome == "lost"
    assert not is_alive(started.pid)


async def test_an_end_of_a_former_boot_is_as_old_as_nobody_knows(first: NodeRun, second: NodeRun) -> None:
    """Its times are of another clock; a fact may not come from the future either."""
    first.plan(planned(1, shell("exit 3")))
    await first.facts.wait(1, "run_exited")
    folder = first.node.runs[run_id(1)].folder
    first.close()
    record = {**(folder.read_end() or {}), "boot_id": "the boot before", "emptied": {"boottime_ns": 2**60}}
    folder.write_end(record)
    second.adopt()
    assert (await second.facts.wait(1, "run_exited")).end.exit_code == 3
    assert (second.node.runs[run_id(1)].ended_ns or 0) <= clock.now_ns()


async def test_another_time_limit_counts_from_the_start_of_a_run_that_an_earlier_executor_started(
    first: NodeRun, second: NodeRun
) -> None:
    run = planned(1, time_limit_seconds=1000.0)
    first.plan(run)
    await first.facts.wait(1, "run_started")
    first.close()
    second.adopt()
    await second.facts.wait(1, "run_started")
    started_ns = second.node.runs[run_id(1)].started_ns
    assert started_ns is not None
    second.node.runs[run_id(1)].started_ns = started_ns - 100 * 10**9
    second.plan(run.model_copy(update={"time_limit_seconds": 100.5}))
    end = (await second.facts.wait(1, "run_exited")).end
    assert end.cause is StopCause.TIME_LIMIT


@pytest.mark.parametrize("again", [True, False])
async def test_another_time_limit_reaches_a_run_that_is_not_followed_yet(
    first: NodeRun, second: NodeRun, again: bool
) -> None:
    """The plan is said once; it holds from the run's start. What a later plan has taken back does not."""
    run = planned(1, time_limit_seconds=1000.0)
    first.plan(run)
    await first.facts.wait(1, "run_started")
    first.close()
    path = first.state / "runs" / run_id(1) / "started.json"
    started = json.loads(path.read_bytes())
    path.write_text(json.dumps({**started, "boottime_ns": started["boottime_ns"] - 100 * 10**9}))
    second.adopt()
    second.plan(run.model_copy(update={"time_limit_seconds": 100.01}))
    if again:
        second.plan(run)
    await second.facts.wait(1, "run_started")
    if again:
        second.plan(stopped(run))
    end = (await second.facts.wait(1, "run_exited")).end
    assert end.cause is (StopCause.PREEMPT if again else StopCause.TIME_LIMIT)
