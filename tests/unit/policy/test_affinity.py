"""Nodes that a job would rather have, or not, by label."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from makeway_policy.rules import Strategy

Pool = Any
FAST = (("disk", "fast"),)
APP = (("app", "web"),)


@pytest.fixture(params=[Strategy.BINPACK, Strategy.SPREAD, Strategy.FRAG])
def labelled(pool: Pool, request: pytest.FixtureRequest) -> Pool:
    """Three nodes under each strategy; the last is the fast one."""
    rules = replace(pool.policy.classes["scenario"], placement=request.param)
    pool.policy = replace(pool.policy, classes=MappingProxyType({"scenario": rules}))
    for name in ("node-a", "node-b"):
        pool.add_node(name, 2)
    pool.add_node("node-c", 2, labels={"disk": "fast"})
    return pool


def test_a_job_goes_where_the_label_is(labelled: Pool) -> None:
    labelled.submit("job-1", affinity=FAST)
    labelled.run_until(1)
    assert labelled.node_of("job-1") == "node-c"


def test_a_wish_that_cannot_be_met_keeps_nobody_waiting(labelled: Pool) -> None:
    labelled.submit("job-1", gpus=2, affinity=FAST)
    labelled.submit("job-2", gpus=2, affinity=FAST)
    labelled.run_until(1)
    assert labelled.node_of("job-1") == "node-c"
    assert labelled.running() == {"job-1", "job-2"}


def test_jobs_keep_apart_from_their_like_as_long_as_there_is_room_elsewhere(labelled: Pool) -> None:
    for number in range(1, 5):
        labelled.submit(f"web-{number}", at=number, job_labels=APP, anti_affinity=APP)
    labelled.run_until(10)
    assert {labelled.node_of(f"web-{number}") for number in (1, 2, 3)} == {"node-a", "node-b", "node-c"}
    assert "web-4" in labelled.running()


def test_a_job_goes_to_the_jobs_that_it_likes(labelled: Pool) -> None:
    labelled.submit("store", job_labels=APP, affinity=FAST)
    labelled.submit("other", gpus=2, at=1)
    labelled.submit("near", at=2, affinity=APP)
    labelled.run_until(10)
    assert labelled.node_of("near") == labelled.node_of("store") == "node-c"


def test_what_has_ended_is_liked_no_more(labelled: Pool) -> None:
    labelled.submit("web-1", job_labels=APP, affinity=FAST, dur=10)
    labelled.submit("web-2", at=20, anti_affinity=APP, affinity=FAST)
    labelled.run_until(30)
    assert labelled.node_of("web-2") == "node-c"


def test_more_wishes_met_come_first(pool: Pool) -> None:
    pool.add_node("node-a", 1, labels={"disk": "fast"})
    pool.add_node("node-b", 1, labels={"disk": "fast", "net": "fast"})
    pool.add_node("node-c", 1, labels={"disk": "fast", "net": "fast", "noisy": "yes"})
    pool.submit("job-1", affinity=(*FAST, ("net", "fast")), anti_affinity=(("noisy", "yes"),))
    pool.run_until(1)
    assert pool.node_of("job-1") == "node-b"


def test_of_equal_sets_of_victims_the_better_liked_node_gives_way(pool: Pool) -> None:
    pool.add_node("node-a", 1)
    pool.add_node("node-b", 1, labels={"disk": "fast"})
    for name in ("node-a", "node-b"):
        pool.submit(f"on-{name}", pri=1, nodes=frozenset({name}))
    pool.submit("job-hi", pri=10, at=30, affinity=FAST)
    pool.run_until(31)
    assert pool.evictions == {"on-node-b": 1}
