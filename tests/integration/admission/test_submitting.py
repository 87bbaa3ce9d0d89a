"""What is admitted, what is refused with its field named, and that the same submit is one job."""

import asyncio
import json
from pathlib import Path

import admission_harness as harness
import asyncpg
import servers
from admission_harness import Admission
from makeway_admission.store import Store

NOTHING_LEFT = ("jobs", "idempotency_keys", "admission_outbox")


OUT_OF_BOUNDS = [
    ('"gpus": -100', "gpus"),
    ('"gpus": 0.5', "gpus"),
    ('"gpus": 1e18', "gpus"),
    ('"gpus": 9223372036854775808', "gpus"),
    (f'"gpus": {"9" * 5000}', "gpus"),
    ('"gpus": NaN', "gpus"),
    ('"gpus": -Infinity', "gpus"),
    ('"gpus": true', "gpus"),
    ('"gpus": "1"', "gpus"),
    ('"gpus": null', "gpus"),
    ('"vram_mib": -1', "vram_mib"),
    ('"vram_mib": NaN', "vram_mib"),
    ('"vram_mib": Infinity', "vram_mib"),
    ('"vram_mib": "64GB"', "vram_mib"),
    ('"min_vram_mib": 0', "min_vram_mib"),
    ('"members": 0', "members"),
    ('"members": -2', "members"),
    ('"time_limit": -5', "time_limit"),
    ('"time_limit": 0', "time_limit"),
    ('"time_limit": 1e18', "time_limit"),
    ('"time_limit": true', "time_limit"),
    ('"preemption": {"grace": -1}', "preemption.grace"),
    ('"preemption": {"grace": NaN}', "preemption.grace"),
    ('"preemption": {"grace": "31m"}', "preemption.grace"),
    ('"preemption": {"mode": "KILL"}', "preemption.mode"),
    ('"preemption": null', "preemption"),
    ('"priority": 1e30', "priority"),
    ('"priority": -1', "priority"),
    ('"priority": 690', "priority"),
    ('"class": "hihg"', "class"),
    ('"preemptible": 1', "preemptible"),
    ('"team": "Team A"', "team"),
    ('"working_dir": "here"', "working_dir"),
    ('"env": {"LD_PRELOAD": "x"}', "env"),
    ('"env": {"A": 1}', "env.A"),
    ('"labels": {"a b": "c"}', "labels"),
    ('"gpu_type": "A\\u0000"', "gpu_type"),
    ('"script": "x"', "command"),
    ('"command": ["true"], "gpus": 1', "command"),
]
"""What is added to a job that runs `true`, and the field that is wrong with it then."""


async def test_a_field_out_of_bounds_is_named_and_leaves_nothing(lone_admission: Admission) -> None:
    named = {}
    for number, (fields, _) in enumerate(OUT_OF_BOUNDS):
        body = '{"command": ["true"], ' + fields + "}"
        answer = await lone_admission.client.post("/v1/jobs", content=body, headers={"Idempotency-Key": f"k{number}"})
        problem = answer.json()
        assert 400 <= answer.status_code < 500, body
        assert answer.headers["content-type"] == "application/problem+json"
        assert all(each["message"] for each in problem["fields"]), body
        named[fields] = [each["field"] for each in problem["fields"]]
    assert named == {fields: [field] for fields, field in OUT_OF_BOUNDS}
    for table in NOTHING_LEFT:
        assert await lone_admission.count(table) == 0
    assert (await lone_admission.submit()).status_code == 201


async def test_an_unknown_field_is_answered_with_the_nearest_name(lone_admission: Admission) -> None:
    answer = await lone_admission.submit(vram_mb=1, preemption={"grac": 1})
    messages = {each["field"]: each["message"] for each in answer.json()["fields"]}
    assert "did you mean vram_mib?" in messages["vram_mb"]
    assert "did you mean grace?" in messages["preemption.grac"]


async def test_what_is_no_json_object_is_refused(lone_admission: Admission) -> None:
    for body in (b"", b"[]", b"nonsense", b'{"a": ' * 3000, b"[" * 100_000, b"\xff\xfe"):
        answer = await lone_admission.client.post("/v1/jobs", content=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), body[:20]


