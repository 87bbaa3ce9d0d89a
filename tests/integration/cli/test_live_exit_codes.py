"""On the real services: the exit code tells a pipeline the truth, and the log comes to its last byte."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from makeway.client import Client, Refused
from makeway.context import find_context
from makeway.local.cluster import ClusterFolder
from makeway.local.state_file import read_state
from makeway_schemas.states import JobState


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


SHELL = ["sh", "-c"]
ENDINGS = [
    ([*SHELL, "echo hi"], [], 0),
    ([*SHELL, "exit 1"], [], 1),
    ([*SHELL, "exit 137"], [], 137),
    ([*SHELL, "kill -9 $$"], [], 137),
    (["sleep", "60"], ["--time-limit", "500ms", "--preemption-grace", "1s"], 122),
    (["/no/such/program"], [], 127),
]


@pytest.mark.parametrize(("command", "options", "code"), ENDINGS)
def test_submit_wait_run_wait_and_logs_agree(live: Any, command: list[str], options: list[str], code: int) -> None:
    ended, out, err = live.run("submit", "--wait", "--gpus", "0", *options, "--", *command)
    assert ended == code, err
    job_id = out.decode().strip()
    assert live.run("wait", job_id)[0] == code
    assert live.run("logs", "--follow", job_id)[0] == code
    assert live.run("run", "--gpus", "0", *options, "--", *command)[0] == code


def test_a_job_that_somebody_else_cancels_is_not_a_success(live: Any) -> None:
    job_id = live.run("submit", "--", "sleep", "600")[1].decode().strip()
    waiter = live.start("wait", job_id)
    follower = live.start("logs", "--follow", job_id)
    wait_until(lambda: live.client.job(job_id).state is JobState.RUNNING, "it runs")
    live.client.cancel(job_id)
    for process in (waiter, follower):
        process.communicate(timeout=30)
        assert process.returncode == 121
    assert "CANCELLED and stays so" in live.run("cancel", job_id)[1].decode()


def test_a_job_that_was_preempted_once_and_then_ends_well_is_a_success(live: Any, tmp_path: Path) -> None:
    program = "test $MAKEWAY_RUN = 2 && exit 0; touch up; exec sleep 600"
    waiter = live.start("submit", "--gpus", "2", "--wait", "--", "sh", "-c", program)
    wait_until((tmp_path / "up").exists, "the first run is up")
    assert live.run("submit", "--class", "urgent", "--gpus", "1", "--wait", "--", "true")[0] == 0
    out, err = waiter.communicate(timeout=60)
    assert waiter.returncode == 0, err
    job = live.client.job(out.decode().strip())
    assert (job.preemptions, len(job.runs), job.runs[0].end_cause) == (1, 2, "preempted")
    assert b"preempted 1 time" in err


def test_a_refused_request_has_its_own_code(live: Any) -> None:
    code, out, err = live.run("submit", "--wait", "--class", "urgnt", "--", "true")
    assert (code, out) == (120, b"")
    assert "class: " in err
    assert "urgent" in err


def test_a_wrong_token_is_refused(live: Any) -> None:
    url = find_context(live.root).url
    code, _, err = live.run("ps", MAKEWAY_URL=url, MAKEWAY_TOKEN="mw_0_wrong")
    assert code == 120
    assert "token" in err


def test_what_runs_is_followed_to_the_last_byte_without_newline(live: Any) -> None:
    program = "seq 400000; printf 'the end, without a newline'"
    code, out, err = live.run("run", "--gpus", "0", "--", "sh", "-c", program)
    assert code == 0, err
    assert out == "".join(f"{n}\n" for n in range(1, 400_001)).encode() + b"the end, without a newline"
    job_id = err.split()[1]
    assert live.run("logs", job_id)[1] == out
    assert live.run("logs", "--tail", "1", job_id)[1] == b"the end, without a newline"


COUNTER = """
import signal, sys, time
def stop(*_):
    time.sleep(0.3)
    print("BYE", end="", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
for number in range(1, 100000):
    print(number, flush=True)
    time.sleep(0.05)
"""


def test_the_last_words_after_a_cancel_arrive_at_both_readers(live: Any) -> None:
    job_id = live.run("submit", "--gpus", "0", "--", sys.executable, "-c", COUNTER)[1].decode().strip()
    follower = live.start("logs", "--follow", job_id)
    assert follower.stdout is not None
    first = [follower.stdout.readline() for _ in range(5)]
    live.client.cancel(job_id)
    rest, _ = follower.communicate(timeout=30)
    lines = (b"".join(first) + rest).decode().split()
    assert lines == [*map(str, range(1, len(lines))), "BYE"]
    assert live.run("logs", job_id)[1].decode().split() == lines


def test_a_reader_that_goes_away_does_not_change_the_code(live: Any) -> None:
    process = live.start("run", "--gpus", "0", "--", "sh", "-c", "seq 200000; exit 9")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) == 9
    assert b"Traceback" not in said


def interrupt(live: Any, number: signal.Signals, **environment: str) -> tuple[int, str, str]:
    """Interrupts a `run` whose job is up: its code, what it said and the job's id."""
    process = live.start("run", "--gpus", "0", "--", "sh", "-c", "echo up; exec sleep 600", **environment)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    return process.returncode, err.decode(), err.decode().split()[1]


def test_an_interrupted_run_detaches_and_says_how_to_come_back(live: Any) -> None:
    code, err, job_id = interrupt(live, signal.SIGINT)
    assert code == 130
    assert f"makeway logs -f {job_id}" in err
    assert live.client.job(job_id).state is JobState.RUNNING
    live.client.cancel(job_id)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_is_cancelled_where_ci_is_set(live: Any, number: signal.Signals) -> None:
    code, _, job_id = interrupt(live, number, CI="true")
    assert code == 130
    wait_until(lambda: live.client.job(job_id).state is JobState.CANCELLED, "it is cancelled")


def test_twenty_submits_with_one_key_are_one_job(live: Any) -> None:
    context = find_context(live.root)

    def submit(command: str) -> str:
        with Client(context.url, context.token) as client:
            return client.submit({"command": [command], "gpus": 0}, idempotency_key=f"k-{live.folder}").job_id

    with ThreadPoolExecutor(20) as pool:
        assert len(set(pool.map(submit, ["true"] * 20))) == 1
    with pytest.raises(Refused):
        submit("false")


@pytest.mark.parametrize("name", ["a" * 253, "训练-作业-1", "e\u0301", "🚀 b", "../x"])
def test_every_name_that_is_taken_works_with_every_verb(live: Any, name: str) -> None:
    job_id = live.run("submit", "--gpus", "0", "--name", name, "--", "echo", "out")[1].decode().strip()
    assert live.run("wait", name)[0] == 0
    assert live.run("logs", name)[1] == b"out\n"
    assert live.client.job(job_id).name == name
    assert name in live.run("ps")[1].decode()
    assert live.run("cancel", name)[0] == 0


@pytest.mark.parametrize("name", ["a" * 254, "a" * 10_000, "a\nb"])
def test_every_other_name_is_refused_with_the_limit(live: Any, name: str) -> None:
    code, out, err = live.run("submit", "--name", name, "--", "true")
    assert (code, out) == (120, b"")
    assert "name: " in err


def test_a_training_job_acks_resumes_and_ends_by_itself(live: Any, tmp_path: Path) -> None:
    program = """
import makeway.job, time
with makeway.job.session() as job:
    saved = job.resume()
    step = saved.step if saved else 0
    open("up", "w").close()
    while step < 40 or not saved:
        if job.stop_requested():
            job.save(step, {"step": step}, fraction=step / 80, wait=True)
            break
        step += 1
        time.sleep(0.02)
    print("run", job.run, "saved" if job.stop_requested() else "ended")
"""
    (tmp_path / "train.py").write_text(program)
    python = live.start("submit", "--gpus", "2", "--wait", "--", sys.executable, "train.py")
    wait_until((tmp_path / "up").exists, "the training is up")
    assert live.run("submit", "--class", "urgent", "--wait", "--", "true")[0] == 0
    out, err = python.communicate(timeout=60)
    assert python.returncode == 0, err
    job_id = out.decode().strip()
    assert live.run("logs", job_id)[1] == b"run 1 saved\nrun 2 ended\n"
    record = live.client.preemptions(job=job_id)[0]
    assert record.acked_step is not None
    assert record.acked_step == record.resumed_step == live.client.job(job_id).runs[1].resumed_step
    assert not record.forced


def test_a_shell_job_acks_by_the_command(live: Any) -> None:
    program = "makeway ack --step 17 --fraction 0.5"
    code, out, err = live.run("submit", "--gpus", "0", "--wait", "--", "sh", "-c", program)
    assert code == 0, err
    assert live.client.job(out.decode().strip()).runs[0].ack_step == 17


def test_everything_can_be_listed_as_text_and_as_json(live: Any) -> None:
    for verb in ("ps", "status", "node list", "gpu list", "team list", "token list", "preemptions", "doctor"):
        code, out, err = live.run(*verb.split(), "--output", "json")
        assert code == 0, err
        assert json.loads(out)
    for verb in ("ps", "status", "doctor"):
        assert live.run(*verb.split())[1]


def test_a_short_outage_of_the_door_is_waited_through(live: Any) -> None:
    """Last in this file: the supervisor starts the service again."""
    waiter = live.start("submit", "--gpus", "0", "--wait", "--", "sh", "-c", "sleep 3; exit 5")
    assert waiter.stdout is not None
    waiter.stdout.readline()
    state = read_state(ClusterFolder(root=live.root))
    assert state is not None
    process = state.children["admission"].process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    waiter.communicate(timeout=60)
    assert waiter.returncode == 5
