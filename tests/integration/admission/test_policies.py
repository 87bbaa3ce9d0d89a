"""A policy over HTTP: who may apply one, what is refused, what it changes, and what submits are judged by."""

from typing import Any

import httpx
import pytest
from admission_harness import ADMIN, Admission, bearer


async def put(admission: Admission, document: dict[str, Any], *, token: str = ADMIN, **query: Any) -> httpx.Response:
    return await admission.client.put(
        f"/v1/policies/{admission.settings.pool}", json=document, params=query, headers=bearer(token)
    )


async def shown(admission: Admission) -> Any:
    return await admission.get(f"/v1/policies/{admission.settings.pool}")


def fields(answer: httpx.Response) -> dict[str, str]:
    return {each["field"]: each["message"] for each in answer.json()["fields"]}


async def test_without_one_applied_the_default_is_in_force(lone_admission: Admission) -> None:
    policy = await shown(lone_admission)
    assert (policy["policy_id"], policy["document"], policy["effective"]["delta"]) == (None, {}, 10)


async def test_an_applied_policy_judges_submits_from_then_on(lone_admission: Admission) -> None:
    batch = {"value": 130, "own_value_min": 100, "own_value_max": 150, "grace": 5, "grace_max": 60, "alias": "B"}
    document = {"classes": {"batch": batch, "low": {"value": 40, "own_value_max": 80}}, "default_class": "batch"}
    answer = await put(lone_admission, document)
    assert (answer.status_code, answer.json()["applied"]) == (200, True), answer.text
    job = await lone_admission.submitted()
    assert (await lone_admission.get(f"/v1/jobs/{job}"))["class"] == "batch"
    refusals = [
        await lone_admission.submit(**{"class": "B"}, priority=99),
        await lone_admission.submit(**{"class": "low"}, priority=81),
        await lone_admission.submit(**{"class": "batch"}, preemption={"grace": "61s"}),
    ]
    assert [answer.status_code for answer in refusals] == [422, 422, 422]
    assert (await shown(lone_admission))["applied_by"] == "admin"


async def test_a_wrong_policy_is_refused_by_name_and_the_old_one_stays(lone_admission: Admission) -> None:
    assert (await put(lone_admission, {"preset": "plain"})).status_code == 200
    answer = await put(lone_admission, {"detla": 3, "classes": {"high": {"graze": 3}}})
    assert answer.json()["code"] == "unknown_field"
    assert fields(answer) == {
        "detla": "is not a known field; did you mean delta?",
        "classes.high.graze": "is not a known field; did you mean grace?",
    }
    assert "classes.normal.own_value_min" in fields(await put(lone_admission, {"delta": 11}))
    assert fields(await put(lone_admission, {"delta": 0})) == {"delta": "must be at least 1"}
    assert fields(await put(lone_admission, {"hold_expiry": 1e9})) == {"hold_expiry": "must be at most 31622400"}
    assert fields(await put(lone_admission, {"default_class": "huge"})) == {"default_class": "there is no class huge"}
    assert (await shown(lone_admission))["document"] == {"preset": "plain"}
    assert await lone_admission.count("policies") == 1


async def test_a_dry_run_says_what_would_change_and_changes_nothing(lone_admission: Admission) -> None:
    low = await lone_admission.submitted(name="small", **{"class": "low"})
    own = await lone_admission.submitted(**{"class": "low"}, priority=100)
    ended = await lone_admission.submitted(**{"class": "low"})
    await lone_admission.set_state(ended, "SUCCEEDED")
    await lone_admission.set_state(low, "RUNNING")
    answer = (await put(lone_admission, {"classes": {"low": {"value": 150}}, "max_shares": 8}, dry_run=True)).json()
    assert (answer["applied"], answer["jobs_changed"]) == (False, 1)
    assert answer["jobs"] == [
        {
            "job_id": low, "name": "small", "team": "default", "class": "low", "state": "RUNNING",
            "before": 200, "after": 150,
        }
    ]  # fmt: skip
    assert {each["field"]: (each["before"], each["after"]) for each in answer["changes"]} == {
        "name": ("default", "custom"),
        "classes.low.value": (200, 150),
        "max_shares": (4, 8),
    }
    assert own != low
    assert await lone_admission.count("policies") == 0
    assert (await shown(lone_admission))["document"] == {}


async def test_a_class_that_live_jobs_are_in_stays(lone_admission: Admission) -> None:
    job = await lone_admission.submitted(**{"class": "low"})
    without = {"classes": {"low": None}}
    for dry_run in (True, False):
        answer = await put(lone_admission, without, dry_run=dry_run)
        assert fields(answer) == {"classes.low": "must stay: jobs that have not ended are in it (1)"}
    await lone_admission.set_state(job, "SUCCEEDED")
    assert (await put(lone_admission, without)).status_code == 200
    assert (await lone_admission.submit(**{"class": "low"})).status_code == 422


async def test_the_scheduler_is_told_of_a_policy(lone_admission: Admission) -> None:
    number = (await put(lone_admission, {"preset": "plain"})).json()["policy"]["policy_id"]
    assert await lone_admission.database.fetchval("SELECT fact ->> 'policy_id' FROM admission_outbox") == str(number)
    await put(lone_admission, {"preset": "fifo"}, dry_run=True)
    assert await lone_admission.count("admission_outbox") == 1


async def test_the_policy_in_force_is_not_applied_again(lone_admission: Admission) -> None:
    assert [(await put(lone_admission, {"preset": "fifo"})).json()["applied"] for _ in range(2)] == [True, False]
    assert await lone_admission.count("policies") == 1


async def test_only_an_admin_of_all_teams_applies_one(lone_admission: Admission) -> None:
    for role, team in (("viewer", None), ("submitter", None), ("admin", "blue")):
        await lone_admission.set_team("blue")
        token = await lone_admission.token(role=role, team=team)
        assert (await put(lone_admission, {}, token=token)).status_code == 403
    assert await lone_admission.count("policies") == 0


async def test_another_pool_is_not_found(lone_admission: Admission) -> None:
    for call in (lone_admission.client.get("/v1/policies/other"), lone_admission.client.put("/v1/policies/other")):
        assert (await call).status_code == 404


@pytest.mark.parametrize("body", [{"detla": 1}, {"delta": 90}])
async def test_a_kept_policy_that_cannot_be_read_is_passed_over(
    lone_admission: Admission, body: dict[str, Any]
) -> None:
    await put(lone_admission, {"preset": "plain"})
    await lone_admission.database.execute(
        "INSERT INTO policies (pool_id, body, applied_by) VALUES ($1, jsonb_build_object($2::text, $3::int), 'newer')",
        lone_admission.settings.pool,
        *next(iter(body.items())),
    )
    assert (await shown(lone_admission))["document"] == {"preset": "plain"}
