"""On the real services: an applied policy changes who runs, at once; a cluster begins with the one it is given."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from makeway.local.lifecycle import take_down
from makeway_schemas.states import JobState

SWAPPED = """
preset: plain
classes:
  low: {value: 600, own_value_min: 550, own_value_max: 650, grace: 1s}
  normal: {value: 200, own_value_min: 100, own_value_max: 300, grace: 1s}
"""


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


@pytest.fixture
def restored(live: Any) -> Iterator[Any]:
    """The cluster, which has the default policy again afterwards."""
    yield live
    live.client.apply_policy("default", {"preset": "default"})


def test_an_applied_policy_changes_who_runs_at_once(restored: Any) -> None:
    client = restored.client
    normal = client.submit({"command": ["sleep", "300"], "gpus": 2}).job_id
    wait_until(lambda: client.job(normal).state is JobState.RUNNING, "the normal job runs")
    low = client.submit({"command": ["sleep", "300"], "gpus": 2, "class": "low"}).job_id
    wait_until(lambda: client.why(low).reason != "", "the low job waits")
    file = restored.folder / "swapped.yaml"
    file.write_text(SWAPPED)
    code, out, err = restored.run("policy", "apply", str(file), "--dry-run", "--output", "json")
    told = json.loads(out)
    assert (code, told["applied"]) == (0, False), err
    assert {normal: (500, 200), low: (200, 600)}.items() <= {
        each["job_id"]: (each["before"], each["after"]) for each in told["jobs"]
    }.items()
    assert client.job(normal).state is JobState.RUNNING
    assert restored.run("policy", "apply", str(file))[0] == 0
    wait_until(lambda: client.job(normal).state is not JobState.RUNNING, "the normal job leaves", seconds=3.0)
    wait_until(lambda: client.job(low).state is JobState.RUNNING, "the low job runs")
    assert b"value: 600" in restored.run("policy", "show")[1]
    for job in (low, normal):
        client.cancel(job)
    wait_until(lambda: all(client.job(job).state is JobState.CANCELLED for job in (low, normal)), "both have ended")
    assert [event.data["value"] for event in client.events(normal) if event.kind == "revalued"] == [200]


def test_a_class_that_jobs_are_in_is_refused_with_its_line(restored: Any) -> None:
    job = restored.client.submit({"command": ["sleep", "300"], "gpus": 0, "class": "low"}).job_id
    file = restored.folder / "without.yaml"
    file.write_text("classes:\n  low: null\n")
    code, _, err = restored.run("policy", "apply", str(file))
    assert (code, f"{file}:2:3: classes.low: must stay" in err) == (120, True), err
    assert "low" in restored.client.policy("default").effective["classes"]
    restored.client.cancel(job)


def test_a_cluster_begins_with_the_policy_it_is_given(live: Any, tmp_path: Path) -> None:
    root = tmp_path / "another"
    try:
        code, _, err = live.run(
            "up", "--state", str(root), "--simulate", "1xA100-80GB", "--policy", "plain", seconds=180
        )
        assert code == 0, err
        shown = live.run("policy", "show", "--state", str(root), "--output", "json")[1]
        assert json.loads(shown)["document"] == {"preset": "plain"}
        again = live.run("up", "--state", str(root), "--policy", "fifo")
        assert (again[0], "`makeway policy apply` changes its policy" in again[2]) == (0, True)
        assert live.run("up", "--state", str(root), "--policy", "nosuch.yaml")[0] == 120
    finally:
        take_down(root, grace_seconds=0.5, wipe=True)
