"""Published results, reproduced from their traces. `MAKEWAY_TRACES` names a folder with `muri` and `openb`.

Each has beside its traces what the authors published: `expected.csv` and `expected_alloc_summary.csv`.
"""

import csv
import os
from pathlib import Path

import pytest
from makeway_simulator.replay import GangSettings, PackingSettings, TraceFormat, replay_gangs, replay_packing
from makeway_simulator.rivals.loop import Cost

TRACES = Path(os.environ.get("MAKEWAY_TRACES", ""))
pytestmark = pytest.mark.skipif("MAKEWAY_TRACES" not in os.environ, reason="MAKEWAY_TRACES names no traces")

RIVALS = {"SRTF": "srtf", "SRSF": "srsf", "Tiresias_L": "tiresias-l"}
FIGURES = {"JCT": "average_jct_seconds", "99JCT": "p99_jct_seconds", "Makespan": "makespan_seconds"}
PLACEMENTS = {
    "01-Random": ("random", 0.3),
    "02-DotProd": ("dotprod", 0.3),
    "03-GpuClustering": ("clustering", 1.0),
    "04-GpuPacking": ("packing", 1.0),
    "05-BestFit": ("bestfit", 0.3),
    "06-FGD": ("fgd", 0.3),
}
WORKLOADS = ("default", "gpushare40", "multigpu20", "gpuspec10", "cpu050")


def published_completion_times() -> dict[tuple[str, str, str], float]:
    with (TRACES / "muri" / "expected.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {(row["policy"], row["trace"], row["metric"]): float(row["value_s"]) for row in rows}


def published_allocation(workload: str) -> dict[str, dict[str, float]]:
    with (TRACES / "openb" / "expected_alloc_summary.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["workload"] == f"openb_pod_list_{workload}"]
    return {row["policy"]: {load: float(row[f"alloc_mean_pct_{load}"]) for load in ("100", "130")} for row in rows}


@pytest.mark.parametrize("trace", ["trace1", "trace3", "trace3_pr"])
@pytest.mark.parametrize(("cost", "tolerance"), [(Cost.PEER, 1e-4), (Cost.RESUME, 0.05)])
def test_completion_times_of_the_rivals_are_as_published(trace: str, cost: Cost, tolerance: float) -> None:
    expected = published_completion_times()
    averages = {}
    for name, policy in RIVALS.items():
        settings = GangSettings(TRACES / "muri" / f"{trace}.csv.gz", TraceFormat.MURI, "8x8", policy, cost=cost)
        figures = replay_gangs(settings).figures
        for metric, key in FIGURES.items():
            assert figures[key] == pytest.approx(expected[name, trace, metric], rel=tolerance), (name, metric)
        averages[name] = figures["average_jct_seconds"]
    assert averages["SRSF"] < averages["SRTF"] < averages["Tiresias_L"]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_allocation_is_as_published_and_frag_is_at_least_as_good_as_fgd(workload: str) -> None:
    expected = published_allocation(workload)
    for name, (policy, tolerance) in PLACEMENTS.items():
        shares = replay_packing(PackingSettings(TRACES / "openb", workload, policy)).figures["allocated_percent"]
        for load, share in expected[name].items():
            assert shares[load]["mean"] == pytest.approx(share, abs=tolerance), (name, load)
    frag = replay_packing(PackingSettings(TRACES / "openb", workload, "frag")).figures["allocated_percent"]
    assert all(frag[load]["mean"] >= share for load, share in expected["06-FGD"].items())
