"""Cancelling and reordering: kept at once with their fact, and honest about jobs that have ended."""

import json

import pytest
from admission_harness import Admission


async def _facts(admission: Admission) -> list[dict[str, object]]:
    rows = await admission.database.fetch("SELECT fact::text AS fact FROM admission_outbox ORDER BY outbox_id")
    return [json.loads(row["fact"]) for row in rows]


async def test_a_cancel_is_kept_with_its_fact_and_answered_202(lone_admission: Admission) -> None:
    job = await lone_admission.submitted()
    answer = await lone_admission.client.post(f"/v1/jobs/{job}/cancel")
    assert answer.status_code == 202
    accepted = answer.json()
    assert (accepted["job_id"], accepted["state"]) == (job, "QUEUED")
    fact = (await _facts(lone_admission))[-1]
    assert (fact["kind"], fact["command"], fact["command_id"]) == ("command_issued", "cancel", accepted["command_id"])
    assert (fact["job_id"], fact["issued_by"], fact["correlation_id"]) == (job, "admin", job)


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT", "EXPIRED"])
async def test_after_the_end_a_cancel_says_so_and_changes_nothing(lone_admission: Admission, state: str) -> None:
    job = await lone_admission.submitted()
    await lone_admission.set_state(job, state)
    answer = await lone_admission.client.delete(f"/v1/jobs/{job}")
    assert (answer.status_code, answer.json()["state"], answer.json()["command_id"]) == (200, state, None)
    assert state in answer.json()["message"]
    assert await lone_admission.count("commands") == 0


async def test_a_manual_priority_is_kept_and_taken_back(lone_admission: Admission) -> None:
    job = await lone_admission.submitted()
    for priority in (1000, None):
        answer = await lone_admission.client.put(f"/v1/jobs/{job}/priority", json={"priority": priority})
        assert answer.status_code == 202
        fact = (await _facts(lone_admission))[-1]
        assert (fact["command"], fact["priority"]) == ("set_priority", priority)


@pytest.mark.parametrize("body", [{"priority": -1}, {"priority": 1001}, {"priority": 1.5}, {"priority": True}, {}])
async def test_a_priority_out_of_bounds_is_named(lone_admission: Admission, body: object) -> None:
    job = await lone_admission.submitted()
    answer = await lone_admission.client.put(f"/v1/jobs/{job}/priority", json=body)
    assert answer.status_code == 422
    assert [each["field"] for each in answer.json()["fields"]] == ["priority"]
    assert await lone_admission.count("commands") == 0


@pytest.mark.parametrize("job", ["000000000000", "nosuch", "..", "%00", "a" * 500])
async def test_a_job_that_is_none_is_not_found(lone_admission: Admission, job: str) -> None:
    for method in ("DELETE", "GET"):
        answer = await lone_admission.client.request(method, f"/v1/jobs/{job}")
        assert answer.status_code == 404
