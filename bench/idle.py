"""What an idle cluster costs: memory (PSS) and CPU of every process, embedded servers included.

Starts a cluster of its own in a temporary folder, lets it settle, measures for a while, stops and removes it. Progress
goes to stderr; the last line on stdout is one JSON object. Goals: `pss_mib` under 700, `cpu_percent_of_core` under 8.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from makeway.local.cluster import Wishes
from makeway.local.lifecycle import bring_up, take_down
from makeway.local.processes import processes_in
from makeway.local.state_file import ClusterState

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def pids_by_part(root: Path, state: ClusterState) -> dict[str, list[int]]:
    """Every process of the cluster: its supervisor, its children, and what they forked."""
    parts = {"supervisor": [state.supervisor.pid]}
    for name, child in state.children.items():
        if name == "postgres":
            parts[name] = [process.pid for process in processes_in(root / "postgres", names=("postgres",))]
        elif child.process is not None:
            parts[name] = [child.process.pid]
    return parts


def pss_mib(pid: int) -> float:
    """Proportional set size: shared pages are divided among their users."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_seconds(pid: int) -> float:
    """CPU used so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def total(pids: list[int], measured: Callable[[int], float]) -> float:
    """Sum over processes; one that ended meanwhile counts as nothing."""
    value = 0.0
    for pid in pids:
        try:
            value += measured(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return value


def measure(root: Path, state: ClusterState, seconds: float) -> dict[str, object]:
    """Watch the cluster for a while and sum up."""
    before = {name: total(pids, cpu_seconds) for name, pids in pids_by_part(root, state).items()}
    began = time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - began
    processes = {}
    for name, pids in sorted(pids_by_part(root, state).items()):
        used = total(pids, cpu_seconds) - before.get(name, 0.0)
        processes[name] = {
            "pss_mib": round(total(pids, pss_mib), 1),
            "cpu_percent_of_core": round(100 * used / elapsed, 2),
            "processes": len(pids),
        }
    return {
        "pss_mib": round(sum(part["pss_mib"] for part in processes.values()), 1),
        "cpu_percent_of_core": round(sum(part["cpu_percent_of_core"] for part in processes.values()), 2),
        "seconds": round(elapsed, 1),
        "processes": processes,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to measure")
    parser.add_argument("--settle", type=float, default=15.0, help="how long to wait before")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--simulate", default="4xA100-80GB")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="makeway-idle-"))
    try:
        wishes = Wishes(nodes=options.nodes, simulate=options.simulate)
        up = bring_up(root, wishes, report=lambda sentence: print(sentence, file=sys.stderr))
        print(f"settling for {options.settle:g} s, then measuring for {options.seconds:g} s", file=sys.stderr)
        time.sleep(options.settle)
        result = measure(root, up.state, options.seconds)
    finally:
        take_down(root, grace_seconds=0, wipe=True)
        shutil.rmtree(root, ignore_errors=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
