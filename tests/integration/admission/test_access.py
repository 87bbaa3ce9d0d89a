"""Who may do what: roles, teams, nodes, revocation."""

from typing import Any

import httpx
import pytest
from admission_harness import ADMIN, NODE, Admission, bearer, until

ROLES = ("viewer", "submitter", "admin")


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer mw_admin0_wrong",
        "Bearer mw_admin0_" + "b" * 32,
        "Bearer mw_nobody_" + "a" * 32,
        "Basic " + ADMIN,
        "Bearer " + ADMIN + "x",
        "Bearer mw_' OR 1=1 --_" + "a" * 32,
    ],
)
async def test_without_a_good_token_nothing_is_answered(lone_admission: Admission, header: str | None) -> None:
    lone_admission.client.headers.pop("authorization")
    headers = {} if header is None else {"Authorization": header}
    for method, path in (
        ("GET", "/v1/jobs"),
        ("POST", "/v1/jobs"),
        ("GET", "/v1/jobs/000000000000/logs"),
        ("GET", "/v1/events"),
        ("GET", "/metrics"),
        ("POST", "/v1/tokens"),
    ):
        answer = await lone_admission.client.request(method, path, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), path
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_health_and_the_description_need_no_token(lone_admission: Admission) -> None:
    lone_admission.client.headers.pop("authorization")
    health = await lone_admission.client.get("/healthz")
    assert health.json() == {"healthy": True, "checks": {"postgres": "ok", "outbox": "ok"}}
    assert (await lone_admission.client.get("/openapi.json")).json()["openapi"].startswith("3.")


async def test_each_role_may_do_what_it_is_for_and_no_more(lone_admission: Admission) -> None:
    job = await lone_admission.submitted(team="team-a")
    tokens = {role: await lone_admission.token(role=role, team="team-a") for role in ROLES}
    tokens |= {"all": ADMIN, "node": NODE}
    matrix = {
        ("GET", "/v1/jobs"): ("viewer", "submitter", "admin", "all"),
        ("GET", f"/v1/jobs/{job}"): ("viewer", "submitter", "admin", "all"),
        ("GET", f"/v1/jobs/{job}/why"): ("viewer", "submitter", "admin", "all"),
        ("GET", "/v1/nodes"): ("viewer", "submitter", "admin", "all"),
        ("GET", "/metrics"): ("viewer", "submitter", "admin", "all"),
        ("POST", f"/v1/jobs/{job}/cancel"): ("submitter", "admin", "all"),
        ("DELETE", f"/v1/jobs/{job}"): ("submitter", "admin", "all"),
        ("GET", "/v1/tokens"): ("admin", "all"),
        ("PUT", f"/v1/jobs/{job}/priority"): ("all",),
        ("PUT", "/v1/teams/team-a"): ("all",),
    }
    bodies = {f"/v1/jobs/{job}/priority": {"priority": 1}, "/v1/teams/team-a": {}}
    for (method, path), allowed in matrix.items():
        for role, token in tokens.items():
            answer = await lone_admission.client.request(method, path, json=bodies.get(path), headers=bearer(token))
            if role in allowed:
                assert answer.status_code in (200, 202), (role, method, path, answer.text)
            else:
                assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), (role, method, path)
    assert (await lone_admission.submit(token=tokens["viewer"])).status_code == 403
    assert (await lone_admission.submit(token=tokens["submitter"])).status_code == 201


async def refusal(admission: Admission, method: str, path: str, **options: Any) -> httpx.Response:
    """The answer; one that is no refusal is not read to its end, for a stream of events has none."""
    async with admission.client.stream(method, path, **options) as answer:
        if answer.is_error:
            await answer.aread()
        return answer


