"""Contracts that hold for all messages, topics and states."""

import pytest
from makeway_schemas import ids, topics
from makeway_schemas.durations import format_duration, parse_duration
from makeway_schemas.states import JOB_MOVES, RUN_MOVES, TERMINAL, JobState, RunState


def test_a_terminal_state_never_changes() -> None:
    assert all(not JOB_MOVES[state] for state in TERMINAL)


def test_every_state_is_in_its_table_and_reaches_an_end() -> None:
    assert set(JOB_MOVES) == set(JobState)
    assert set(RUN_MOVES) == set(RunState)
    reached: set[JobState] = {JobState.QUEUED}
    for _ in JobState:
        reached |= {move for state in reached for move in JOB_MOVES[state]}
    assert reached == set(JobState)


@pytest.mark.parametrize("waiting", [JobState.QUEUED, JobState.UNSATISFIABLE])
def test_a_waiting_job_starts_at_once_when_a_new_node_makes_it_possible(waiting: JobState) -> None:
    assert {JobState.RESERVED, JobState.STARTING} <= JOB_MOVES[waiting]


def test_a_key_has_one_partition_in_every_process() -> None:
    assert topics.NODE_PLANS.partition_of("node-1") == topics.NODE_PLANS.partition_of("node-1")
    assert {topic.partition_of(f"k{number}") for topic in topics.ALL for number in range(99)} <= set(range(8))


def test_topics_say_how_long_they_are_kept() -> None:
    for topic in topics.ALL:
        assert {"cleanup.policy", "retention.ms", "max.message.bytes"} <= set(topic.config)


def test_ids_are_made_as_they_are_read() -> None:
    job = ids.new_job_id()
    assert ids.is_job_id(job)
    run = ids.run_id(job, 3)
    assert (ids.job_of(run), ids.number_of(run)) == (job, 3)


@pytest.mark.parametrize("seconds", [0.25, 1.0, 59.5, 60.0, 3661.0, 86400.0])
def test_a_printed_duration_is_read_again(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds
