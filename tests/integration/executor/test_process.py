"""The executor as a process, over a real broker."""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import servers
from desk import Desk
from makeway.local.servers import ServerProcess
from makeway_executor import clock
from makeway_runtime.devices.proc import is_alive
from makeway_schemas.states import StopCause
from node_runs import SAVES, planned, python, run_id, shell, stopped


async def test_a_node_tells_what_it_has_and_runs_what_is_planned(desk: Desk) -> None:
    desk.start()
    report = await desk.report()
    assert (report.pool, report.simulated, len(report.gpus), report.wants_plan) == (desk.pool, True, 4, True)
    assert [gpu.type_name for gpu in report.gpus] == ["A100-80GB"] * 4
    assert report.accepts_runs
    await desk.plan(report.session, desk.planned(1, shell("exit 3")))
    fact = await desk.fact(1, "run_exited")
    assert fact.end.exit_code == 3
    assert fact.age_seconds < 5
    repeated = await desk.report(lambda report: report.runs)
    assert (repeated.runs[0].state, repeated.runs[0].end.exit_code) == ("ended", 3)
    assert not repeated.wants_plan
    await desk.plan(report.session)
    await desk.report(lambda report: not report.runs)


async def test_a_killed_executor_is_followed_by_one_that_knows_its_runs(desk: Desk) -> None:
    desk.start()
    session = await desk.session()
    alive, ended = desk.planned(1, python(SAVES)), desk.planned(2, shell("sleep 0.3; echo late; exit 5"), gpu=1)
    await desk.plan(session, alive, ended)
    started = await desk.fact(1, "run_started")
    await desk.fact(2, "run_started")
    await desk.kill()
    desk.start()
    following = await desk.session()
    assert session < following  # the scheduler hears only the newer of two sessions of a boot
    assert int(following[:16], 16) <= clock.now_ns()
    assert (await desk.fact(1, "run_started", session=following)).pid == started.pid
    end = (await desk.fact(2, "run_exited", session=following)).end
    assert (end.exit_code, end.log_bytes) == (5, 5)
    await desk.plan(following, stopped(alive), ended)
    end = (await desk.fact(1, "run_exited")).end
    assert (end.exit_code, end.notice_delivered, end.cause) == (0, True, StopCause.PREEMPT)


async def test_a_report_repeats_the_resume_of_a_run_also_after_a_restart(desk: Desk) -> None:
    code = (
        "import os, socket, json, time\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(os.environ['MAKEWAY_CONTROL'])\n"
        "s.sendall(json.dumps({'op': 'resumed', 'step': 3, 'load_seconds': 0.5}).encode() + b'\\n'); time.sleep(20)\n"
    )
    desk.start()
    await desk.plan(await desk.session(), desk.planned(1, python(code)))
    await desk.fact(1, "run_resumed")
    for _ in range(2):
        report = await desk.report(lambda report: any(run.resumed for run in report.runs))
        resumed = report.runs[0].resumed
        assert (resumed.step, resumed.load_seconds) == (3, 0.5)
        assert resumed.age_seconds > 0
        await desk.kill()
        desk.start()


async def test_a_stale_plan_that_is_published_last_changes_nothing_and_is_answered(desk: Desk) -> None:
    desk.start()
    session = await desk.session()
    await desk.plan(session, desk.planned(1), number=7)
    await desk.fact(1, "run_started")
    await desk.plan(session, stopped(desk.planned(1)), number=6)
    report = await desk.report(lambda report: report.plan.number == 7)
    assert [run.state for run in report.runs] == ["running"]
    await desk.report()
    assert not desk.of(1, "notice_delivered")
    desk.number = 7


async def test_an_unreadable_plan_is_passed_over(desk: Desk) -> None:
    desk.start()
    session = await desk.session()
    await desk.publish(b'{"node_id": 5}')
    await desk.plan(session, desk.planned(1, shell("true")))
    assert (await desk.fact(1, "run_exited")).end.exit_code == 0