async def test_another_teams_jobs_do_not_exist(lone_admission: Admission) -> None:
    theirs = await lone_admission.submitted(team="team-b", name="secret")
    token = await lone_admission.token(role="admin", team="team-a")
    paths = (
        ("GET", ""),
        ("GET", "/why"),
        ("GET", "/events"),
        ("GET", "/logs"),
        ("DELETE", ""),
        ("POST", "/cancel"),
    )
    for method, path in paths:
        answer = await refusal(lone_admission, method, f"/v1/jobs/{theirs}{path}", headers=bearer(token))
        assert answer.status_code == 404, path
        assert answer.json()["code"] == "not_found", path
    missing = await lone_admission.client.get("/v1/jobs/000000000000", headers=bearer(token))
    assert missing.status_code == 404
    for ref in (theirs, theirs[:6], "secret"):
        answer = await lone_admission.client.get("/v1/resolve", params={"ref": ref}, headers=bearer(token))
        assert answer.status_code == 404
    assert (await lone_admission.get("/v1/jobs", token=token))["jobs"] == []
    listing = await lone_admission.client.get("/v1/jobs", params={"team": "team-b"}, headers=bearer(token))
    assert listing.status_code == 404
    assert [each["team"] for each in await lone_admission.get("/v1/teams", token=token)] == ["team-a"]
    assert (await lone_admission.submit(token=token, team="team-b")).status_code == 403


async def paths(admission: Admission, **values: str) -> list[tuple[str, str]]:
    """Method and path of everything that the API describes."""
    described = (await admission.client.get("/openapi.json")).json()["paths"]
    filled = {"job_id": "000000000000", "team": "team-b", "node_id": "n1", "command_id": "1", "token_id": "x", **values}
    filled |= {"pool": "default", "run": "1"}
    return [(method.upper(), path.format_map(filled)) for path, item in described.items() for method in item]


async def test_nothing_is_open_to_whoever_has_no_token_or_a_nodes(lone_admission: Admission) -> None:
    node = bearer(NODE)
    for method, path in await paths(lone_admission):
        if path in ("/healthz", "/openapi.json"):
            continue
        nobody = await refusal(lone_admission, method, path, json={}, headers={"Authorization": ""})
        assert nobody.status_code == 401, (method, path)
        a_node = await refusal(lone_admission, method, path, json={}, headers=node)
        assert a_node.status_code == 403, (method, path)


async def test_nothing_of_another_teams_job_is_shown_or_changed_by_any_path(lone_admission: Admission) -> None:
    theirs = await lone_admission.submitted(team="team-b")
    command = (await lone_admission.client.post(f"/v1/jobs/{theirs}/cancel")).json()["command_id"]
    token = bearer(await lone_admission.token(role="admin", team="team-a"))
    commands = await lone_admission.database.fetchval("SELECT count(*) FROM commands")
    bodies = {"PATCH": {"time_limit": 60}, "PUT": {"priority": 1}, "POST": {}}
    for method, path in await paths(lone_admission, job_id=theirs, command_id=str(command)):
        if theirs in path or "/commands/" in path or path == "/v1/teams/team-b":
            answer = await refusal(lone_admission, method, path, json=bodies.get(method), headers=token)
            hidden = 403 if method == "PUT" else 404  # what needs an admin of all teams is refused before
            assert answer.status_code == hidden, (method, path)
    assert await lone_admission.database.fetchval("SELECT count(*) FROM commands") == commands


async def test_an_admin_of_a_team_sees_the_tokens_of_that_team_alone(lone_admission: Admission) -> None:
    token = await lone_admission.token(role="admin", team="team-a")
    await lone_admission.token(role="viewer", team="team-b")
    await lone_admission.token(role="viewer")
    assert [each["team"] for each in await lone_admission.get("/v1/tokens", token=token)] == ["team-a"]


async def test_a_token_bound_to_classes_makes_none_that_may_use_others(lone_admission: Admission) -> None:
    token = await lone_admission.token(role="admin", team="team-a", classes=["P3"])
    for classes in (None, ["urgent"], ["P3", "urgent"]):
        body: dict[str, object] = {"role": "submitter", **({} if classes is None else {"classes": classes})}
        answer = await lone_admission.client.post("/v1/tokens", json=body, headers=bearer(token))
        assert answer.status_code == 422, (classes, answer.text)
    for name in ("P3", "low"):
        body = {"role": "submitter", "classes": [name]}
        answer = await lone_admission.client.post("/v1/tokens", json=body, headers=bearer(token))
        assert (answer.status_code, answer.json().get("classes")) == (201, ["low"]), answer.text


