"""Cancelling and reordering: kept at once with their fact, and honest about jobs that have ended."""

import json

import pytest
from admission_harness import Admission, bearer


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


@pytest.mark.parametrize("priority", [-1, 1001, 10**30])
async def test_a_priority_beyond_the_range_is_refused_with_the_range(lone_admission: Admission, priority: int) -> None:
    job = await lone_admission.submitted()
    answer = await lone_admission.client.put(f"/v1/jobs/{job}/priority", json={"priority": priority})
    message = f"must be 0 to 1000; this is {priority}"
    assert answer.json()["fields"] == [{"field": "priority", "message": message}]


@pytest.mark.parametrize("job", ["000000000000", "nosuch", "..", "%00", "a" * 500])
async def test_a_job_that_is_none_is_not_found(lone_admission: Admission, job: str) -> None:
    for method in ("DELETE", "GET"):
        answer = await lone_admission.client.request(method, f"/v1/jobs/{job}")
        assert answer.status_code == 404


@pytest.mark.parametrize("force", [False, True])
async def test_a_preemption_by_hand_is_kept_with_its_fact(lone_admission: Admission, force: bool) -> None:
    job = await lone_admission.submitted()
    answer = await lone_admission.client.post(f"/v1/jobs/{job}/preempt", json={"force": force})
    assert answer.status_code == 202
    fact = (await _facts(lone_admission))[-1]
    assert (fact["command"], fact["force"], fact["job_id"]) == ("preempt", force, job)


async def test_a_preemption_by_hand_means_the_run_that_was_there_when_it_was_accepted(
    lone_admission: Admission,
) -> None:
    job = await lone_admission.submitted()
    path = f"/v1/jobs/{job}/preempt"
    await lone_admission.client.post(path, json={})
    await lone_admission.set_state(job, "RUNNING", run_number=3)
    await lone_admission.client.post(path, json={})
    await lone_admission.client.post(path, json={"run": 2})
    assert [fact["run"] for fact in await _facts(lone_admission) if fact["kind"] == "command_issued"] == [0, 3, 2]
    rows = await lone_admission.database.fetch("SELECT arguments ->> 'run' AS run FROM commands ORDER BY command_id")
    assert [row["run"] for row in rows] == ["0", "3", "2"]
    answer = await lone_admission.client.post(path, json={"run": -1})
    assert [each["field"] for each in answer.json()["fields"]] == ["run"]


async def test_a_command_that_means_the_job_names_no_run(lone_admission: Admission) -> None:
    job = await lone_admission.submitted()
    await lone_admission.client.post(f"/v1/jobs/{job}/resume")
    assert "run" not in (await _facts(lone_admission))[-1]


async def test_only_an_admin_overrules_what_protects_a_run(lone_admission: Admission) -> None:
    job = await lone_admission.submitted(team="default")
    submitter = bearer(await lone_admission.token(role="submitter", team="default"))
    path = f"/v1/jobs/{job}/preempt"
    assert (await lone_admission.client.post(path, json={"force": True}, headers=submitter)).status_code == 403
    assert (await lone_admission.client.post(path, json={}, headers=submitter)).status_code == 202


async def test_what_became_of_a_command_can_be_asked(lone_admission: Admission) -> None:
    job = await lone_admission.submitted()
    command = (await lone_admission.client.post(f"/v1/jobs/{job}/resume")).json()["command_id"]
    path = f"/v1/commands/{command}"
    assert (await lone_admission.get(path))["outcome"] is None
    sql = "INSERT INTO applied_commands (command_id, outcome) VALUES ($1, 'refused: it is not held')"
    await lone_admission.database.execute(sql, command)
    told = await lone_admission.get(path)
    assert (told["outcome"], told["command"], told["job_id"]) == ("refused: it is not held", "resume", job)
    stranger = bearer(await lone_admission.token(role="submitter", team="default"))
    other = await lone_admission.submitted(team="other")
    command = (await lone_admission.client.post(f"/v1/jobs/{other}/cancel")).json()["command_id"]
    for number in (command, 10**6, 2**70):
        answer = await lone_admission.client.get(f"/v1/commands/{number}", headers=stranger)
        assert answer.status_code == 404


