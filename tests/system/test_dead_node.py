"""A machine that is paused for so long that somebody gives it up, and that wakes up all the same."""

from collections.abc import Callable

from live_cluster import LiveCluster, wait_until


def test_a_node_that_is_given_up_and_wakes_up_stops_what_runs_elsewhere_by_then(
    new_cluster: Callable[..., LiveCluster], unique: str
) -> None:
    cluster = new_cluster(simulate="1xT4-16GB", nodes=2)
    job = cluster.submit(f"{unique}-job", on_notice="leave")
    job.wait_for("started")
    node = str(job.view().node)
    heard = cluster.run("node", "dead", node, check=False)
    assert (heard.returncode, "the node is heard" in heard.stderr) == (120, True)

    with cluster.stopped(f"executor-{node}"):
        job.wait_state("UNKNOWN")
        assert "dead" in cluster.run("node", "dead", node, "--reason", "no answer").stdout
        job.wait_for("started", run=2)
        assert job.view().node != node
        assert cluster.sql("SELECT end_cause FROM runs WHERE run_number = 1") == [{"end_cause": "node_lost"}]
        assert job.alive(1), "nobody can stop what runs on a machine that does not answer"
        # That is what whoever says "dead" answers for: the jobs' own lock tells of it.
        violations = cluster.work / "violations"
        assert "lock was still held when run 2" in violations.read_text()
        violations.unlink()

    wait_until(lambda: not job.alive(1), "what the node still runs is stopped")
    wait_until(lambda: "dead" not in cluster.run("node", "list").stdout.lower(), "the node takes part again")
    assert job.alive(2)
    job.tell("exit 0", run=2)
    assert job.wait_end().state == "SUCCEEDED"
