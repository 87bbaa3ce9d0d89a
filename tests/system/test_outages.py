"""Servers that lose their data, restart, or have nobody to talk to; and a scheduler that stands by."""

import os
import signal
import subprocess
from pathlib import Path

from live_cluster import LiveCluster, wait_until
from makeway.local.processes import is_alive
from preemption_cells import LANES, Cell

ONE, TWO, THREE, FOUR = LANES[:4]


def test_the_broker_loses_all_its_data_while_jobs_wait_run_and_end(cluster: LiveCluster, unique: str) -> None:
    running = cluster.submit(f"{unique}-running", gpu_type=ONE)
    waiting = cluster.submit(f"{unique}-waiting", gpu_type=ONE)
    ending = cluster.submit(f"{unique}-ending", gpu_type=TWO)
    cell = Cell(cluster=cluster, name=f"{unique}-cell", card=THREE)
    running.wait_for("started")
    ending.wait_for("started")
    cell.reach("acked")
    cell.remember()

    ending.tell("exit 5")
    cell.release_victim()
    cluster.wipe_kafka()
    submitted = cluster.submit(f"{unique}-submitted", gpu_type=TWO)

    assert ending.wait_end().exit_code == 5
    submitted.wait_for("started")
    submitted.tell("exit 0")
    assert waiting.view().state == "QUEUED"
    running.tell("exit 0")
    assert running.wait_end().state == "SUCCEEDED"
    waiting.wait_for("started")
    waiting.tell("exit 0")
    assert waiting.wait_end().state == "SUCCEEDED"
    assert submitted.wait_end().state == "SUCCEEDED"
    cell.finish()


def test_the_database_is_restarted_while_jobs_wait_run_and_end(cluster: LiveCluster, unique: str) -> None:
    running = cluster.submit(f"{unique}-running", gpu_type=ONE)
    waiting = cluster.submit(f"{unique}-waiting", gpu_type=ONE)
    ending = cluster.submit(f"{unique}-ending", gpu_type=TWO)
    running.wait_for("started")
    ending.wait_for("started")

    stopped = cluster.process("postgres")
    os.kill(stopped.pid, signal.SIGINT)
    ending.tell("exit 5")
    running.tell("exit 0")
    submitted = cluster.submit(f"{unique}-submitted", gpu_type=THREE)  # the client waits for the database
    cluster.wait_healthy("postgres", instead_of=stopped)

    assert ending.wait_end().exit_code == 5
    assert running.wait_end().state == "SUCCEEDED"
    for job in (waiting, submitted):
        job.wait_for("started")
        job.tell("exit 0")
        assert job.wait_end().state == "SUCCEEDED"


def test_a_scheduler_that_stands_by_takes_over_from_a_killed_one(cluster: LiveCluster, unique: str) -> None:
    running = cluster.submit(f"{unique}-running", gpu_type=ONE)
    running.wait_for("started")
    before = cluster.sql("SELECT epoch FROM pools")[0]["epoch"]
    owner = cluster.process("scheduler")
    with _standby(cluster, owner.pid) as standby:
        os.kill(owner.pid, signal.SIGSTOP)  # first it only hangs: it keeps the pool, and nobody decides anything
        os.kill(owner.pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(owner), "the owner is gone")
        job = cluster.submit(f"{unique}-after", gpu_type=TWO)
        job.wait_for("started")
        assert cluster.sql("SELECT epoch FROM pools")[0]["epoch"] > before
        cluster.wait_healthy("scheduler", instead_of=owner)  # now that one stands by
        job.tell("exit 0")
        assert job.wait_end().state == "SUCCEEDED"
        standby.send_signal(signal.SIGTERM)
        assert standby.wait(20) == 0
    running.tell("exit 0")
    assert running.wait_end().state == "SUCCEEDED"


def _standby(cluster: LiveCluster, owner_pid: int) -> subprocess.Popen[bytes]:
    """A second scheduler, started as the first was; it owns nothing once it is ready."""
    entries = Path(f"/proc/{owner_pid}/environ").read_text().split("\0")
    environment = dict(entry.partition("=")[::2] for entry in entries if entry)
    health = cluster.work / f"standby-{owner_pid}.health"
    environment |= {"MAKEWAY_HEALTH_FILE": str(health), "MAKEWAY_OWNER_NAME": "standby"}
    arguments = Path(f"/proc/{owner_pid}/cmdline").read_text().split("\0")[:-1]
    with (cluster.work / "standby.log").open("ab") as log:
        standby = subprocess.Popen(arguments, env=environment, cwd=cluster.root, stdout=log, stderr=log)
    wait_until(lambda: health.exists() or standby.poll() is not None, "the standby is ready")
    assert standby.poll() is None
    return standby


def test_a_run_cancelled_before_its_node_saw_it_never_starts(cluster: LiveCluster, unique: str) -> None:
    executor = cluster.process("executor-node-1")
    with cluster.stopped("executor-node-1"):
        job = cluster.submit(f"{unique}-job", gpu_type=ONE)
        job.wait_state("STARTING")
        job.cancel()
        job.wait_state("STOPPING")
        os.kill(executor.pid, signal.SIGKILL)  # else it might read the plan from before the cancel
    cluster.wait_healthy("executor-node-1", instead_of=executor)
    assert job.wait_end().state == "CANCELLED"
    assert job.runs == []
    assert job.view().runs[0].end_cause == "never_started"


def test_a_cancel_that_comes_with_the_plan_wins(cluster: LiveCluster, unique: str) -> None:
    with cluster.stopped("executor-node-1"):
        # One that was quick to start hears the notice.
        jobs = [cluster.submit(f"{unique}-{card}", gpu_type=card, on_notice="exit") for card in LANES]
        for job in jobs:
            job.may_die_early = True
            job.wait_state("STARTING")
            job.cancel()
    assert {job.wait_end().state for job in jobs} == {"CANCELLED"}


def test_a_cancelled_hold_never_starts_and_its_victim_comes_back(cluster: LiveCluster, unique: str) -> None:
    cell = Cell(cluster=cluster, name=unique, card=ONE)
    cell.reach("acked")
    cell.preemptor.wait_state("RESERVED")
    cell.preemptor.cancel()
    assert cell.preemptor.wait_end().state == "CANCELLED"
    cell.release_victim()
    cell.victim.wait_for("resumed", run=2)
    cell.victim.tell("exit 0")
    assert cell.victim.wait_end().state == "SUCCEEDED"
    assert cell.preemptor.runs == []


def test_an_executor_that_restarts_finds_its_runs_and_their_exit_codes(cluster: LiveCluster, unique: str) -> None:
    stays = cluster.submit(f"{unique}-stays", gpu_type=ONE)
    ends = cluster.submit(f"{unique}-ends", gpu_type=TWO)
    fails = cluster.submit(f"{unique}-fails", gpu_type=THREE)
    for job in (stays, ends, fails):
        job.wait_for("started")
    pid = stays.pid()
    stopped = cluster.process("executor-node-1")
    os.kill(stopped.pid, signal.SIGTERM)
    wait_until(lambda: not is_alive(stopped), "the executor has stopped")
    ends.tell("exit 0")
    fails.tell("exit 9")
    cluster.wait_healthy("executor-node-1", instead_of=stopped)
    assert ends.wait_end().state == "SUCCEEDED"
    assert (fails.wait_end().state, fails.view().exit_code) == ("FAILED", 9)
    assert stays.view().state == "RUNNING"
    assert stays.pid() == pid
    stays.tell("exit 0")
    assert stays.wait_end().state == "SUCCEEDED"