async def test_more_than_a_mebibyte_is_refused(lone_admission: Admission) -> None:
    async def endless() -> object:
        for _ in range(40):
            yield b" " * 65536

    for content in (b" " * (1024 * 1024 + 1), endless()):
        answer = await lone_admission.client.post("/v1/jobs", content=content)  # type: ignore[arg-type]
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


async def test_zero_gpus_is_a_job_without_cards(lone_admission: Admission) -> None:
    job = await lone_admission.submitted(gpus=0)
    assert (await lone_admission.get(f"/v1/jobs/{job}"))["gpus"] == 0


ODD_NAMES = [
    "a" * 63,
    "a" * 64,
    "a" * 253,
    "训练-作业-1",
    "caf\u00e9",
    "cafe\u0301",
    "\U0001f680",
    "a b",
    "../x",
    "job-1",
    "JOB-1",
    "%2e%2e",
    "a/b?c#d",
]


async def test_a_name_is_kept_byte_for_byte(lone_admission: Admission) -> None:
    for name in ODD_NAMES:
        job = await lone_admission.submitted(name=name)
        other = await lone_admission.submitted(name=name + "." if len(name) < 253 else "b" * 253)
        assert (await lone_admission.get(f"/v1/jobs/{job}"))["name"] == name
        assert (await lone_admission.get("/v1/resolve", ref=name))["job_id"] == job
        listed = (await lone_admission.get("/v1/jobs", name=name))["jobs"]
        assert [each["job_id"] for each in listed] == [job] != [other]
        assert (await lone_admission.client.delete(f"/v1/jobs/{job}")).status_code == 202


async def test_a_name_out_of_bounds_is_refused_by_name(lone_admission: Admission) -> None:
    for name in ("a" * 254, "a" * 10_000, "a\nb", "a\u202eb", " a", "a\u0000"):
        answer = await lone_admission.submit(name=name)
        assert answer.status_code == 422
        assert [each["field"] for each in answer.json()["fields"]] == ["name"], name[:20]


async def test_without_a_name_the_job_is_named_by_its_id(lone_admission: Admission) -> None:
    answer = (await lone_admission.submit(name="")).json()
    assert answer["name"] == answer["job_id"]


async def test_the_same_key_and_body_is_one_job_however_often_it_is_sent(
    tmp_path: Path, database: servers.Database
) -> None:
    settings = harness.settings_for(tmp_path, database, harness.NO_KAFKA)
    async with harness.running(settings, database) as admission:
        answers = await asyncio.gather(*(admission.submit(key="k1", team="team-a") for _ in range(20)))
        ids = {answer.json()["job_id"] for answer in answers}
        assert len(ids) == 1
        assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
        assert await admission.count("jobs") == 1
        job = ids.pop()

        other_team = await admission.submit(key="k1", team="team-b")
        assert (other_team.status_code, other_team.json()["job_id"] != job) == (201, True)
        changed = await admission.submit(key="k1", team="team-a", gpus=2)
        assert (changed.status_code, changed.json()["code"]) == (422, "idempotency_key_reused")
        await admission.set_state(job, "SUCCEEDED")

    async with harness.running(settings, database) as admission:
        again = await admission.submit(key="k1", team="team-a")
        assert (again.status_code, again.json()["job_id"], again.json()["repeated"]) == (200, job, True)
        assert await admission.count("jobs") == 2


async def test_two_admissions_agree_on_keys_and_on_the_queue_s_maximum(
    tmp_path: Path, database: servers.Database
) -> None:
    first = harness.settings_for(tmp_path / "1", database, harness.NO_KAFKA)
    second = harness.settings_for(tmp_path / "2", database, harness.NO_KAFKA, pool=first.pool)
    async with harness.running(first, database) as one, harness.running(second, database) as two:
        await one.set_team("team-a", max_queued=10)
        both = (one, two)
        for number in range(5):
            keyed = [each.submit(key=f"k{number}", team="team-a") for each in both for _ in range(4)]
            answers = await asyncio.gather(*keyed)
            assert len({answer.json()["job_id"] for answer in answers}) == 1
            assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
        answers = await asyncio.gather(*(each.submit(team="team-a") for each in both for _ in range(10)))
        assert sorted(answer.status_code for answer in answers) == [201] * 5 + [429] * 15
        assert await one.count("jobs") == 10


