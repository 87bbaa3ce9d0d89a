"""How fast the policy decides: 5,000 nodes of 8 GPUs, 100,000 queued jobs of mixed shapes, 90 % full.

Prints one JSON line last, measured while runs end and jobs are queued, applying these facts included:
`decisions_per_s`, each of which is told and stored: starts, preemptions, and waits with their reason; `starts_per_s`,
the jobs among them that got their GPUs; `preemption_ms` (one urgent arrival each, decided alone); `rss_mib`. Beside
rates and times stands what they come to in CPU time, for machines that others use too.
"""

import argparse
import gc
import json
import random
import resource
import statistics
import sys
import time
from dataclasses import dataclass

from makeway_policy import lifecycle
from makeway_policy.choices import Preempt, Start
from makeway_policy.decide import decide
from makeway_policy.model import Gpu, Job, LeaseState, Node, Shape, Team
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState, is_leaving
from makeway_scheduler.memory import made_to_last

SHAPES = [Shape(gpus=1), Shape(gpus=1), Shape(gpus=1), Shape(gpus=2), Shape(gpus=2), Shape(gpus=4), Shape(gpus=8)]
CLASSES = ["normal", "normal", "normal", "low", "low", "high"]
BATCH = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """How many choices, those among them by which a job gets GPUs, and those that take victims for it."""

    choices: int = 0
    starts: int = 0
    preempts: int = 0


class Bench:
    """One pool, its clock and its random numbers."""

    def __init__(self, nodes: int, queued: int) -> None:
        self.random = random.Random(7)
        self.state = PoolState()
        self.policy = Policy()
        self.now = 1_800_000_000.0
        self.order = 0
        for number in range(nodes):
            name = f"node-{number:05}"
            self.state.put_node(Node(node_id=name))
            for index in range(8):
                gpu = Gpu(gpu_id=f"{name}/{index}", node_id=name, index=index, type_name="H100", vram_mib=81_920)
                self.state.put_gpu(gpu)
        for number in range(20):
            self.state.put_team(Team(team_id=f"team-{number}"))
        self.fill(round(nodes * 8 * 0.9))
        for _ in range(queued):
            self.submit()

    def fill(self, gpus: int) -> None:
        used = 0
        while used < gpus:
            used += self.submit(self.random.choice(SHAPES)).shape.gpus
        self.decide()
        for run in list(self.state.runs.values()):
            self.now += 0.5
            lifecycle.run_started(self.state, run.run_id, self.now)
        self.now += 1200.0

    def submit(self, shape: Shape | None = None, class_name: str | None = None) -> Job:
        self.order += 1
        job = Job(
            job_id=f"job-{self.order:07}",
            order=self.order,
            team=f"team-{self.random.randrange(20)}",
            class_name=class_name or self.random.choice(CLASSES),
            submitted_at=self.now,
            queued_since=self.now,
            shape=shape or self.random.choice(SHAPES),
            time_limit_seconds=self.random.choice([None, 3600.0, 86_400.0]),
        )
        self.state.put_job(job)
        return job

    def decide(self) -> Decided:
        self.state.begin()
        choices = decide(self.state, self.policy, self.now).choices
        self.state.commit()
        preempts = sum(isinstance(choice, Preempt) for choice in choices)
        starts = sum(isinstance(choice, Start) for choice in choices) + preempts
        return Decided(choices=len(choices), starts=starts, preempts=preempts)

    def guarantee(self, gpus: float) -> None:
        """From now on every second team has so many GPUs guaranteed."""
        for number in range(0, 20, 2):
            self.state.put_team(Team(team_id=f"team-{number}", guarantee=gpus))
        self.decide()

    def end_some(self, count: int) -> None:
        """Runs end, those that were noticed first; as many jobs are queued, and what was decided has started."""
        live = [run for run in self.state.runs.values() if run.lease_state is LeaseState.LIVE and run.started_at]
        leaving = [run for run in self.state.runs.values() if run.lease_state is LeaseState.LEAVING]
        for run in (*leaving, *self.random.sample(live, min(count, len(live)))):
            lifecycle.run_released(self.state, run.run_id, self.now)
            if not is_leaving(run):
                self.state.remove_job(run.job_id)
                self.submit()

    def settle(self) -> None:
        """Let those leave that the first pass told to, what follows them start, and all outlive their minimum run."""
        while any(run.lease_state is not LeaseState.LIVE for run in self.state.runs.values()):
            self.now += 1.0
            self.end_some(0)
            self.decide()
            self.start_all()
            self.decide()
        self.now += 600.0
        self.decide()

    def start_all(self) -> None:
        """Processes do not start all at one moment: they take up to a second."""
        for run in list(self.state.runs.values()):
            if run.lease_state is LeaseState.LIVE and run.started_at is None:
                lifecycle.run_started(self.state, run.run_id, self.now + self.random.random())


