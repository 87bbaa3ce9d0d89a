"""Measures the simulator: 100,000 jobs on 1,000 GPUs under makeway's own policy, in wall time; one JSON line last."""

import argparse
import json
import time

import psutil
from makeway_policy.presets import PRESETS
from makeway_simulator.engine import Engine
from makeway_simulator.outcome import summarise
from makeway_simulator.setting import Setting
from makeway_simulator.trace import Cluster
from makeway_simulator.workload import Mix, make


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--nodes", default="125x8")
    parser.add_argument("--load", type=float, default=0.7)
    parser.add_argument("--policy", default="default", choices=sorted(PRESETS))
    given = parser.parse_args()
    cluster = Cluster.parse(given.nodes)
    trace = make(Mix(jobs=given.jobs, load=given.load), cluster)
    begun, begun_cpu = time.perf_counter(), time.process_time()
    record = Engine(trace.jobs, Setting(cluster=cluster, policy=PRESETS[given.policy])).run()
    took = time.perf_counter() - begun
    figures = summarise(record.outcomes, cluster.gpus, record.refused)
    print(
        json.dumps(
            {
                "jobs": given.jobs,
                "gpus": cluster.gpus,
                "policy": given.policy,
                "seconds": round(took, 2),
                "cpu_seconds": round(time.process_time() - begun_cpu, 2),
                "jobs_per_s": round(given.jobs / took),
                "rss_mib": round(psutil.Process().memory_info().rss / 2**20),
                "finished": figures.jobs,
                "preemptions": figures.preemptions,
                "gpu_utilisation": round(figures.gpu_utilisation, 4),
            }
        )
    )


if __name__ == "__main__":
    main()