async def test_a_key_is_kept_for_a_day_and_means_another_job_after_that(lone_admission: Admission) -> None:
    answers = [await lone_admission.submit(key=key) for key in ("old", "young")]
    old, young = (answer.json()["job_id"] for answer in answers)
    for key, age in (("old", "24 hours 1 second"), ("young", "23 hours")):
        await lone_admission.database.execute(
            "UPDATE idempotency_keys SET created_at = now() - $2::text::interval WHERE key = $1", key, age
        )
    pool = await asyncpg.create_pool(lone_admission.settings.postgres_dsn.get_secret_value(), min_size=1, max_size=1)
    try:
        assert await Store(pool, lone_admission.settings.pool).delete_old_keys(older_than_seconds=86_400, most=10) == 1
    finally:
        await pool.close()
    assert (await lone_admission.submit(key="young")).json()["job_id"] == young
    again = await lone_admission.submit(key="old", gpus=2)
    assert (again.status_code, again.json()["job_id"] != old) == (201, True)


async def test_a_key_is_known_with_or_without_quotes_and_whatever_the_order_of_members(
    lone_admission: Admission,
) -> None:
    bodies = ({"command": ["true"], "gpus": 2}, {"gpus": 2, "command": ["true"]})
    ids = set()
    for body, key in zip(bodies, ("k1", '"k1"'), strict=True):
        answer = await lone_admission.client.post(
            "/v1/jobs", content=json.dumps(body), headers={"Idempotency-Key": key}
        )
        ids.add(answer.json()["job_id"])
    assert len(ids) == 1


async def test_a_key_out_of_bounds_is_refused(lone_admission: Admission) -> None:
    for key in ("", '""', "k" * 256, "a\tb"):
        answer = await lone_admission.submit(key=key)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), key


async def test_an_admitted_key_is_answered_even_where_the_limits_have_fallen_since(lone_admission: Admission) -> None:
    first = await lone_admission.submit(key="k1", gpus=4)
    await lone_admission.set_team("default", limit=1)
    again = await lone_admission.submit(key="k1", gpus=4)
    assert again.json()["job_id"] == first.json()["job_id"]


async def test_what_can_never_fit_the_team_is_refused_and_leaves_nothing(lone_admission: Admission) -> None:
    await lone_admission.set_team("team-a", limit=2, class_limits={"low": 1})
    for fields in ({"gpus": 3}, {"gpus": 2, "class": "low"}):
        answer = await lone_admission.submit(team="team-a", key="k", **fields)
        assert (answer.status_code, answer.json()["code"]) == (422, "over_limit")
        assert answer.json()["fields"][0]["field"] == "gpus"
    for table in NOTHING_LEFT:
        assert await lone_admission.count(table) == 0
    assert (await lone_admission.submit(team="team-a", gpus=2)).status_code == 201


async def test_the_queue_has_a_maximum_that_jobs_leave_when_they_stop_waiting(lone_admission: Admission) -> None:
    await lone_admission.set_team("team-a", max_queued=3)
    answers = await asyncio.gather(*(lone_admission.submit(team="team-a") for _ in range(10)))
    codes = sorted(answer.status_code for answer in answers)
    assert codes == [201] * 3 + [429] * 7
    full = next(answer for answer in answers if answer.status_code == 429)
    assert (full.json()["code"], "retry-after" in full.headers) == ("queue_full", True)

    started = next(answer.json()["job_id"] for answer in answers if answer.status_code == 201)
    await lone_admission.set_state(started, "RUNNING")
    assert (await lone_admission.submit(team="team-a")).status_code == 201
    await lone_admission.set_state(started, "QUEUED")
    assert (await lone_admission.submit(team="team-a")).status_code == 429


async def test_allowances_are_asked_for_once_a_team_is_set_up(lone_admission: Admission) -> None:
    firm = (
        ({"class": "urgent"}, "class"),
        ({"class": "P1"}, "class"),
        ({"preemptible": False}, "preemptible"),
        ({"preemption": {"mode": "OFF"}}, "preemptible"),
    )
    for fields, _ in firm:
        assert (await lone_admission.submit(team="team-a", **fields)).status_code == 201
    await lone_admission.set_team("team-a")
    for fields, field in firm:
        answer = await lone_admission.submit(team="team-a", **fields)
        assert (answer.status_code, answer.json()["code"]) == (422, "not_allowed")
        assert answer.json()["fields"][0]["field"] == field
    await lone_admission.set_team("team-a", allowances={"urgent": 2, "high": 1, "not_preemptible": 1})
    for fields, _ in firm:
        assert (await lone_admission.submit(team="team-a", **fields)).status_code == 201
    assert (await lone_admission.submit(team="team-a", gpus=3, **{"class": "urgent"})).status_code == 422