def sustained(bench: Bench, seconds: float) -> dict[str, int]:
    """Rates while batches of runs end, the time for applying the facts included."""
    choices = starts = 0
    spent = spent_cpu = 0.0
    while spent < seconds:
        bench.now += 1.0
        live = [run for run in bench.state.runs.values() if run.lease_state is LeaseState.LIVE and run.started_at]
        leaving = [run for run in bench.state.runs.values() if run.lease_state is LeaseState.LEAVING]
        ending = [*leaving, *bench.random.sample(live, BATCH)]
        began, began_cpu = time.perf_counter(), time.process_time()
        with made_to_last():
            for run in ending:
                lifecycle.run_released(bench.state, run.run_id, bench.now)
                if not is_leaving(run):
                    bench.state.remove_job(run.job_id)
                    bench.submit()
            decided = bench.decide()
        choices += decided.choices
        starts += decided.starts
        spent += time.perf_counter() - began
        spent_cpu += time.process_time() - began_cpu
        bench.start_all()
    return {
        "decisions_per_s": round(choices / spent),
        "decisions_per_cpu_s": round(choices / spent_cpu),
        "starts_per_s": round(starts / spent),
    }


def preemptions(bench: Bench, count: int) -> list[tuple[float, float]]:
    """Milliseconds, and of CPU time, of single decisions in which an urgent job takes victims."""
    bench.decide()
    times: list[tuple[float, float]] = []
    while len(times) < count:
        # What time alone brings wakes the scheduler by itself.
        bench.now += 1.0
        bench.decide()
        bench.submit(bench.random.choice(SHAPES), "urgent")
        began, began_cpu = time.perf_counter(), time.process_time()
        with made_to_last():
            preempts = bench.decide().preempts
        if preempts:
            times.append(((time.perf_counter() - began) * 1000, (time.process_time() - began_cpu) * 1000))
        bench.end_some(0)
        bench.decide()
        bench.start_all()
    return times


def spread(times: list[float]) -> dict[str, float]:
    ranked = sorted(times)
    return {
        "p50": round(statistics.median(ranked), 3),
        "p99": round(ranked[min(len(ranked) - 1, int(0.99 * len(ranked)))], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--queued", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--preemptions", type=int, default=200)
    parser.add_argument("--guarantee", type=float, help="GPUs that every second of 20 teams has guaranteed")
    given = parser.parse_args()
    gc.set_threshold(10_000)
    began = time.perf_counter()
    bench = Bench(given.nodes, given.queued)
    print(f"laid out in {time.perf_counter() - began:.1f} s", file=sys.stderr)
    began = time.perf_counter()
    first = bench.decide().starts
    first_seconds = time.perf_counter() - began
    print(f"first pass: {first} starts in {first_seconds:.2f} s", file=sys.stderr)
    bench.start_all()
    bench.settle()
    if given.guarantee is not None:
        bench.guarantee(given.guarantee)
        bench.settle()
    gc.collect()
    gc.freeze()
    rates = sustained(bench, given.seconds)
    times = preemptions(bench, given.preemptions)
    print(
        json.dumps(
            {
                **rates,
                "preemption_ms": spread([wall for wall, _ in times]),
                "preemption_cpu_ms": spread([cpu for _, cpu in times]),
                "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "first_pass_starts_per_s": round(first / first_seconds),
                "nodes": given.nodes,
                "queued": given.queued,
                "python": sys.version.split()[0],
            }
        )
    )


if __name__ == "__main__":
    main()
