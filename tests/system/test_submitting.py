"""What may be asked for, under which name, and how often (scenarios O-19, O-20 and O-21)."""

import json
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from live_cluster import LiveCluster, LiveJob, wait_until
from makeway.client import JobQuery
from preemption_cells import LANES, POOL

ONE, TWO = LANES[:2]


@pytest.fixture
def cluster(scenario_cluster: LiveCluster) -> LiveCluster:
    """All of these run under the policy of scenarios (docs/scenarios.md)."""
    return scenario_cluster


# O-19: what is wrong, and the field that the refusal has to name. What this release does not know is refused by name.
IMPOSSIBLE: list[tuple[str, str]] = [
    ('"gpus": -100', "gpus"),
    ('"gpus": 0.5', "gpus"),
    ('"gpus": 1e18', "gpus"),
    ('"gpus": 9223372036854775808', "gpus"),
    ('"gpus": NaN', "gpus"),
    ('"gpus": "two"', "gpus"),
    ('"gpus": true', "gpus"),
    ('"vram_mib": -1', "vram_mib"),
    ('"vram_mib": NaN', "vram_mib"),
    ('"vram_mib": Infinity', "vram_mib"),
    ('"vram_mib": 1e400', "vram_mib"),
    ('"members": 0', "members"),
    ('"members": -2', "members"),
    ('"time_limit": -5', "time_limit"),
    ('"time_limit": NaN', "time_limit"),
    ('"preemption": {"grace": -1}', "grace"),
    ('"preemption": {"grace": NaN}', "grace"),
    ('"priority": 1e30', "priority"),
    ('"priority": 100000', "priority"),
    ('"deadline": "2001-01-01T00:00:00Z"', "deadline"),
]


def test_impossible_numbers_are_refused_by_field_and_leave_nothing(cluster: LiveCluster, unique: str) -> None:
    """O-19. `gpus: 0` is a job of CPU and memory here and uses none of the team's GPUs."""
    team = f"{unique}-team"
    cluster.allow_everything(team, classes=(), limit=2)
    with cluster.http() as http:
        for text, field in IMPOSSIBLE:
            body = f'{{"command": ["/bin/true"], "team": "{team}", {text}}}'
            answer = http.post("/v1/jobs", content=body, headers={"content-type": "application/json"})
            assert 400 <= answer.status_code < 500, f"{text}: {answer.status_code} {answer.text}"
            problem = answer.json()
            told = [each["field"] for each in problem["fields"]] + [problem["detail"]]
            assert any(field in each for each in told), f"{text}: {problem}"
    assert list(cluster.client.jobs(JobQuery(team=team, include_finished=True))) == []
    assert _team(cluster, team).gpus_used == 0
    for flags in (["--gpus", "-100"], ["--gpus", "nan"], ["--vram-mib", "inf"], ["--time-limit", "-5s"]):
        done = cluster.run("submit", "--team", team, *flags, "--", "/bin/true", check=False)
        assert done.returncode not in (0, 1), f"{flags}: {done}"
        assert done.stdout == ""

    jobs = [cluster.submit(f"{unique}-{n}", team=team, gpu_type=POOL) for n in range(3)]
    for job in jobs[:2]:
        job.wait_for("started")
    view = jobs[2].wait_state("QUEUED")
    wait_until(lambda: team in jobs[2].view().reason, "the reason names the team")
    assert view.run_number == 0
    assert _team(cluster, team).gpus_used == 2
    cpu_only = cluster.submit(f"{unique}-cpu", team=team, gpus=0)
    for job in (cpu_only, *jobs):
        job.wait_for("started")
        job.tell("exit 0")
        assert job.wait_end().state == "SUCCEEDED"
    wait_until(lambda: _team(cluster, team).gpus_used == 0, "the team uses nothing")


def _team(cluster: LiveCluster, team: str):  # type: ignore[no-untyped-def]
    return next(each for each in cluster.client.teams() if each.team == team)


# O-20: names and whether they are taken. Every other one is refused with the limit named.
NAMES: list[tuple[str, bool]] = [
    ("a" * 63, True),
    ("a" * 64, True),
    ("a" * 253, True),
    ("a" * 254, False),
    ("a" * 10_000, False),
    ("训练-作业-1", True),
    (unicodedata.normalize("NFC", "école"), True),
    (unicodedata.normalize("NFD", "école"), True),
    ("job 🚂", True),
    ("a b", True),
    ("../x", True),
    ("a\nb", False),
    ("a\x1b[31mb", False),
    (" a", False),
    ("job-1", True),
    ("JOB-1", True),
    ("a" * 63 + "-first", True),
    ("a" * 63 + "-other", True),
]