async def test_a_team_comes_by_being_named_until_teams_are_set_up(lone_admission: Admission) -> None:
    assert (await lone_admission.submit(team="team-x")).status_code == 201
    await lone_admission.set_team("team-a")
    assert (await lone_admission.submit(team="team-x")).status_code == 201
    answer = await lone_admission.submit(team="team-y")
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_team")
    assert "team-y" in answer.json()["fields"][0]["message"]


async def test_submits_are_answered_again_once_the_database_is_back(lone_admission: Admission) -> None:
    await lone_admission.submitted()
    await lone_admission.database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    answers = await asyncio.gather(*(lone_admission.submit() for _ in range(5)))
    assert [answer.status_code for answer in answers] == [201] * 5
    assert await lone_admission.count("jobs") == 6


async def test_a_row_lock_held_by_somebody_else_ends_in_503_and_no_job(lone_admission: Admission) -> None:
    async with lone_admission.database.transaction():
        await lone_admission.database.execute("SELECT 1 FROM teams WHERE team_id = 'default' FOR UPDATE")
        answer = await lone_admission.submit(key="k1")
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert "retry-after" in answer.headers
    assert await lone_admission.count("jobs") == 0
    assert (await lone_admission.submit(key="k1")).status_code == 201


async def test_what_needs_an_allowance_or_passes_a_users_limit_is_refused_by_field(lone_admission: Admission) -> None:
    await lone_admission.set_team("default", user_limit=2)
    group = {"name": "web", "max_down": 1}
    for fields, field, words in (
        ({"gpus": 3}, "gpus", "the limit of each user"),
        ({"group": group}, "group", "jobs in hard groups"),
        ({"preemption": {"exempt_after": "1h"}}, "preemptible", "cannot be preempted"),
        ({"deadline": "2020-01-01T00:00:00Z"}, "deadline", "in the future"),
        ({"constraints": {"label": {"a": "b"}}}, "constraints.label", "did you mean labels?"),
        ({"retries": {"max": 2000}}, "retries.max", "1000"),
    ):
        answer = await lone_admission.submit(**fields)
        assert answer.status_code == 422, fields
        problem = answer.json()["fields"][0]
        assert (problem["field"], words in problem["message"]) == (field, True), problem
    assert (await lone_admission.submit(group={**group, "hard": False})).status_code == 201
    await lone_admission.set_team("default", allowances={"hard_groups": 4})
    assert (await lone_admission.submit(group=group, gpus="2..8")).status_code == 201
    assert (await lone_admission.submit(group=group, gpus=5)).status_code == 422


async def test_a_right_in_per_cent_of_the_pool_refuses_nothing_at_a_submit(lone_admission: Admission) -> None:
    """How many GPUs it is depends on the nodes, which come and go while the job waits."""
    allowances = {"urgent": "10%", "hard_groups": "10%", "not_preemptible": "0%"}
    await lone_admission.set_team("default", limit="10%", class_limits={"low": "1%"}, allowances=allowances)
    for fields in ({"gpus": 500}, {"gpus": 500, "class": "low"}, {"class": "urgent"}):
        assert (await lone_admission.submit(**fields)).status_code == 201, fields
    assert (await lone_admission.submit(group={"name": "web", "max_down": 1})).status_code == 201
    answer = await lone_admission.submit(preemptible=False)
    assert (answer.status_code, answer.json()["code"]) == (422, "not_allowed")
    answer = await lone_admission.submit(**{"class": "high"})
    assert (answer.status_code, answer.json()["code"]) == (422, "not_allowed")


async def test_teams_show_the_limits_they_were_given(lone_admission: Admission) -> None:
    await lone_admission.set_team("vision", user_limit=2, gpu_hours_per_month=100.5)
    team = await lone_admission.get("/v1/teams/vision")
    assert (team["user_limit"], team["gpu_hours_per_month"]) == (2, 100.5)
    for fields in ({"user_limit": -1}, {"gpu_hours_per_month": -0.5}, {"user_limit": 1.5}):
        assert (await lone_admission.client.put("/v1/teams/vision", json=fields)).status_code == 422
