"""The last log lines arrive (scenario O-29): for whoever follows and for whoever reads later, however the run ends."""

import threading

import pytest
from live_cluster import LiveCluster, LiveJob
from preemption_cells import LANES, all_of

LOW = {"priority": 1}


@pytest.fixture
def cluster(scenario_cluster: LiveCluster) -> LiveCluster:
    """All of these run under the policy of scenarios (docs/scenarios.md)."""
    return scenario_cluster


class Follower:
    """`makeway logs --follow`, beside the test."""

    def __init__(self, cluster: LiveCluster, job: LiveJob) -> None:
        self.code: int | None = None
        self.text = b""
        self._thread = threading.Thread(target=self._follow, args=(cluster, job.job_id))
        self._thread.start()

    def _follow(self, cluster: LiveCluster, job_id: str) -> None:
        done = cluster.run("logs", "--follow", job_id, check=False, encoding="latin-1")
        self.code, self.text = done.returncode, done.stdout.encode("latin-1")

    def wait(self) -> bytes:
        """All that was read, once the stream has ended by itself."""
        self._thread.join(60)
        assert not self._thread.is_alive(), "the follower does not end"
        return self.text


def _later(cluster: LiveCluster, job: LiveJob) -> bytes:
    return b"".join(cluster.client.logs(job.job_id))


def _count(job: LiveJob, first: int, last: int) -> None:
    for number in range(first, last):
        job.tell(f"print {number}")


def test_every_line_to_the_last_arrives_however_the_run_ends(cluster: LiveCluster, unique: str) -> None:
    """Cancelled, failed, over its limit, killed on its node, evicted and resumed, and without a last line break."""
    kinds = ("cancelled", "failed", "limited", "killed", "evicted", "unbroken")
    jobs: dict[str, LiveJob] = {}
    for kind, card in zip(kinds, LANES, strict=False):
        limit = {"time_limit": 4} if kind == "limited" else {}
        on_notice = "ignore" if kind == "killed" else "bye"
        name = f"{unique}-{kind}"
        jobs[kind] = cluster.submit(name, gpu_type=card, on_notice=on_notice, grace=1.0, **limit, **LOW)
    followers = {kind: Follower(cluster, job) for kind, job in jobs.items()}
    for job in jobs.values():
        job.wait_for("started")
        _count(job, 0, 57)
        job.obey("print 57")

    jobs["cancelled"].cancel()
    jobs["killed"].cancel()
    jobs["failed"].tell("print BYE", "exit 3")
    jobs["unbroken"].tell("write BYE", "exit 0")
    heir = cluster.submit(f"{unique}-heir", gpu_type=LANES[kinds.index("evicted")], priority=100)
    heir.wait_for("started")
    heir.tell("exit 0")
    jobs["evicted"].wait_for("started", run=2)
    jobs["evicted"].tell("print 58", "exit 0")

    expected = {kind: b"".join(b"%d\n" % number for number in range(58)) for kind in kinds}
    for kind in ("cancelled", "failed", "limited"):
        expected[kind] += b"BYE\n"
    expected["evicted"] += b"BYE\n58\n"
    expected["unbroken"] += b"BYE"
    ends = {"cancelled": "CANCELLED", "killed": "CANCELLED", "failed": "FAILED", "limited": "TIMED_OUT"}

    def complete(kind: str) -> None:
        assert jobs[kind].wait_end().state == ends.get(kind, "SUCCEEDED")
        assert followers[kind].wait() == expected[kind], "what was followed"
        assert _later(cluster, jobs[kind]) == expected[kind], "what was read later"

    all_of([(kind, lambda kind=kind: complete(kind)) for kind in kinds])  # type: ignore[misc]


def test_twenty_mebibytes_in_the_last_second_arrive(cluster: LiveCluster, unique: str) -> None:
    job = cluster.submit(unique, gpu_type=LANES[0])
    follower = Follower(cluster, job)
    job.wait_for("started")
    lines = 20 * 1024 * 1024 // 100
    job.tell(f"fill {lines * 100}", "exit 0")
    assert job.wait_end().state == "SUCCEEDED"
    expected = b"".join(b"%099d\n" % number for number in range(lines))
    for text in (follower.wait(), _later(cluster, job)):
        assert len(text) == len(expected)
        assert text == expected


@pytest.mark.parametrize("service", ["admission", "executor-node-1"])
def test_a_log_is_whole_though_a_service_dies_while_it_is_followed(
    cluster: LiveCluster, unique: str, service: str
) -> None:
    job = cluster.submit(unique, gpu_type=LANES[1])
    follower = Follower(cluster, job)
    job.wait_for("started")
    _count(job, 0, 20)
    killed = cluster.kill(service)
    _count(job, 20, 40)
    job.tell("exit 0")
    cluster.wait_healthy(service, instead_of=killed)
    assert job.wait_end().state == "SUCCEEDED"
    expected = b"".join(b"%d\n" % number for number in range(40))
    assert follower.wait() == expected
    assert _later(cluster, job) == expected
