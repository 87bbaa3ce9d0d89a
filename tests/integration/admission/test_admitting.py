"""The transaction that admits, seen from two connections at once."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
import servers
from admission_harness import until
from makeway_admission.admitting import JobRequest, admit_jobs
from makeway_runtime.postgres.pool import Connection
from makeway_schemas.ids import new_job_id


def request(**values: object) -> JobRequest:
    fields: dict[str, object] = {
        "job_id": new_job_id(),
        "team": "team-a",
        "name": "job",
        "class_name": "normal",
        "spec": '{"command": ["true"]}',
        "whole_gpus": 1,
        "class_needs_allowance": False,
        "not_preemptible": False,
        "hard_group": False,
        "submitted_by": "tests",
        **values,
    }
    return JobRequest(**fields)  # type: ignore[arg-type]


@pytest.fixture
async def connections(database: servers.Database) -> AsyncIterator[list[Connection]]:
    """Two connections of admission's role, and a team with room for one job."""
    superuser = await asyncpg.connect(database.dsn)
    await superuser.execute("INSERT INTO teams (team_id, max_queued, configured) VALUES ('team-a', 1, true)")
    await superuser.close()
    opened = [await asyncpg.connect(database.role_dsn("makeway_admission")) for _ in range(2)]
    yield opened  # type: ignore[misc]
    for connection in opened:
        await connection.close()


async def _blocked(connection: Connection) -> bool:
    return bool(await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))


async def test_the_last_place_in_the_queue_goes_to_one(connections: list[Connection]) -> None:
    first, second = connections
    async with first.transaction():
        (mine,) = await admit_jobs(first, "default", [], [request()])
        theirs = asyncio.create_task(admit_jobs(second, "default", [], [request()]))
        await until(lambda: _blocked(first), "the second waits for the first")
    assert mine.outcome == "admitted"
    assert [each.outcome for each in await theirs] == ["queue_full"]


async def test_one_key_on_two_connections_is_one_job(connections: list[Connection]) -> None:
    first, second = connections
    keyed = {"key": "k", "request_hash": b"h" * 32}
    async with first.transaction():
        (mine,) = await admit_jobs(first, "default", [], [request(**keyed)])
        theirs = asyncio.create_task(admit_jobs(second, "default", [], [request(**keyed)]))
        await until(lambda: _blocked(first), "the second waits for the first")
    (repeated,) = await theirs
    assert (repeated.outcome, repeated.job_id) == ("repeated", mine.job_id)


async def test_a_transaction_that_is_rolled_back_leaves_its_place(connections: list[Connection]) -> None:
    first, second = connections
    transaction = first.transaction()
    await transaction.start()
    await admit_jobs(first, "default", [], [request()])
    theirs = asyncio.create_task(admit_jobs(second, "default", [], [request()]))
    await until(lambda: _blocked(first), "the second waits for the first")
    await transaction.rollback()
    assert [each.outcome for each in await theirs] == ["admitted"]


async def test_each_request_of_a_batch_is_decided_by_itself_and_sees_those_before_it(
    connections: list[Connection],
) -> None:
    twice = {"key": "k", "request_hash": b"h" * 32}
    batch = [
        request(team="nosuch"),
        request(**twice),
        request(**twice),
        request(key="k", request_hash=b"x" * 32),
        request(),
    ]
    written = await admit_jobs(connections[0], "default", [], batch)
    assert [each.outcome for each in written] == ["unknown_team", "admitted", "repeated", "key_reused", "queue_full"]
    assert {written[position].job_id for position in (1, 2, 3)} == {batch[1].job_id}
    assert [each.outbox_id is not None for each in written] == [False, True, False, False, False]


async def test_the_same_call_again_after_a_lost_answer_is_the_same_job(connections: list[Connection]) -> None:
    call = [request()]
    (first,) = await admit_jobs(connections[0], "default", [], call)
    (again,) = await admit_jobs(connections[1], "default", [], call)
    assert (again.outcome, again.job_id, again.outbox_id) == ("admitted", first.job_id, None)
    assert await connections[0].fetchval("SELECT count(*) FROM admission_outbox") == 1
    assert await connections[0].fetchval("SELECT admitted FROM teams WHERE team_id = 'team-a'") == 1


async def test_published_rows_are_forgotten_in_the_next_transaction(connections: list[Connection]) -> None:
    (first,) = await admit_jobs(connections[0], "default", [], [request()])
    await admit_jobs(connections[0], "default", [first.outbox_id or 0, 12345], [request(team="nosuch")])
    assert await connections[0].fetchval("SELECT count(*) FROM admission_outbox") == 0


async def test_a_job_takes_a_place_in_its_own_teams_queue_alone(
    connections: list[Connection], database: servers.Database
) -> None:
    await servers.execute(database.dsn, "INSERT INTO teams (team_id, max_queued) VALUES ('team-b', 1)")
    batch = [request(), request(team="team-b"), request(team="team-b"), request()]
    written = await admit_jobs(connections[0], "default", [], batch)
    assert [each.outcome for each in written] == ["admitted", "admitted", "queue_full", "queue_full"]


async def test_only_rows_that_are_published_are_forgotten(
    connections: list[Connection], database: servers.Database
) -> None:
    await servers.execute(database.dsn, "UPDATE teams SET max_queued = 5")
    first, second = await admit_jobs(connections[0], "default", [], [request(), request()])
    (third,) = await admit_jobs(connections[0], "default", [first.outbox_id or 0], [request()])
    rows = await connections[0].fetch("SELECT outbox_id FROM admission_outbox ORDER BY outbox_id")
    assert [row["outbox_id"] for row in rows] == [second.outbox_id, third.outbox_id]


@pytest.mark.parametrize("need", ["class_needs_allowance", "not_preemptible", "hard_group"])
async def test_an_allowance_bounds_each_job_and_without_one_not_even_a_job_without_gpus_may(
    connections: list[Connection], database: servers.Database, need: str
) -> None:
    def asked(gpus: int) -> JobRequest:
        return request(whole_gpus=gpus, **{need: True})

    await servers.execute(database.dsn, "UPDATE teams SET max_queued = 5")
    (without,) = await admit_jobs(connections[0], "default", [], [asked(0)])
    allowed = '{"normal": 2, "not_preemptible": 2, "hard_groups": 2}'
    await servers.execute(database.dsn, f"UPDATE teams SET allowances = '{allowed}'")
    within, beyond = await admit_jobs(connections[0], "default", [], [asked(2), asked(3)])
    assert without.outcome == beyond.outcome != within.outcome == "admitted"
    assert (without.bound, beyond.bound) == (0, 2)
