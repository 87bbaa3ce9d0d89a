"""Exit codes tell the truth (scenario O-28): `submit --wait`, `wait`, `logs --follow`, for each way a job can end."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from live_cluster import MAKEWAY, SCRIPT, LiveCluster, LiveJob, wait_until
from makeway.exit_codes import ExitCode
from makeway_schemas.api import TokenRequest
from preemption_cells import LANES


@pytest.fixture
def cluster(scenario_cluster: LiveCluster) -> LiveCluster:
    """All of these run under the policy of scenarios (docs/scenarios.md)."""
    return scenario_cluster


def _codes_of(cluster: LiveCluster, job: LiveJob) -> dict[str, int]:
    """The codes of the ways to wait, asked after the end; they must not differ from those asked before."""
    with ThreadPoolExecutor(2) as pool:
        calls = {"wait": ["wait", job.job_id], "logs": ["logs", "--follow", job.job_id]}
        done = {name: pool.submit(cluster.run, *arguments, check=False) for name, arguments in calls.items()}
        return {name: each.result().returncode for name, each in done.items()}


def test_the_exit_code_is_that_of_the_job(cluster: LiveCluster, unique: str) -> None:
    """Each job is waited for by `submit --wait` from its submit on, and by `wait` and `logs --follow` after its end."""
    kinds = {
        "ok": 0,
        "fails": 1,
        "fails with 137": 137,
        "over its limit": ExitCode.TIMED_OUT,
        "cancelled": ExitCode.CANCELLED,
        "evicted once": 0,
        "killed by a signal": 128 + signal.SIGKILL,
    }
    waiting: dict[str, subprocess.Popen[str]] = {}
    jobs: dict[str, LiveJob] = {}
    for kind, card in zip(kinds, LANES, strict=False):
        name = f"{unique}-{kind.replace(' ', '-')}"
        folder = cluster.work / name
        folder.mkdir()
        limit = ["--time-limit", "3s"] if kind == "over its limit" else []
        waiting[kind] = subprocess.Popen(
            [
                MAKEWAY, "submit", "--wait", "--name", name, "--priority=1", "--gpu-type", card, "--preemption-grace",
                "5s", *limit, "--", sys.executable, "-I", "-S", str(SCRIPT), str(folder), "exit",
            ],
            env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        jobs[kind] = LiveJob(cluster=cluster, job_id="", folder=folder)
    for kind, job in jobs.items():
        stdout = waiting[kind].stdout
        assert stdout is not None
        job.job_id = stdout.readline().strip()  # the id alone, at once
        assert job.job_id, f"{kind}: no id on stdout"
        cluster.jobs.append(job)
        job.wait_for("started")

    jobs["ok"].tell("exit 0")
    jobs["fails"].tell("exit 1")
    jobs["fails with 137"].tell("exit 137")
    with _other_user(cluster) as token:
        other = {**cluster.environment, "MAKEWAY_TOKEN": token, "MAKEWAY_URL": cluster.url}
        subprocess.run([MAKEWAY, "cancel", jobs["cancelled"].job_id], env=other, check=True, capture_output=True)
    os.kill(jobs["killed by a signal"].pid(), signal.SIGKILL)
    heir = cluster.submit(f"{unique}-heir", gpu_type=LANES[list(kinds).index("evicted once")], priority=100)
    heir.wait_for("started")
    heir.tell("exit 0")
    jobs["evicted once"].wait_for("started", run=2)
    jobs["evicted once"].tell("exit 0")

    found = {}
    for kind, job in jobs.items():
        rest, errors = waiting[kind].communicate(timeout=60)
        assert rest == "", f"{kind}: stdout has the id alone"
        assert job.job_id in errors
        found[kind] = {"submit --wait": waiting[kind].returncode, **_codes_of(cluster, job)}
    expected = {kind: {"submit --wait": code, "wait": code, "logs": code} for kind, code in kinds.items()}
    assert found == expected


class _other_user:  # noqa: N801 - reads as a phrase
    """The token of another admin, taken back afterwards."""

    def __init__(self, cluster: LiveCluster) -> None:
        self._cluster = cluster

    def __enter__(self) -> str:
        self._created = self._cluster.client.create_token(TokenRequest(role="admin", label="another user"))
        return self._created.token

    def __exit__(self, *_: object) -> None:
        self._cluster.client.revoke_token(self._created.token_id)


def test_a_refused_request_and_no_contact_have_codes_of_their_own(cluster: LiveCluster, unique: str) -> None:
    refused = cluster.run("submit", "--wait", "--priority", "20000", "--", "/bin/true", check=False)
    assert refused.returncode == ExitCode.REFUSED
    assert refused.stdout == ""
    unknown = cluster.run("wait", "nosuchjob", check=False)
    assert unknown.returncode == ExitCode.REFUSED
    nobody = {**cluster.environment, "MAKEWAY_URL": "http://127.0.0.1:1", "MAKEWAY_TOKEN": cluster.token}
    nobody.pop("MAKEWAY_STATE")
    done = subprocess.run(
        [MAKEWAY, "submit", "--wait", "--patience", "1s", "--", "/bin/true"],
        env=nobody,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == ExitCode.NO_CONTACT
    accepted = cluster.run("submit", "--name", unique, "--gpus", "0", "--", "/bin/false")
    job_id = accepted.stdout.strip()
    assert cluster.run("wait", job_id, check=False).returncode == 1


def test_a_wait_outlives_the_scheduler_and_a_closed_reader(cluster: LiveCluster, unique: str) -> None:
    job = cluster.submit(unique, gpu_type=LANES[0])
    job.wait_for("started")
    wait = subprocess.Popen([MAKEWAY, "wait", job.job_id], env=cluster.environment, stderr=subprocess.DEVNULL)
    logs = subprocess.Popen(
        [MAKEWAY, "logs", "--follow", job.job_id], env=cluster.environment, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert logs.stdout is not None
    logs.stdout.close()
    killed = cluster.kill("scheduler")
    job.tell("print something", "print more", "exit 4")
    assert wait.wait(60) == 4
    assert logs.wait(60) == 4
    cluster.wait_healthy("scheduler", instead_of=killed)
    wait_until(lambda: job.view().state == "FAILED", "it has failed")