def test_a_name_is_refused_with_its_limit_or_works_everywhere(cluster: LiveCluster) -> None:
    """O-20. A job without a name gets its id for one."""
    taken: dict[str, str] = {}
    with cluster.http() as http:
        for name, good in NAMES:
            script = "echo one; echo two"
            answer = http.post("/v1/jobs", json={"name": name, "script": script, "gpus": 0})
            assert answer.is_success == good, f"{name[:20]!r} ({len(name)}): {answer.status_code} {answer.text[:300]}"
            if good:
                taken[name] = answer.json()["job_id"]
            else:
                assert 400 <= answer.status_code < 500
                assert "name" in answer.text
                assert len(name) <= 253 or "253" in answer.text
        nameless = http.post("/v1/jobs", json={"name": "", "script": "echo", "gpus": 0}).json()["job_id"]
    assert len(set(taken.values())) == len(taken)
    for name, job_id in taken.items():
        wait_until(lambda job_id=job_id: cluster.client.job(job_id).state == "SUCCEEDED", f"{name!r} succeeds")
    listed = {job.job_id: job.name for job in cluster.client.jobs(JobQuery(include_finished=True), limit=100)}
    for name, job_id in taken.items():
        assert listed[job_id] == name
        assert cluster.client.job(job_id).name == name
        assert cluster.client.resolve(name) == job_id
        assert b"".join(cluster.client.logs(job_id)) == b"one\ntwo\n"
    assert cluster.client.job(nameless).name == nameless
    shown = cluster.run("ps", "--output", "json", "--all").stdout
    assert set(taken) <= {job["name"] for job in json.loads(shown)}


def test_a_name_with_spaces_and_signs_is_cancelled_by_it(cluster: LiveCluster, unique: str) -> None:
    job = cluster.submit(f"{unique} 训练 🚂", gpu_type=ONE)
    job.wait_for("started")
    job.may_die_early = True
    cluster.run("cancel", f"{unique} 训练 🚂")
    job.wait_for("noticed")
    job.tell("exit 0")
    assert job.wait_end().state == "CANCELLED"


def test_the_same_submit_again_is_the_same_job(cluster: LiveCluster, unique: str) -> None:
    """O-21, with twenty at once, after the job's end, and after a restart of the scheduler."""
    other_team = f"{unique}-other"
    cluster.allow_everything(other_team, classes=())
    key = f"{unique}-key"

    def submit(**changes: Any) -> tuple[int, str]:
        body = {"script": f"echo {unique}", "gpu_type": ONE, "team": "default", **changes}
        with cluster.http() as http:
            answer = http.post("/v1/jobs", json=body, headers={"idempotency-key": key})
        return answer.status_code, answer.json().get("job_id", answer.json().get("code", ""))

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: submit(), range(21)))
    ids = {job_id for _, job_id in answers}
    assert len(ids) == 1, answers
    assert all(status in (200, 201, 202) for status, _ in answers)
    job_id = ids.pop()
    assert cluster.sql("SELECT count(*) AS n FROM jobs WHERE spec ->> 'script' = $1", f"echo {unique}")[0]["n"] == 1

    status, theirs = submit(team=other_team)
    assert status < 300
    assert theirs != job_id
    status, code = submit(gpus=2)
    assert status == 422
    assert "key" in code
    wait_until(lambda: cluster.client.job(job_id).state == "SUCCEEDED", "it ends")
    assert submit() == (200, job_id) or submit()[1] == job_id
    cluster.kill_and_wait("scheduler")
    assert submit()[1] == job_id
    wait_until(lambda: cluster.client.job(theirs).state == "SUCCEEDED", "the other team's ends")
    assert cluster.client.job(job_id).run_number == 1


def test_a_submit_is_kept_when_admission_dies_with_it(cluster: LiveCluster, unique: str) -> None:
    """Whoever got an id has a job, whoever got none may send again with the key: never lost, never twice."""
    jobs: list[LiveJob] = []

    def one(number: int) -> LiveJob:
        return cluster.submit(f"{unique}-{number}", gpus=0, idempotency_key=f"{unique}-{number}")

    with ThreadPoolExecutor(4) as pool:
        coming = [pool.submit(one, number) for number in range(12)]
        killed = cluster.kill("admission")
        jobs = [each.result(60) for each in coming]
    cluster.wait_healthy("admission", instead_of=killed)
    for job in jobs:
        job.wait_for("started")
        job.tell("exit 0")
    for job in jobs:
        assert job.wait_end().state == "SUCCEEDED"
        assert job.runs == [1]
    names = cluster.sql("SELECT name, count(*) AS n FROM jobs WHERE name LIKE $1 GROUP BY name", f"{unique}-%")
    assert [row["n"] for row in names] == [1] * 12


pytestmark = pytest.mark.timeout(150)