async def _add_node(admission: Admission) -> None:
    pool = admission.settings.pool
    await admission.database.execute("INSERT INTO pools (pool_id) VALUES ($1)", pool)
    await admission.database.execute(
        "INSERT INTO nodes (node_id, pool_id, state, session, boot_id) VALUES ('n1', $1, 'READY', '1', 'b')", pool
    )


@pytest.mark.parametrize(
    ("command", "body", "arguments"),
    [
        ("cordon", {"reason": "new fans"}, {"reason": "new fans"}),
        ("drain", {"force": True}, {"reason": "", "force": True}),
        ("uncordon", None, {}),
        ("dead", {"reason": "on fire"}, {"reason": "on fire"}),
    ],
)
async def test_what_an_operator_wants_of_a_node_is_kept_with_its_fact(
    lone_admission: Admission, command: str, body: object, arguments: dict[str, object]
) -> None:
    await _add_node(lone_admission)
    answer = await lone_admission.client.post(f"/v1/nodes/n1/{command}", json=body)
    assert answer.status_code == 202
    fact = (await _facts(lone_admission))[-1]
    assert {name: fact[name] for name in ("kind", "command", "node_id")} == {
        "kind": "node_command_issued",
        "command": command,
        "node_id": "n1",
    }
    assert fact.items() >= arguments.items()
    assert (await lone_admission.get(f"/v1/commands/{answer.json()['command_id']}"))["node_id"] == "n1"


async def test_a_death_cannot_be_forced(lone_admission: Admission) -> None:
    await _add_node(lone_admission)
    answer = await lone_admission.client.post("/v1/nodes/n1/dead", json={"force": True})
    assert answer.status_code == 422
    assert [each["field"] for each in answer.json()["fields"]] == ["force"]


async def test_only_an_admin_of_all_teams_operates_nodes_and_only_those_that_are(lone_admission: Admission) -> None:
    await _add_node(lone_admission)
    headers = bearer(await lone_admission.token(role="admin", team="default"))
    assert (await lone_admission.client.post("/v1/nodes/n1/uncordon", headers=headers)).status_code == 403
    for node in ("n2", "N1", "%00", "a" * 300):
        assert (await lone_admission.client.post(f"/v1/nodes/{node}/drain", json={})).status_code == 404
    assert await lone_admission.count("commands") == 0


async def test_another_deadline_must_come_after_the_time_that_the_job_may_begin_at(lone_admission: Admission) -> None:
    job = await lone_admission.submitted(begin_at="2090-01-02T00:00:00+01:00")
    path = f"/v1/jobs/{job}"
    for deadline in ("2090-01-01T00:00:00Z", "2090-01-01T23:00:00Z"):
        answer = await lone_admission.client.patch(path, json={"deadline": deadline})
        assert answer.status_code == 422
        message = "must be after begin_at, 2090-01-01T23:00:00Z"
        assert answer.json()["fields"] == [{"field": "deadline", "message": message}]
    for deadline in ("2090-01-03T00:00:00Z", None):
        assert (await lone_admission.client.patch(path, json={"deadline": deadline})).status_code == 202


async def test_the_limits_of_a_job_are_changed_by_its_owner_within_bounds(lone_admission: Admission) -> None:
    job = await lone_admission.submitted(time_limit="1h")
    path = f"/v1/jobs/{job}"
    changed = await lone_admission.client.patch(path, json={"time_limit": "2h", "deadline": None})
    assert changed.status_code == 202
    fact = (await _facts(lone_admission))[-1]
    assert (fact["command"], fact["limits"]) == ("set_limits", {"deadline": None, "time_limit": 7200.0})
    for body, field in (
        ({"time_limit": -1}, "time_limit"),
        ({"deadline": "2020-01-01T00:00:00Z"}, "deadline"),
        ({"deadline": "2036-01-01T00:00:00"}, "deadline"),
        ({"grace": 3}, "grace"),
    ):
        answer = await lone_admission.client.patch(path, json=body)
        assert answer.status_code == 422, body
        assert answer.json()["fields"][0]["field"] == field
    assert (await lone_admission.client.patch(path, json={})).status_code == 400
    assert await lone_admission.count("commands") == 1