async def test_an_admin_bound_to_classes_operates_nothing_that_others_work_in(lone_admission: Admission) -> None:
    """Else it would give its own classes the rank of those that it is kept from."""
    job, other = await lone_admission.submitted(**{"class": "low"}), await lone_admission.submitted()
    await lone_admission.set_state(job, "RUNNING", run_number=1)
    await lone_admission.set_state(other, "RUNNING", run_number=1)
    token = bearer(await lone_admission.token(role="admin", classes=["low"]))
    pool = lone_admission.settings.pool
    for method, path, body in (
        ("PUT", f"/v1/jobs/{job}/priority", {"priority": 250}),
        ("PUT", f"/v1/policies/{pool}", {"preset": "plain"}),
        ("PUT", f"/v1/policies/{pool}?dry_run=true", {"preset": "plain"}),
        ("PUT", "/v1/teams/team-a", {}),
        ("POST", "/v1/nodes/n1/drain", {}),
        ("POST", f"/v1/jobs/{other}/preempt", {"force": True}),
    ):
        answer = await lone_admission.client.request(method, path, json=body, headers=token)
        assert answer.status_code == 403, (method, path, answer.text)
        assert "bound to the classes low" in answer.json()["detail"]
    forced = await lone_admission.client.post(f"/v1/jobs/{job}/preempt", json={"force": True}, headers=token)
    assert forced.status_code == 202
    a_node = {"role": "node", "node": "n9", "classes": ["low"]}
    assert (await lone_admission.client.post("/v1/tokens", json=a_node, headers=token)).status_code == 422


async def test_an_admin_bound_to_classes_lists_and_revokes_tokens_of_these_alone(lone_admission: Admission) -> None:
    wide = (await lone_admission.client.post("/v1/tokens", json={"role": "viewer"})).json()
    low = (await lone_admission.client.post("/v1/tokens", json={"role": "viewer", "classes": ["low"]})).json()
    token = await lone_admission.token(role="admin", classes=["low", "normal"])
    assert {tuple(each["classes"]) for each in await lone_admission.get("/v1/tokens", token=token)} == {
        ("low",), ("low", "normal"),
    }  # fmt: skip
    for made, status in ((wide, 404), (low, 200)):
        answer = await lone_admission.client.delete(f"/v1/tokens/{made['token_id']}", headers=bearer(token))
        assert answer.status_code == status


async def test_no_token_outlives_the_one_that_made_it(lone_admission: Admission) -> None:
    body = {"role": "admin", "expires_in_seconds": 3600}
    maker = (await lone_admission.client.post("/v1/tokens", json=body)).json()
    for wanted in (None, 60):
        body = {"role": "admin", **({} if wanted is None else {"expires_in_seconds": wanted})}
        made = (await lone_admission.client.post("/v1/tokens", json=body, headers=bearer(maker["token"]))).json()
        assert (made["expires_at"] < maker["expires_at"]) == (wanted == 60)
        assert made["expires_at"] <= maker["expires_at"]
    body["expires_in_seconds"] = 7200
    refused = await lone_admission.client.post("/v1/tokens", json=body, headers=bearer(maker["token"]))
    assert refused.status_code == 422
    assert refused.json()["fields"][0]["field"] == "expires_in_seconds"
    assert "expires itself at" in refused.json()["detail"]


async def test_a_token_submits_only_to_its_classes(lone_admission: Admission) -> None:
    token = await lone_admission.token(role="submitter", team="team-a", classes=["LOW"])
    for word in ("low", "Low", "p3"):
        assert (await lone_admission.submit(token=token, **{"class": word})).status_code == 201
        assert (await lone_admission.get(f"/v1/jobs?class={word}", token=token))["jobs"]
    for fields in ({}, {"class": "urgent"}):
        answer = await lone_admission.submit(token=token, **fields)
        assert answer.status_code == 422
        assert answer.json()["fields"][0]["field"] == "class"


