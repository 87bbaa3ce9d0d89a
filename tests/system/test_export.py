"""The history of a live cluster, exported and replayed."""

import gzip
import json
from pathlib import Path

from live_cluster import LiveCluster
from makeway_simulator.readers.event_log import read_event_log
from makeway_simulator.readers.table import Skipping
from preemption_cells import LANES, Cell


def test_what_happened_can_be_exported_and_replayed(cluster: LiveCluster, unique: str, tmp_path: Path) -> None:
    begin = cluster.sql("SELECT coalesce(max(event_id), 0) AS newest FROM job_events")[0]["newest"]
    cell = Cell(cluster=cluster, name=unique, card=LANES[0])
    cell.reach("resumed")
    cell.victim.tell("exit 0")
    assert cell.victim.wait_end().state == "SUCCEEDED"

    log = tmp_path / "history.jsonl.gz"
    told = cluster.run("export", str(log), "--after", str(begin)).stderr
    events = [json.loads(line) for line in gzip.decompress(log.read_bytes()).splitlines()]
    assert told == f"{len(events)} events in {log}\n"
    assert [event["sequence"] for event in events] == sorted({event["sequence"] for event in events})

    jobs = {job.job_id: job for job in read_event_log(log, Skipping()).jobs}
    victim, preemptor = jobs[cell.victim.job_id], jobs[cell.preemptor.job_id]
    seen = cell.victim.view()
    assert (victim.gpus, victim.class_name, victim.submitted_at) == (1, seen.class_name, 0.0)
    kept = sum(run.run_seconds or 0.0 for run in seen.runs)
    assert 0 < victim.work_seconds < kept + 1
    assert preemptor.submitted_at > 0

    replayed = cluster.run("replay", str(log), "--format", "events", "--nodes", "1x1", "--output", "json").stdout
    assert json.loads(replayed)["jobs"] == 2


def test_an_export_to_stdout_is_the_events_alone(cluster: LiveCluster) -> None:
    done = cluster.run("export")
    assert all(json.loads(line)["kind"] for line in done.stdout.splitlines())
    assert done.stderr == f"{len(done.stdout.splitlines())} events\n"


def test_an_export_that_cannot_be_written_leaves_nothing(cluster: LiveCluster, tmp_path: Path) -> None:
    done = cluster.run("export", str(tmp_path / "nowhere" / "log"), check=False)
    assert done.returncode == 1
    assert "cannot be written: No such file or directory" in done.stderr
    assert list(tmp_path.iterdir()) == []
