"""Nothing is started twice and nothing lingers: scenarios O-09, O-13 and O-14, on clusters of their own."""

import time
from collections.abc import Callable

import pytest
from broker_tap import Letter, publish, read
from laws import processes_of
from live_cluster import LiveCluster, wait_until
from makeway_schemas.topics import SCHEDULER_INBOX
from preemption_cells import LANES, POOL, all_of
from scenario_stage import SCENARIO_POLICY


@pytest.fixture
def cluster(scenario_cluster: LiveCluster) -> LiveCluster:
    """All of these run under the policy of scenarios (docs/scenarios.md)."""
    return scenario_cluster


TWELVE = ",".join([f"4x{POOL}", *(f"1x{lane}" for lane in LANES)])


def test_a_restart_admits_nothing_twice(new_cluster: Callable[..., LiveCluster]) -> None:
    """O-09, with the four GPUs on two nodes. Deleting records of ended jobs is nothing that users can do: the test
    deletes them by SQL.
    """
    cluster = new_cluster(simulate="2xT4-16GB", nodes=2, policy=SCENARIO_POLICY)
    wait_until(lambda: len(cluster.client.gpus()) == 4, "both nodes have registered")
    jobs = [cluster.submit(f"job-{number:02}", priority=500) for number in range(10)]
    for job in jobs[:4]:
        job.wait_for("started")
    pids = [job.pid() for job in jobs[:4]]

    cluster.kill_and_wait("scheduler")
    before = cluster.sql("SELECT epoch FROM pools")[0]["epoch"]
    assert before >= 2
    assert [job.pid() for job in jobs[:4]] == pids
    assert all(job.alive() for job in jobs[:4])
    assert not any(job.runs for job in jobs[4:])

    running, waiting = jobs[:4], jobs[4:]
    for _ in range(2):
        running.pop(0).tell("exit 0")
        following = waiting.pop(0)
        following.wait_for("started")
        assert not any(job.runs for job in waiting), "they start in the order of their submit"
        running.append(following)
    for job in jobs[:2]:
        assert job.wait_end().state == "SUCCEEDED"
        wait_until(lambda job=job: not cluster.sql("SELECT 1 FROM leases WHERE run_id LIKE $1", f"{job.job_id}.%"), "")
    _delete_finished_records(cluster)
    cluster.kill_and_wait("scheduler")
    assert [job.alive() for job in running] == [True] * 4
    while running:
        running.pop(0).tell("exit 0")
        if waiting:
            following = waiting.pop(0)
            following.wait_for("started")
            assert not any(job.runs for job in waiting)
            running.append(following)
    for job in jobs[2:]:
        assert job.wait_end().state == "SUCCEEDED"
    assert [job.runs for job in jobs] == [[1]] * 10
    assert cluster.sql("SELECT count(*) AS n FROM runs")[0]["n"] == 8
    del cluster.jobs[:2]


def _delete_finished_records(cluster: LiveCluster) -> None:
    ended = [row["job_id"] for row in cluster.sql("SELECT job_id FROM job_states WHERE ended_at IS NOT NULL")]
    assert len(ended) == 2
    for table in ("job_events", "decisions", "runs", "idempotency_keys", "job_states", "jobs"):
        cluster.sql(f"DELETE FROM {table} WHERE job_id = ANY ($1)", ended)


def test_a_message_that_is_delivered_again_starts_nothing_again(cluster: LiveCluster, unique: str) -> None:
    """O-13: the job's submit comes again while it runs, while it ends, and after its end."""
    job = cluster.submit(f"{unique}-job", gpu_type=LANES[0])
    job.wait_for("started")
    submit = _admission_of(cluster, job.job_id)
    publish(cluster, SCHEDULER_INBOX, "default", [submit] * 3)
    other = cluster.submit(f"{unique}-other", gpu_type=LANES[1])
    other.wait_for("started")
    job.tell("exit 0")
    publish(cluster, SCHEDULER_INBOX, "default", [submit] * 3)
    assert job.wait_end().state == "SUCCEEDED"
    publish(cluster, SCHEDULER_INBOX, "default", [submit] * 3)
    cluster.kill_and_wait("scheduler")  # its successor reads the last messages once more
    publish(cluster, SCHEDULER_INBOX, "default", [submit] * 3)
    other.tell("exit 0")
    assert other.wait_end().state == "SUCCEEDED"
    after = cluster.submit(f"{unique}-after", gpu_type=LANES[0])
    after.wait_for("started")
    after.tell("exit 0")
    assert after.wait_end().state == "SUCCEEDED"
    assert (job.view().state, job.view().run_number, job.runs) == ("SUCCEEDED", 1, [1])
    assert len(job.journal("leaves")) == 1


def _admission_of(cluster: LiveCluster, job_id: str) -> Letter:
    """The message with which the job came, as it lies in the inbox."""
    marked = f'"{job_id}/admitted"'.encode()

    def found() -> Letter | None:
        letters = read(cluster, SCHEDULER_INBOX, "default")
        return next((letter for letter in letters if marked in (letter.value or b"").replace(b" ", b"")), None)

    return wait_until(found, "the job's submit is in the inbox")


START_DELAY_SECONDS = 3.0
OFFSETS = (0.0, 0.4, 0.8, 1.2, 1.6, 2.0, 2.4, 2.8, 2.9, 3.0, 3.1, 3.3)


@pytest.mark.timeout(180)
def test_a_cancel_while_the_job_is_being_started_frees_its_gpu(new_cluster: Callable[..., LiveCluster]) -> None:
    """O-14, at a tenth of its times: an offset a card; the slow start is a test hook of the executor."""
    cluster = new_cluster(
        simulate=TWELVE, policy=SCENARIO_POLICY, settings={"TEST_START_DELAY_SECONDS": str(START_DELAY_SECONDS)}
    )
    cards = [POOL] * 4 + list(LANES)
    first = [cluster.submit(f"first-{place}", gpu_type=card, on_notice="exit") for place, card in enumerate(cards)]
    began = time.monotonic()
    for job in first:
        job.may_die_early = True
    for offset, job in zip(OFFSETS, first, strict=True):
        time.sleep(max(0.0, began + offset - time.monotonic()))  # the offset is what is tried here
        job.cancel()
    ended = [job.wait_end() for job in first]
    assert {view.state for view in ended} == {"CANCELLED"}
    assert processes_of([job.job_id for job in first]) == {}
    for offset, job in zip(OFFSETS, first, strict=True):
        assert offset > START_DELAY_SECONDS - 0.5 or job.runs == [], f"cancelled after {offset} s, started all the same"
    wait_until(lambda: sum(team.gpus_used for team in cluster.client.teams()) == 0, "no team uses anything")
    assert {gpu.state for gpu in cluster.client.gpus()} == {"FREE"}

    second = [cluster.submit(f"second-{place}", gpu_type=card) for place, card in enumerate(cards)]

    def runs_through(place: int) -> None:
        second[place].wait_for("started")
        second[place].tell("exit 0")
        assert second[place].wait_end().state == "SUCCEEDED"
        assert first[place].view().state == "CANCELLED"

    all_of([(f"{offset} s", lambda place=place: runs_through(place)) for place, offset in enumerate(OFFSETS)])  # type: ignore[misc]
    late = cluster.client.cancel(second[0].job_id)
    assert (late.state, late.command_id) == ("SUCCEEDED", None)
    assert "ended before" in late.message
    assert second[0].view().state == "SUCCEEDED"