async def test_a_revoked_token_is_refused_at_once_here_and_within_a_second_elsewhere(
    lone_admission: Admission,
) -> None:
    made = (await lone_admission.client.post("/v1/tokens", json={"role": "viewer"})).json()
    assert (await lone_admission.client.get("/v1/jobs", headers=bearer(made["token"]))).status_code == 200
    revoked = await lone_admission.client.delete(f"/v1/tokens/{made['token_id']}")
    assert revoked.json()["revoked_at"] is not None
    assert (await lone_admission.client.get("/v1/jobs", headers=bearer(made["token"]))).status_code == 401

    other = (await lone_admission.client.post("/v1/tokens", json={"role": "viewer"})).json()
    assert (await lone_admission.client.get("/v1/jobs", headers=bearer(other["token"]))).status_code == 200
    await lone_admission.database.execute("UPDATE tokens SET revoked_at = now() WHERE token_id = $1", other["token_id"])

    async def refused() -> bool:
        return (await lone_admission.client.get("/v1/jobs", headers=bearer(other["token"]))).status_code == 401

    await until(refused, "the revocation is seen", seconds=1.5)


async def test_an_expired_token_is_refused(lone_admission: Admission) -> None:
    made = (await lone_admission.client.post("/v1/tokens", json={"role": "viewer", "expires_in_seconds": 3600})).json()
    await lone_admission.database.execute("UPDATE tokens SET expires_at = now() WHERE token_id = $1", made["token_id"])
    assert (await lone_admission.client.get("/v1/jobs", headers=bearer(made["token"]))).status_code == 401


async def test_secrets_are_kept_as_hashes_and_shown_once(lone_admission: Admission) -> None:
    made = (await lone_admission.client.post("/v1/tokens", json={"role": "viewer", "label": "ci"})).json()
    secret = made["token"].split("_", 2)[2]
    rows = await lone_admission.database.fetch("SELECT row_to_json(t)::text AS row FROM tokens AS t")
    listed = (await lone_admission.client.get("/v1/tokens")).text
    assert not any(secret in row["row"] for row in rows)
    assert secret not in listed
    assert made["token_id"] in listed


async def test_an_admin_of_a_team_makes_tokens_of_that_team_only(lone_admission: Admission) -> None:
    token = await lone_admission.token(role="admin", team="team-a")
    made = await lone_admission.client.post("/v1/tokens", json={"role": "submitter"}, headers=bearer(token))
    assert made.json()["team"] == "team-a"
    for body in ({"role": "viewer", "team": "team-b"}, {"role": "node", "node": "n1"}):
        answer = await lone_admission.client.post("/v1/tokens", json=body, headers=bearer(token))
        assert answer.status_code == 422
    other = (await lone_admission.client.post("/v1/tokens", json={"role": "viewer"})).json()
    revoking = await lone_admission.client.delete(f"/v1/tokens/{other['token_id']}", headers=bearer(token))
    assert revoking.status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"role": "owner"},
        {"role": "node"},
        {"role": "viewer", "node": "n1"},
        {"role": "viewer", "team": "Team A"},
        {"role": "viewer", "classes": ["nosuch"]},
        {"role": "viewer", "label": "a\nb"},
        {"role": "viewer", "expires_in_seconds": -1},
        {"role": "viewer", "expires_in_seconds": 1e300},
        {"role": "viewer", "secret": "x"},
        {},
    ],
)
async def test_a_token_request_that_makes_no_sense_is_refused(lone_admission: Admission, body: object) -> None:
    before = await lone_admission.count("tokens")
    answer = await lone_admission.client.post("/v1/tokens", json=body)
    assert answer.status_code == 422
    assert answer.json()["fields"]
    assert await lone_admission.count("tokens") == before


async def test_admission_cannot_write_what_the_scheduler_owns(lone_admission: Admission) -> None:
    import asyncpg

    job = await lone_admission.submitted()
    await lone_admission.set_state(job, "QUEUED")
    own = await asyncpg.connect(lone_admission.settings.postgres_dsn.get_secret_value())
    try:
        for statement in (
            "UPDATE job_states SET state = 'HELD'",
            "DELETE FROM job_states",
            "INSERT INTO pools (pool_id) VALUES ('x')",
            "UPDATE team_progress SET settled = 0",
            "DELETE FROM leases",
            "UPDATE gpus SET live_mib = 0",
            "UPDATE jobs SET team_id = 'x'",
            "DELETE FROM jobs",
            "UPDATE commands SET command = 'x'",
            "DELETE FROM tokens",
            "INSERT INTO gpu_readings (gpu_id, node_id, sampled_at) VALUES ('x', 'x', now())",
            "CREATE TABLE mine (x int)",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await own.execute(statement)
    finally:
        await own.close()
