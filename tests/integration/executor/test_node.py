"""What a node makes of plans: with real shims and processes, on simulated cards."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from makeway_executor import housekeeping
from makeway_schemas.plans import Launch, LeasedGpu
from makeway_schemas.states import StopCause
from node_runs import (
    GPUS,
    IGNORES,
    NODE,
    SAVES,
    NodeRun,
    planned,
    python,
    run_id,
    shell,
    stopped,
    until,
    withdrawn,
)


@pytest.fixture
async def node(tmp_path: Path, sockets: Path) -> AsyncIterator[NodeRun]:
    made = NodeRun(tmp_path, sockets)
    yield made
    await made.end_all()


async def test_a_planned_run_starts_ends_and_goes_once_it_is_booked(node: NodeRun) -> None:
    run = planned(1, shell("echo hello; exit 3"))
    node.plan(run)
    fact = await node.facts.wait(1, "run_exited")
    assert (fact.end.outcome, fact.end.exit_code, fact.end.log_bytes) == ("exited", 3, 6)
    assert fact.empty_gpus == (GPUS[0],)
    assert node.facts.kinds(1) == ["run_started", "run_exited"]
    assert node.log(1) == b"hello\n"
    node.plan(run)  # not booked yet: nothing starts again
    assert node.facts.kinds(1) == ["run_started", "run_exited"]
    node.plan()
    assert node.node.runs == {}
    await until(lambda: not (node.state / "runs" / run_id(1)).exists())


async def test_a_run_is_booked_once_however_long_its_log_keeps_it_here(node: NodeRun) -> None:
    """Else every plan would begin the time anew for which a log is kept that cannot be sent."""
    booked: list[str] = []
    node.node.on_booked = lambda run: booked.append(run.run_id)
    node.plan(planned(1, shell("true")))
    await node.facts.wait(1, "run_exited")
    for _ in range(3):
        node.plan()
    assert booked == [run_id(1)]


async def test_a_job_gets_its_environment_and_nothing_of_the_agents(node: NodeRun) -> None:
    os.environ["SECRET_OF_THE_AGENT"] = "x"
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    launch = python(code).model_copy(update={"env": {"MINE": "ä b"}})
    node.plan(planned(1, launch, gpu=1, grace_seconds=7.5, traceparent=f"00-{'a' * 32}-{'b' * 16}-01"))
    await node.facts.wait(1, "run_exited")
    env = json.loads(node.log(1))
    assert "SECRET_OF_THE_AGENT" not in env
    assert env["MINE"] == "ä b"
    assert env["CUDA_VISIBLE_DEVICES"] == GPUS[1]
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert (env["MAKEWAY_JOB_ID"], env["MAKEWAY_RUN"], env["MAKEWAY_GPUS"]) == ("000000000001", "1", "1")
    assert (env["MAKEWAY_VRAM_MIB"], env["MAKEWAY_GRACE_SECONDS"]) == ("81920", "7.5")
    assert env["MAKEWAY_CHECKPOINT_DIR"].endswith("checkpoints/000000000001")
    assert env["TRACEPARENT"] == f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.mark.parametrize(
    ("script", "output"),
    [
        ("echo $((40 + 2))\n", b"42\n"),
        ("#!/bin/sh -e\nfalse\necho never\n", b""),
        ("echo '$(id)' \"`echo x`\"\n", None),
    ],
)
async def test_a_script_runs_by_its_shebang_or_the_shell(node: NodeRun, script: str, output: bytes | None) -> None:
    node.plan(planned(1, Launch(script=script)))
    await node.facts.wait(1, "run_exited")
    assert node.log(1) == (b"$(id) x\n" if output is None else output)


@pytest.mark.parametrize(
    ("launch", "says"),
    [
        (Launch(command=("/no/such/program",)), "program /no/such/program: No such file or directory (ENOENT)"),
        (Launch(command=("true",), working_dir="/no/such"), "working folder /no/such: No such file or directory"),
        (Launch(command=("a\0b",)), "NUL"),
        (Launch(command=()), "command is empty"),
        (Launch(), "neither command nor script"),
    ],
)
async def test_what_cannot_start_fails_by_name(node: NodeRun, launch: Launch, says: str) -> None:
    node.plan(planned(1, launch))
    fact = await node.facts.wait(1, "run_exited")
    assert fact.end.outcome == "start_failed"
    assert says in fact.end.message
    assert fact.empty_gpus == (GPUS[0],)
    assert node.facts.kinds(1) == ["run_exited"]


async def test_a_job_that_takes_the_folder_of_sockets_away_hurts_no_later_job(node: NodeRun) -> None:
    node.plan(planned(1, shell('rm -rf "$(dirname "$MAKEWAY_CONTROL")"; exit 3')))
    assert (await node.facts.wait(1, "run_exited")).end.exit_code == 3
    node.plan(planned(2, shell('test -S "$MAKEWAY_CONTROL"')))
    end = (await node.facts.wait(2, "run_exited")).end
    assert (end.outcome, end.exit_code) == ("exited", 0)


async def test_a_run_that_its_node_cannot_start_is_lost_and_not_failed(node: NodeRun) -> None:
    shutil.rmtree(node.sockets)
    node.sockets.write_text("a file stands where the sockets have to go")
    node.plan(planned(1))
    fact = await node.facts.wait(1, "run_exited")
    assert (fact.end.outcome, fact.end.exit_code) == ("lost", None)
    assert str(node.sockets) in fact.end.message
    assert fact.empty_gpus == (GPUS[0],)
    node.sockets.unlink()
    node.sockets.mkdir()


async def test_stop_gives_notice_and_the_end_says_so(node: NodeRun) -> None:
    run = planned(1, python(SAVES))
    node.plan(run)
    await until(lambda: b"ready\n" in node.log(1))
    node.plan(stopped(run))
    node.plan(stopped(run))
    notice = await node.facts.wait(1, "notice_delivered")
    assert (notice.cause, notice.grace_seconds) == (StopCause.PREEMPT, 10)
    fact = await node.facts.wait(1, "run_exited")
    assert (fact.end.notice_delivered, fact.end.exit_code, fact.end.cause) == (True, 0, StopCause.PREEMPT)
    assert len(node.facts.of(1, "notice_delivered")) == 1
    assert node.log(1).endswith(b"saved\n")


async def test_acks_resume_and_done_are_told(node: NodeRun) -> None:
    code = (
        "import os, socket, json\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(os.environ['MAKEWAY_CONTROL']); f = s.makefile('rb')\n"
        "def say(**m): s.sendall(json.dumps(m).encode() + b'\\n'); assert json.loads(f.readline())['ok']\n"
        "say(op='resumed', step=3, load_seconds=0.5); say(op='ack', step=4, bytes=10, fraction=0.5, epoch=1)\n"
        "say(op='done')"
    )
    node.plan(planned(1, python(code)))
    end = (await node.facts.wait(1, "run_exited")).end
    assert node.facts.kinds(1) == ["run_started", "run_resumed", "checkpoint_acked", "run_exited"]
    assert (end.done, end.exit_code, end.ack.step) == (True, 0, 4)
    assert node.facts.of(1, "checkpoint_acked")[0].ack.fraction == 0.5


async def test_a_run_that_is_stopped_before_it_was_seen_never_starts(node: NodeRun, tmp_path: Path) -> None:
    run = planned(1, shell(f"touch {tmp_path}/ran"))
    node.plan(stopped(run, "cancel"))
    fact = await node.facts.wait(1, "run_exited")
    assert (fact.end.outcome, fact.end.cause) == ("never_started", StopCause.CANCEL)
    assert fact.empty_gpus == (GPUS[0],)
    node.plan(run)
    node.plan(run)
    assert not (tmp_path / "ran").exists()
    assert node.facts.kinds(1) == ["run_exited"]


async def test_a_tombstone_outlives_the_executor(node: NodeRun, tmp_path: Path, sockets: Path) -> None:
    run = planned(1, shell(f"touch {tmp_path}/ran"))
    node.plan(stopped(run, "cancel"))
    await node.facts.wait(1, "run_exited")
    following = NodeRun(tmp_path, sockets, session="s2")
    following.adopt()
    fact = await following.facts.wait(1, "run_exited")
    assert fact.end.outcome == "never_started"
    following.plan(run)
    await asyncio.sleep(0)
    assert following.facts.kinds(1) == ["run_exited"]
    following.close()


async def test_a_stale_plan_is_refused_and_so_it_is_after_a_restart(
    node: NodeRun, tmp_path: Path, sockets: Path
) -> None:
    assert node.plan(planned(1), number=5)
    await node.facts.wait(1, "run_started")
    assert not node.plan(number=4)
    assert not node.plan(number=9, epoch=0)
    assert run_id(1) in node.node.runs
    following = NodeRun(tmp_path, sockets, session="s2")
    assert following.node.applied == (1, 5)
    assert not following.plan(number=4)
    following.close()


async def test_nothing_starts_from_a_plan_for_another_session(node: NodeRun) -> None:
    node.plan(planned(1), session="somebody else's")
    assert node.node.wants_plan
    assert node.node.runs == {}
    node.plan(planned(1))
    assert not node.node.wants_plan
    await node.facts.wait(1, "run_started")


async def test_a_stop_from_a_plan_for_another_session_counts(node: NodeRun) -> None:
    run = planned(1)
    node.plan(run)
    await node.facts.wait(1, "run_started")
    node.plan(stopped(run), session="somebody else's")
    assert (await node.facts.wait(1, "run_exited")).end.notice_delivered


async def test_the_next_run_starts_by_itself_once_its_predecessor_is_gone(node: NodeRun) -> None:
    first, second = planned(1, python(SAVES)), planned(2, shell("true"), after=(run_id(1),))
    node.plan(first)
    await until(lambda: b"ready\n" in node.log(1))
    node.plan(stopped(first), second)
    assert run_id(2) in node.node.runs
    await node.facts.wait(2, "run_exited")
    told = [(fact.run_id, fact.kind) for fact in node.facts.told]
    assert told.index((run_id(1), "run_exited")) < told.index((run_id(2), "run_started"))


async def test_a_next_run_that_is_cancelled_never_starts(node: NodeRun, tmp_path: Path) -> None:
    first, second = planned(1, python(SAVES)), planned(2, shell(f"touch {tmp_path}/ran"), after=(run_id(1),))
    node.plan(first)
    await until(lambda: b"ready\n" in node.log(1))
    node.plan(stopped(first), second)
    node.plan(stopped(first), stopped(second, "cancel"))
    assert (await node.facts.wait(2, "run_exited")).end.outcome == "never_started"
    await node.facts.wait(1, "run_exited")
    assert not (tmp_path / "ran").exists()


async def test_a_withdrawn_run_that_waits_is_buried_and_one_that_runs_goes_on(node: NodeRun) -> None:
    first, second = planned(1), planned(2, after=(run_id(1),))
    node.plan(first, second)
    await node.facts.wait(1, "run_started")
    node.plan(withdrawn(first), withdrawn(second))
    assert (await node.facts.wait(2, "run_exited")).end.outcome == "never_started"
    assert node.facts.kinds(1) == ["run_started"]


async def test_two_whole_cards_runs_never_share_one_though_the_plan_forgot_to_say_after(node: NodeRun) -> None:
    first = planned(1, python(SAVES))
    node.plan(first, planned(2, shell("true")))
    await until(lambda: b"ready\n" in node.log(1))
    assert node.facts.kinds(2) == []
    node.plan(stopped(first), planned(2, shell("true")))
    await node.facts.wait(2, "run_exited")


async def test_runs_with_a_part_of_a_card_share_it(node: NodeRun) -> None:
    part = (LeasedGpu(gpu_id=GPUS[0], vram_mib=1000, whole=False),)
    node.plan(planned(1, gpus=part), planned(2, gpus=part))
    await node.facts.wait(1, "run_started")
    await node.facts.wait(2, "run_started")


async def test_a_shared_card_is_empty_of_a_run_though_another_is_on_it(node: NodeRun) -> None:
    part = (LeasedGpu(gpu_id=GPUS[0], vram_mib=1000, whole=False),)
    node.plan(planned(1, gpus=part), planned(2, shell("read x < gate || true"), gpus=part))
    await node.facts.wait(1, "run_started")
    assert (await node.facts.wait(2, "run_exited")).empty_gpus == (GPUS[0],)


async def test_a_run_that_ignores_the_notice_is_killed_after_its_grace(node: NodeRun) -> None:
    run = planned(1, python(IGNORES))
    node.plan(run)
    await until(lambda: b"ready\n" in node.log(1))
    node.plan(stopped(run, grace=0.5))
    end = (await node.facts.wait(1, "run_exited")).end
    assert (end.forced, end.signal) == (True, 9)


async def test_a_time_limit_can_be_changed_by_a_plan(node: NodeRun) -> None:
    run = planned(1, time_limit_seconds=100.0)
    node.plan(run)
    await node.facts.wait(1, "run_started")
    node.plan(run.model_copy(update={"time_limit_seconds": 0.2}))
    end = (await node.facts.wait(1, "run_exited")).end
    assert end.cause is StopCause.TIME_LIMIT


async def test_a_node_that_takes_no_runs_buries_what_is_planned_and_says_why(node: NodeRun) -> None:
    node.refusal = "only 1 % of the disk is free"
    node.plan(planned(1))
    end = (await node.facts.wait(1, "run_exited")).end
    assert (end.outcome, end.message) == ("never_started", "only 1 % of the disk is free")


async def test_a_cancel_during_a_slow_start_wins(tmp_path: Path, sockets: Path) -> None:
    node = NodeRun(tmp_path, sockets, start_delay=0.3)
    run = planned(1, shell(f"touch {tmp_path}/ran"))
    node.plan(run)
    node.plan(run)
    node.plan(stopped(run, "cancel"), planned(2, shell("true"), gpu=1))
    assert (await node.facts.wait(1, "run_exited")).end.outcome == "never_started"
    await node.facts.wait(2, "run_exited")
    assert not (tmp_path / "ran").exists()
    await node.end_all()


async def test_a_gpu_with_a_stuck_process_is_quarantined_and_given_back_after_a_probation(
    tmp_path: Path, sockets: Path
) -> None:
    node = NodeRun(tmp_path, sockets, quarantine=0.1)
    run = planned(1)
    node.plan(run)
    await node.facts.wait(1, "run_started")
    hooks = tmp_path / "sim" / "hooks.json"
    hooks.write_text(json.dumps({GPUS[0]: {"processes": [{"pid": 2**22 + 1, "stuck": True}]}}))
    node.plan(stopped(run), planned(2, after=(run_id(1),)))
    assert (await node.facts.wait(1, "run_exited")).empty_gpus == ()
    await until(lambda: node.watch.condition(GPUS[0])[0] == "quarantined")
    assert node.facts.kinds(2) == []
    hooks.write_text("{}")
    assert (await node.facts.wait(1, "gpu_empty")).gpu_id == GPUS[0]
    assert node.watch.condition(GPUS[0]) == ("quarantined", "empty again, in probation")
    await node.facts.wait(2, "run_started")
    await node.end_all()


async def test_an_end_is_told_once_and_does_not_wait_for_a_slow_driver(node: NodeRun) -> None:
    answers, ask = asyncio.Event(), node.devices.processes

    async def slowly(uuid: str) -> Any:
        await answers.wait()
        return await ask(uuid)

    node.devices.processes = slowly  # type: ignore[method-assign]
    node.plan(planned(1, shell("exit 3")), planned(2, after=(run_id(1),)))
    fact = await node.facts.wait(1, "run_exited")
    assert (fact.end.exit_code, fact.empty_gpus) == (3, ())
    assert node.facts.kinds(2) == []
    answers.set()
    assert (await node.facts.wait(1, "gpu_empty")).gpu_id == GPUS[0]
    await node.facts.wait(2, "run_started")
    assert node.facts.kinds(1) == ["run_started", "run_exited", "gpu_empty"]


async def test_a_stranger_makes_a_card_occupied_for_as_long_as_it_is_there(node: NodeRun) -> None:
    hooks = node.state / "sim" / "hooks.json"
    hooks.parent.mkdir()
    hooks.write_text(json.dumps({GPUS[0]: {"processes": [{"pid": os.getpid()}]}}))
    await node.watch.look_for_strangers(GPUS)
    assert node.watch.condition(GPUS[0])[0] == "occupied"
    assert node.watch.condition(GPUS[1]) == ("ok", "")
    hooks.write_text("{}")
    await node.watch.look_for_strangers(GPUS)
    assert node.watch.condition(GPUS[0]) == ("ok", "")


async def test_a_runs_own_processes_are_no_strangers(node: NodeRun) -> None:
    node.plan(planned(1, shell("sleep 300 & wait")))
    fact = await node.facts.wait(1, "run_started")
    child = await until(lambda: Path(f"/proc/{fact.pid}/task/{fact.pid}/children").exists() or True)
    assert child
    await node.watch.look_for_strangers(GPUS)
    assert node.watch.condition(GPUS[0]) == ("ok", "")


@pytest.mark.parametrize("cgroups", [True, False])
async def test_a_tree_that_left_its_session_is_stopped(tmp_path: Path, sockets: Path, cgroups: bool) -> None:
    node = NodeRun(tmp_path, sockets, cgroups=cgroups)
    run = planned(1, shell("trap '' TERM; setsid sh -c \"trap '' TERM; echo ready; sleep 300\" & wait; sleep 300"))
    node.plan(run)
    await until(lambda: b"ready\n" in node.log(1))
    node.plan(stopped(run, grace=0.2))
    assert (await node.facts.wait(1, "run_exited")).end.forced
    folder = housekeeping.writable_cgroup(NODE, tmp_path) if cgroups else None
    if folder is not None:
        assert not (folder / run_id(1)).exists()
    await node.end_all()


async def test_cgroups_that_a_job_made_in_its_own_go_with_its_run(node: NodeRun, tmp_path: Path) -> None:
    base = housekeeping.writable_cgroup(NODE, tmp_path)
    if base is None:
        pytest.skip("no cgroup v2 can be made here")
    node.plan(planned(1, shell(f"mkdir {base}/{run_id(1)}/inner; grep 0:: /proc/self/cgroup")))
    await node.facts.wait(1, "run_exited")
    assert node.log(1).strip().endswith(run_id(1).encode())
    node.plan()
    await until(lambda: not (base / run_id(1)).exists())


async def test_a_full_disk_does_not_keep_a_plan_from_being_applied(tmp_path: Path, sockets: Path) -> None:
    """/dev/full answers every write as a full disk does."""
    node = NodeRun(tmp_path, sockets, plan_number=Path("/dev/full"))
    run = planned(1)
    node.plan(run)
    await node.facts.wait(1, "run_started")
    node.plan(stopped(run))
    assert (await node.facts.wait(1, "run_exited")).end.notice_delivered
    assert not node.plan(number=1)
    await node.end_all()


async def test_a_drain_stops_all_as_ours_and_buries_who_waits(node: NodeRun) -> None:
    node.plan(planned(1, python(SAVES)), planned(2, after=(run_id(1),)), planned(3, shell("exit 4"), gpu=1))
    await until(lambda: b"ready\n" in node.log(1))
    await node.facts.wait(3, "run_exited")
    await asyncio.wait_for(node.node.drain(10.0), 20)
    ends: dict[int, Any] = {number: node.facts.of(number, "run_exited")[0].end for number in (1, 2, 3)}
    assert (ends[1].cause, ends[1].notice_delivered, ends[1].exit_code) == (StopCause.DRAIN, True, 0)
    assert ends[2].outcome == "never_started"
    assert ends[3].exit_code == 4


async def test_a_checkpoint_folder_is_marked_once_its_job_ended_by_itself(node: NodeRun) -> None:
    aside, finished = planned(1, python(SAVES), checkpoint=True), planned(2, shell("true"), gpu=1, checkpoint=True)
    node.plan(aside, finished)
    await node.facts.wait(2, "run_exited")
    await until(lambda: b"ready\n" in node.log(1))
    node.plan(stopped(aside), finished)
    await node.facts.wait(1, "run_exited")
    node.plan()
    marks = {path.parent.name for path in (node.state / "checkpoints").glob("*/.finished")}
    assert marks == {finished.job_id}