async def test_sigterm_leaves_the_runs_alive(desk: Desk) -> None:
    desk.start()
    await desk.plan(await desk.session(), desk.planned(1))
    started = await desk.fact(1, "run_started")
    assert desk.process is not None
    desk.process.send_signal(signal.SIGTERM)
    assert await desk.exit_code() == 0
    assert is_alive(started.pid)
    desk.start()
    await desk.session()


async def test_a_drain_stops_the_runs_tells_their_ends_and_exits_with_0(desk: Desk) -> None:
    desk.start()
    await desk.plan(await desk.session(), desk.planned(1, python(SAVES)))
    await desk.fact(1, "run_started")
    log = desk.folder / "runs" / run_id(1) / "output.log"
    await desk.until(lambda: log.exists() and b"ready\n" in log.read_bytes())
    (desk.sockets / "drain.json").write_text('{"grace_seconds": 8}')
    assert desk.process is not None
    desk.process.send_signal(signal.SIGUSR1)
    assert await desk.exit_code() == 0
    end = (await desk.fact(1, "run_exited")).end
    assert (end.cause, end.notice_delivered, end.exit_code) == (StopCause.DRAIN, True, 0)


async def test_a_second_executor_on_the_same_state_ends_at_once(desk: Desk) -> None:
    desk.start()
    await desk.session()
    first = desk.process
    desk.start()
    assert await desk.exit_code() == 70
    desk.process = first
    assert first is not None
    assert first.poll() is None


async def test_a_full_disk_is_said_and_nothing_new_starts(desk: Desk) -> None:
    """A limit of 100 % free stands for the full disk."""
    desk.start(MAKEWAY_MIN_FREE_DISK_PERCENT="100")
    report = await desk.report()
    assert not report.accepts_runs
    assert "% of the disk" in report.refusal
    await desk.plan(report.session, desk.planned(1))
    end = (await desk.fact(1, "run_exited")).end
    assert end.outcome == "never_started"
    assert "% of the disk" in end.message


async def test_a_broker_that_is_away_stops_no_job_and_loses_no_fact(
    tmp_path: Path, sockets: Path, own_kafka: ServerProcess
) -> None:
    desk = Desk(tmp_path / "node", sockets, servers.address_of(own_kafka), node="node-x", pool="pool-x")
    desk.folder.mkdir()
    await desk.open()
    try:
        desk.start()
        gate = tmp_path / "gate"
        await desk.plan(
            await desk.session(), desk.planned(1, shell(f"until [ -e {gate} ]; do sleep 0.05; done; exit 4"))
        )
        await desk.fact(1, "run_started")
        own_kafka.stop()
        gate.touch()
        end = desk.folder / "runs" / run_id(1) / "end.json"
        deadline = time.monotonic() + 20
        while not end.exists():
            assert time.monotonic() < deadline
        own_kafka.start()
        fact = await desk.fact(1, "run_exited")
        assert fact.end.exit_code == 4
    finally:
        await desk.close()


async def test_a_run_on_a_card_that_is_not_here_never_starts(desk: Desk) -> None:
    desk.start()
    await desk.plan(await desk.session(), planned(1))
    end = (await desk.fact(1, "run_exited")).end
    assert end.outcome == "never_started"
    assert "has no GPU" in end.message


async def test_a_start_is_fast(desk: Desk, record_property: Callable[[str, object], None]) -> None:
    """From publishing the plan to the job's own clock, the broker's hop included."""
    desk.start()
    session = await desk.session()
    waits_ms = []
    for number in range(1, 21):
        out = desk.folder / f"started-{number}"
        run = desk.planned(number, shell(f"date +%s%N > {out}.new; mv {out}.new {out}"))
        begin_ns = time.time_ns()
        await desk.plan(session, run)
        await desk.fact(number, "run_exited")
        waits_ms.append((int(out.read_text()) - begin_ns) / 1e6)
        await desk.plan(session)
    record_property("plan_to_job_ms", round(statistics.median(waits_ms), 2))
    assert statistics.median(waits_ms) < 250, waits_ms  # a guard against a wait somewhere, not a measurement
