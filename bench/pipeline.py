"""Drain of short jobs, and submit-to-start on an idle and on a full cluster; one JSON line last.

Usage: pipeline.py [--jobs 500] [--gpus 16] [--starts 30] [--slurm FOLDER]

``drain_jobs_per_s``: from the first submit to the last terminal state. ``*_start_ms``: from sending the HTTP request to
the job's process having started, by the job's own clock. With ``--slurm`` (a folder with up.sh, measure.py, down.sh) a
real Slurm is measured in the same run and the ratios are printed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from cluster import Cluster, cluster

DEADLINE_SECONDS = 300.0


def submit(client: httpx.Client, spec: dict[str, Any]) -> str:
    """Submit a job. Returns its id."""
    response = client.post("/v1/jobs", json=spec, headers={"Idempotency-Key": os.urandom(12).hex()})
    response.raise_for_status()
    return str(response.json()["job_id"])


def counts(client: httpx.Client) -> dict[str, int]:
    """Jobs by state."""
    jobs: dict[str, int] = client.get("/v1/cluster").raise_for_status().json()["jobs"]
    return jobs


def wait_for(client: httpx.Client, state: str, number: int) -> None:
    """Until that many jobs are in a state."""
    limit = time.monotonic() + DEADLINE_SECONDS
    while counts(client).get(state, 0) < number:
        if time.monotonic() > limit:
            raise TimeoutError(f"{number} jobs {state}: {counts(client)}")
        time.sleep(0.05)


def drain(here: Cluster, jobs: int) -> dict[str, Any]:
    """Submit many jobs of /bin/true by a few clients at once and wait for the last."""
    with here.client() as client:
        done = counts(client).get("SUCCEEDED", 0)
        local = threading.local()

        def one(_: int) -> str:
            if not hasattr(local, "client"):
                local.client = here.client()
            return submit(local.client, {"command": ["/bin/true"], "gpus": 1})

        before, own = here.cpu_seconds(), time.process_time()
        started = time.monotonic()
        with ThreadPoolExecutor(4) as workers:
            list(workers.map(one, range(jobs)))
        submitted = time.monotonic()
        wait_for(client, "SUCCEEDED", done + jobs)
        ended = time.monotonic()
        after = here.cpu_seconds()
    cpu = {name: round((after[name] - before.get(name, 0.0)) / jobs * 1000, 2) for name in after}
    return {
        "drain_jobs_per_s": round(jobs / (ended - started), 1),
        "submits_per_s": round(jobs / (submitted - started), 1),
        "cpu_ms_per_job": {**cpu, "client": round((time.process_time() - own) / jobs * 1000, 2)},
    }


def started_at(path: Path) -> float:
    """When the job's process started, by its own clock."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        text = path.read_text() if path.exists() else ""
        if text.endswith("\n"):
            return float(text)
        time.sleep(0.002)
    raise TimeoutError(f"{path} was not written")


def starts(here: Cluster, folder: Path, name: str, number: int, pause: float, **spec: Any) -> dict[str, float]:
    """Submit one job at a time and see how long each took to start. Milliseconds."""
    latencies = []
    with here.client() as client:
        for index in range(number):
            path = folder / f"{name}-{index}"
            command = ["/bin/sh", "-c", 'date +%s.%N > "$0"', str(path)]
            sent = time.time()
            submit(client, {"command": command, "gpus": 1, **spec})
            latencies.append((started_at(path) - sent) * 1000)
            time.sleep(pause)
    return summary(latencies)


def summary(values: list[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum."""
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {"p50": round(statistics.median(ordered), 1), "p99": round(p99, 1), "max": round(ordered[-1], 1)}


def preempting(here: Cluster, folder: Path, gpus: int, number: int) -> dict[str, float]:
    """Fill every GPU with jobs that leave at once when noticed, then submit urgent ones."""
    with here.client() as client:
        victims = [submit(client, {"command": ["/bin/sleep", "600"], "gpus": 1, "class": "low"}) for _ in range(gpus)]
        wait_for(client, "RUNNING", gpus)
        result = starts(here, folder, "preempting", number, 0.4, **{"class": "urgent"})
        for victim in victims:
            client.post(f"/v1/jobs/{victim}/cancel").raise_for_status()
        wait_for(client, "CANCELLED", gpus)
    return result


def slurm(folder: Path, jobs: int, gpus: int) -> dict[str, Any]:
    """The same work on a real Slurm."""
    nodes = max(1, gpus // 8)
    subprocess.run([str(folder / "up.sh"), str(nodes), str(min(gpus, 8))], check=True, stdout=subprocess.DEVNULL)
    try:
        measured = subprocess.run(
            [sys.executable, str(folder / "measure.py"), str(jobs), "10"], check=True, capture_output=True, text=True
        )
        result: dict[str, Any] = json.loads(measured.stdout.strip().splitlines()[-1])
        return result
    finally:
        subprocess.run([str(folder / "down.sh")], check=False)


def ratios(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, float]:
    """How many times as fast: more is better."""
    return {
        "drain": round(ours["drain_jobs_per_s"] / theirs["array_jobs_per_s"], 2),
        "idle_start": round(theirs["idle_start_s_p50"] * 1000 / ours["idle_start_ms"]["p50"], 2),
        "preempting_start": round(theirs["preempt_start_s_p50"] * 1000 / ours["preempting_start_ms"]["p50"], 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--gpus", type=int, default=16)
    parser.add_argument("--starts", type=int, default=30)
    parser.add_argument("--slurm", type=Path)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, cluster(simulate=f"{wanted.gpus}xA100-80GB") as here:
        folder = Path(name)
        folder.chmod(0o777)
        starts(here, folder, "warm", 5, 0.1)
        result: dict[str, Any] = {"idle_start_ms": starts(here, folder, "idle", wanted.starts, 0.2)}
        result["preempting_start_ms"] = preempting(here, folder, wanted.gpus, wanted.starts)
        result.update(drain(here, wanted.jobs))
    if wanted.slurm is not None:
        theirs = slurm(wanted.slurm, wanted.jobs, wanted.gpus)
        result["slurm"] = theirs
        result["ratio_to_slurm"] = ratios(result, theirs)
    result.update(jobs=wanted.jobs, gpus=wanted.gpus, cores=os.cpu_count(), servers="embedded")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
