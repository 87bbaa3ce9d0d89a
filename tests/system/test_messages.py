"""Messages that come twice, late, in another order, spoilt, or from nobody who may send them."""

import json
import random
from dataclasses import replace

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from broker_tap import Letter, publish, read
from live_cluster import LiveCluster, LiveJob, wait_until
from makeway_schemas.topics import DEAD_LETTERS, NODE_PLANS, SCHEDULER_INBOX
from preemption_cells import LANES, Cell
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

POOL = "default"
NODE = "node-1"
ONE, TWO, THREE = LANES[:3]


def _through_the_inbox(cluster: LiveCluster, name: str, card: str) -> None:
    """A job from submit to end: whatever was in the inbox before it has been handled then."""
    job = cluster.submit(name, gpu_type=card)
    job.wait_for("started")
    job.tell("exit 0")
    assert job.wait_end().state == "SUCCEEDED"


def test_all_messages_again_in_any_order_change_nothing(cluster: LiveCluster, unique: str) -> None:
    cell = Cell(cluster=cluster, name=f"{unique}-cell", card=ONE)
    cell.reach("acked")
    ended = cluster.submit(f"{unique}-ended", gpu_type=TWO)
    ended.wait_for("started")
    ended.tell("exit 4")
    ended.wait_end()
    jobs = [cell.victim, cell.preemptor, ended]
    before = [_essence(job) for job in jobs]

    letters = read(cluster, SCHEDULER_INBOX, POOL)[-200:]
    shuffled = letters.copy()
    random.Random(7).shuffle(shuffled)
    publish(cluster, SCHEDULER_INBOX, POOL, [*reversed(letters), *shuffled])
    _through_the_inbox(cluster, f"{unique}-after", THREE)

    assert [_essence(job) for job in jobs] == before
    cell.finish()


def _essence(job: LiveJob) -> tuple[object, ...]:
    view = job.view()
    runs = [(run.number, run.state, run.started_at, run.ended_at, run.end_cause, run.exit_code) for run in view.runs]
    return (view.state, view.preemptions, view.last_ack_step, view.exit_code, view.ended_at, runs)


def test_poison_in_a_batch_goes_to_the_dead_letters_and_the_stream_goes_on(cluster: LiveCluster, unique: str) -> None:
    good = next(letter for letter in reversed(read(cluster, SCHEDULER_INBOX, POOL)) if letter.value)
    marks = [f"{unique}-{number}" for number in range(4)]
    unread = replace(good, value=json.dumps({"version": 1, "source": marks[0], "facts": [{"kind": "x"}]}).encode())
    no_json = replace(good, value=marks[1].encode())
    no_event = Letter(key=good.key, value=marks[2].encode(), headers=())
    binary = replace(good, value=b"\xff\xfe" + marks[3].encode())
    publish(cluster, SCHEDULER_INBOX, POOL, [good, unread, no_json, good, no_event, binary, good])
    _through_the_inbox(cluster, f"{unique}-after", ONE)

    def kept() -> list[bytes]:
        found = [letter.value or b"" for letter in read(cluster, DEAD_LETTERS, "any")]
        return [value for value in found if unique.encode() in value]

    wait_until(lambda: len(kept()) >= 4, "the poison is kept")
    for mark in marks:
        assert [value for value in kept() if mark.encode() in value], f"{mark} is among the dead letters"


def test_a_stale_plan_that_comes_last_is_refused(cluster: LiveCluster, unique: str) -> None:
    cancelled = cluster.submit(f"{unique}-cancelled", gpu_type=ONE)
    cancelled.wait_for("started")
    stale = [letter for letter in read(cluster, NODE_PLANS, NODE) if letter.key == NODE.encode()][-1]
    assert cancelled.job_id in (stale.value or b"").decode()
    cancelled.tell("exit 0")
    cancelled.wait_end()
    running = cluster.submit(f"{unique}-running", gpu_type=TWO)
    running.wait_for("started")

    publish(cluster, NODE_PLANS, NODE, [stale])  # it wants a run that has ended, and does not know the one that runs
    _through_the_inbox(cluster, f"{unique}-after", ONE)
    cluster.kill_and_wait("executor-node-1")  # the next executor must not take it for the newest either
    _through_the_inbox(cluster, f"{unique}-later", ONE)

    assert cancelled.runs == [1]
    assert running.alive()
    running.tell("exit 0")
    assert running.wait_end().state == "SUCCEEDED"


def test_a_wrong_token_opens_no_door(cluster: LiveCluster) -> None:
    token_id = cluster.token.split("_")[1]
    for token in ("", "nonsense", f"mw_{token_id}_wrong", f"mw_{'0' * 12}_{cluster.token.split('_', 2)[2]}"):
        with cluster.http(token) as http:
            for path in ("/v1/jobs", "/v1/nodes", "/v1/tokens"):
                answer = http.get(path)
                assert answer.status_code == 401, f"{path} with {token[:6]!r}"
                assert answer.headers["content-type"].startswith("application/problem+json")
            assert http.post("/v1/jobs", json={"command": ["/bin/true"]}).status_code == 401
        channel = f"{cluster.url.replace('http', 'ws', 1)}/v1/nodes/{NODE}/channel"
        login = {"Authorization": f"Bearer {token}"} if token else {}
        with (
            pytest.raises(InvalidStatus) as refused,
            connect(channel, additional_headers=login, proxy=None),
        ):
            pass
        assert refused.value.response.status_code in (401, 403)


async def test_the_broker_takes_nothing_without_its_password(cluster: LiveCluster) -> None:
    address = cluster.kafka()
    for login in (
        {},
        {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "makeway",
            "sasl_plain_password": "wrong",
        },
    ):
        producer = AIOKafkaProducer(bootstrap_servers=address.bootstrap, request_timeout_ms=2000, **login)
        with pytest.raises(KafkaError):
            await producer.start()
        await producer.stop()
