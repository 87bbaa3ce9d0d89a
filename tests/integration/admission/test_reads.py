"""What can be seen: lists with filters and pages, references, reasons, nodes, GPUs, figures, teams, preemptions."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from admission_harness import ADMIN, Admission, add_node
from makeway_runtime.postgres.pool import lock_key


async def _listed(admission: Admission, **filters: Any) -> list[str]:
    return [each["job_id"] for each in (await admission.get("/v1/jobs", **filters))["jobs"]]


async def test_a_list_is_paged_newest_first_and_every_job_comes_once(lone_admission: Admission) -> None:
    jobs = [await lone_admission.submitted() for _ in range(7)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await lone_admission.get("/v1/jobs", limit=3, **cursor)
        seen += [each["job_id"] for each in page["jobs"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
        jobs_later = await lone_admission.submitted()
        assert jobs_later not in seen
    assert seen == jobs[::-1]


async def test_a_list_is_filtered_by_each_of_its_filters(lone_admission: Admission) -> None:
    wanted = await lone_admission.submitted(
        team="team-a", name="it", labels={"env": "prod", "x": "1"}, **{"class": "low"}
    )
    other = await lone_admission.submitted(labels={"env": "test"})
    await lone_admission.set_state(wanted, "RUNNING", run_number=1)
    await lone_admission.add_run(wanted, 1, node="n7")
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    for filters in (
        {"team": "team-a"},
        {"name": "it"},
        {"class": "low"},
        {"state": "RUNNING"},
        {"label": "env=prod"},
        {"label": ["env=prod", "x=1"]},
        {"node": "n7"},
    ):
        assert await _listed(lone_admission, **filters) == [wanted], filters
    assert await _listed(lone_admission, state=["RUNNING", "QUEUED"]) == [other, wanted]
    assert await _listed(lone_admission, state=["RUNNING", "STOPPING"], team="team-a", node="n7") == [wanted]
    for filters in ({"team": "default"}, {"name": "x"}, {"class": "high"}, {"label": "env=x"}, {"node": "n8"}):
        assert await _listed(lone_admission, state="RUNNING", **filters) == []
    assert await _listed(lone_admission, label=["env=prod", "x=2"]) == []
    assert await _listed(lone_admission, since=later) == []
    (shown,) = (await lone_admission.get("/v1/jobs", name="it"))["jobs"]
    assert (shown["node"], shown["labels"], shown["priority"]) == ("n7", {"env": "prod", "x": "1"}, 200)


async def test_jobs_that_ended_long_ago_are_listed_on_request(lone_admission: Admission) -> None:
    old, recent = await lone_admission.submitted(), await lone_admission.submitted()
    await lone_admission.set_state(old, "SUCCEEDED")
    await lone_admission.set_state(recent, "FAILED")
    await lone_admission.database.execute(
        "UPDATE job_states SET ended_at = now() - interval '2 days' WHERE job_id = $1", old
    )
    assert await _listed(lone_admission) == [recent]
    assert await _listed(lone_admission, all=True) == [recent, old]
    assert await _listed(lone_admission, state="SUCCEEDED") == [old]


async def test_a_filter_that_makes_no_sense_is_named(lone_admission: Admission) -> None:
    for name, value in (
        ("state", "DONE"),
        ("label", "novalue"),
        ("since", "yesterday"),
        ("since", "2026-01-01T00:00:00"),
        ("cursor", "abc"),
        ("limit", "0"),
        ("limit", "100000"),
    ):
        answer = await lone_admission.client.get("/v1/jobs", params={name: value})
        assert answer.status_code == 422, name
        assert answer.json()["fields"][0]["field"].startswith(name)


async def test_a_job_is_shown_with_its_specification_and_runs(lone_admission: Admission) -> None:
    job = await lone_admission.submitted(gpus=2, env={"A": "b"}, preemption={"grace": "5s"})
    await lone_admission.set_state(job, "RUNNING", run_number=1)
    run = await lone_admission.add_run(job, 1)
    shown = await lone_admission.get(f"/v1/jobs/{job}")
    assert (shown["spec"]["gpus"], shown["spec"]["env"], shown["spec"]["preemption"]["grace"]) == (2, {"A": "b"}, 5.0)
    assert [(each["run_id"], each["number"], each["state"]) for each in shown["runs"]] == [(run, 1, "RUNNING")]
    assert (shown["class"], shown["team"], shown["submitted_by"], shown["state"]) == (
        "normal",
        "default",
        "admin",
        "RUNNING",
    )


async def test_a_job_shows_its_node_and_gpus_only_while_its_run_is_there(lone_admission: Admission) -> None:
    job = await lone_admission.submitted(gpus="1..4")
    await lone_admission.set_state(job, "RUNNING", run_number=1)
    await lone_admission.add_run(job, 1, node="n7")
    await lone_admission.database.execute('UPDATE runs SET gpus = \'[{"gpu_id": "GPU-0"}, {"gpu_id": "GPU-1"}]\'')

    async def shown() -> tuple[Any, ...]:
        view = await lone_admission.get(f"/v1/jobs/{job}")
        return view["gpus"], view["gpus_max"], view["gpus_held"], view["node"]

    assert await shown() == (1, 4, 2, "n7")
    await lone_admission.set_state(job, "QUEUED", run_number=1)
    assert await shown() == (1, 4, None, None)
    assert await _listed(lone_admission, node="n7") == []
    await lone_admission.set_state(job, "SUCCEEDED", run_number=1)
    assert await shown() == (1, 4, None, "n7")


async def test_a_job_says_nothing_of_its_last_run_once_it_has_another(lone_admission: Admission) -> None:
    job = await lone_admission.submitted()

    async def messages(state: str) -> set[str]:
        await lone_admission.set_state(job, state, run_number=1)
        await lone_admission.database.execute("UPDATE job_states SET message = 'retry 1 of 2 after exit code 3'")
        listed = (await lone_admission.get("/v1/jobs"))["jobs"][0]
        return {(await lone_admission.get(f"/v1/jobs/{job}"))["message"], listed["message"]}

    for state in ("QUEUED", "HELD"):
        assert await messages(state) == {"retry 1 of 2 after exit code 3"}
    for state in ("RESERVED", "STARTING", "RUNNING", "UNKNOWN", "STOPPING"):
        assert await messages(state) == {""}, state
    await lone_admission.database.execute("UPDATE job_states SET cancel_requested = true, message = 'cancelled by ops'")
    assert (await lone_admission.get(f"/v1/jobs/{job}"))["message"] == "cancelled by ops"
    assert await messages("FAILED") == {"retry 1 of 2 after exit code 3"}


async def test_a_job_that_nobody_decides_about_says_why(lone_admission: Admission) -> None:
    job, decided = await lone_admission.submitted(), await lone_admission.submitted()
    await lone_admission.set_state(decided, "QUEUED")
    await lone_admission.database.execute("UPDATE job_states SET reason = 'no room', reason_code = 'no_room'")

    async def reasons() -> set[tuple[str, str]]:
        listed = {each["job_id"]: each for each in (await lone_admission.get("/v1/jobs"))["jobs"]}
        assert (listed[decided]["reason_code"], listed[decided]["reason"]) == ("no_room", "no room")
        views = (listed[job], await lone_admission.get(f"/v1/jobs/{job}"))
        return {(view["reason_code"], view["reason"]) for view in views}

    assert await reasons() == {("", "")}
    await lone_admission.database.execute("UPDATE jobs SET submitted_at = now() - interval '3 seconds'")
    assert await reasons() == {("undecided", "no scheduler owns the pool: nothing is decided until one does")}
    why = await lone_admission.get(f"/v1/jobs/{decided}/why")
    assert why["reason"] == "no room; no scheduler owns the pool: nothing is decided until one does"
    pool = lone_admission.settings.pool
    await lone_admission.database.execute("INSERT INTO pools (pool_id, epoch, owner) VALUES ($1, 7, 'me')", pool)
    await lone_admission.database.execute("SELECT pg_advisory_lock($1)", lock_key(f"pool/{pool}"))
    assert await reasons() == {("undecided", "the scheduler has not looked at it yet")}
    assert (await lone_admission.get(f"/v1/jobs/{decided}/why"))["reason"] == "no room"
    await lone_admission.database.execute("UPDATE admission_outbox SET created_at = now() - interval '6 seconds'")
    silent = "the message broker does not answer: nothing is started or preempted until it does"
    assert await reasons() == {("undecided", silent)}
    assert (await lone_admission.get(f"/v1/jobs/{job}/why"))[
        "reason"
    ] == f"the scheduler has not looked at it yet; {silent}"
    assert (await lone_admission.get("/v1/cluster"))["scheduler_silent_seconds"] is None
    await lone_admission.database.execute(
        "INSERT INTO signs_of_life (pool_id, given_at) VALUES ($1, now() - interval '40 seconds')", pool
    )
    ((code, hangs),) = await reasons()
    assert code == "undecided"
    assert re.fullmatch(
        r"the scheduler does not answer \(no sign of life for 4\ds\): nothing is decided until it does", hangs
    )
    assert (await lone_admission.get(f"/v1/jobs/{decided}/why"))["reason"].startswith("no room; the scheduler does not")
    assert 40 <= (await lone_admission.get("/v1/cluster"))["scheduler_silent_seconds"] < 50
    await lone_admission.database.execute("UPDATE pools SET taken_at = now()")
    assert await reasons() == {("undecided", silent)}, "a new owner has a moment for its first sign"
    await lone_admission.set_state(job, "RUNNING", run_number=1)
    assert await reasons() == {("", "")}


async def test_a_reason_whose_time_has_passed_says_so_wherever_it_is_shown(lone_admission: Admission) -> None:
    job = await lone_admission.submitted()
    await lone_admission.set_state(job, "QUEUED")
    reason = "what is free is kept for job x, which is expected to start at 2020-01-01T00:00:00+00:00"
    await lone_admission.database.execute("UPDATE job_states SET reason = $1, reason_code = 'reserved'", reason)
    (listed,) = (await lone_admission.get("/v1/jobs"))["jobs"]
    said = f"{reason}; that time has passed: it is judged again within 1m"
    assert {listed["reason"], (await lone_admission.get(f"/v1/jobs/{job}"))["reason"]} == {said}
    assert listed["reason_code"] == "reserved"


async def test_a_reference_is_an_id_a_name_a_beginning_or_the_last(lone_admission: Admission) -> None:
    first = await lone_admission.submitted(name="train")
    second = await lone_admission.submitted(name="train")
    for ref, job in ((first, first), ("train", second), ("@last", second), (first[:8], first)):
        assert (await lone_admission.get("/v1/resolve", ref=ref))["job_id"] == job
    await lone_admission.token(role="submitter", label="other")
    token = await lone_admission.token(role="submitter", label="ci")
    assert (await lone_admission.client.get("/v1/resolve", params={"ref": "Train"})).status_code == 404
    mine = (await lone_admission.submit(token=token)).json()["job_id"]
    assert (await lone_admission.get("/v1/resolve", token=token, ref="@last"))["job_id"] == mine
    assert (await lone_admission.get("/v1/resolve", token=ADMIN, ref="@last"))["job_id"] == second


async def test_a_beginning_that_fits_two_jobs_is_ambiguous(lone_admission: Admission) -> None:
    job = await lone_admission.submitted()
    twin = job[:11] + ("0" if job[11] != "0" else "1")
    await lone_admission.database.execute(
        "INSERT INTO jobs (job_id, pool_id, team_id, name, class_name, spec, submitted_by) "
        "SELECT $2, pool_id, team_id, name, class_name, spec, submitted_by FROM jobs WHERE job_id = $1",
        job,
        twin,
    )
    answer = await lone_admission.client.get("/v1/resolve", params={"ref": job[:11]})
    assert (answer.status_code, answer.json()["code"]) == (409, "ambiguous")
    for ref in ("", "%", "_", "zzzzzz~", "a" * 1000):
        assert (await lone_admission.client.get("/v1/resolve", params={"ref": ref})).status_code == 404


async def test_a_character_that_cannot_be_stored_is_refused_wherever_it_is_asked_for(lone_admission: Admission) -> None:
    for path, name in (("/v1/jobs", "name"), ("/v1/jobs", "team"), ("/v1/jobs", "node"), ("/v1/preemptions", "job")):
        answer = await lone_admission.client.get(path, params={name: "a\0b"})
        assert answer.status_code in (400, 404), (path, name)


async def test_nodes_gpus_and_figures_show_leases_and_leave_unknown_readings_out(lone_admission: Admission) -> None:
    await add_node(lone_admission, "n1", 4)
    job = await lone_admission.submitted(team="team-a")
    await lone_admission.set_state(job, "RUNNING", run_number=1)
    run = await lone_admission.add_run(job, 1)
    await lone_admission.database.execute(
        "INSERT INTO leases (run_id, gpu_id, state, vram_mib, slots) VALUES "
        "($1, 'GPU-0', 'LIVE', 80000, 4), ($1, 'GPU-1', 'LIVE', 20000, 1)",
        run,
    )
    await lone_admission.database.execute("UPDATE gpus SET condition = 'quarantined' WHERE gpu_id = 'GPU-3'")
    await lone_admission.database.execute(
        "INSERT INTO gpu_readings (gpu_id, node_id, sampled_at, utilisation_percent, vram_used_mib) "
        "VALUES ('GPU-0', 'n1', now() - interval '4 s', 50, 1000), ('GPU-1', 'n1', now() - interval '1 h', 100, 9999)"
    )
    (node,) = await lone_admission.get("/v1/nodes")
    assert (node["node_id"], node["gpus"], node["gpus_leased"], node["simulated"]) == ("n1", 4, 2, True)
    gpus = await lone_admission.get("/v1/gpus", node="n1")
    assert [each["state"] for each in gpus] == ["LEASED", "LEASED", "FREE", "QUARANTINED"]
    assert (gpus[0]["jobs"], gpus[0]["leased_mib"], gpus[0]["utilisation_percent"]) == ([job], 80000, 50.0)
    assert gpus[1]["utilisation_percent"] is gpus[1]["reading_age_seconds"] is None
    assert 4 <= gpus[0]["reading_age_seconds"] < 30
    assert await lone_admission.get("/v1/gpus", node="n2") == []
    cluster = await lone_admission.get("/v1/cluster")
    assert (cluster["nodes_ready"], cluster["gpus"], cluster["gpus_leased"]) == (1, 4, 2)
    assert (cluster["scheduler"], cluster["epoch"], cluster["jobs"]) == ("", 7, {"RUNNING": 1})
    # The owner is shown for as long as its session holds the pool's lock.
    key = lock_key(f"pool/{lone_admission.settings.pool}")
    await lone_admission.database.execute("SELECT pg_advisory_lock($1)", key)
    assert (await lone_admission.get("/v1/cluster"))["scheduler"] == "me"
    (figures,) = cluster["by_type"]
    assert 4 <= figures["readings_age_seconds"] < 30
    assert (figures["vram_mib"], figures["vram_leased_mib"], figures["vram_used_mib"]) == (320000, 100000, 1000)
    assert (figures["utilisation_percent"], figures["unknown_readings"], figures["gpus_unusable"]) == (50.0, 3, 1)
    teams = {each["team"]: each for each in await lone_admission.get("/v1/teams")}
    assert (teams["team-a"]["gpus_used"], teams["team-a"]["jobs_running"]) == (1.25, 1)
    assert (teams["default"]["gpus_used"], teams["default"]["jobs_waiting"]) == (0, 0)


async def test_a_gpu_that_takes_no_runs_says_why(lone_admission: Admission) -> None:
    await add_node(lone_admission, "n1", 3)
    fault, stranger = "its driver has told of a fault: XID 79", "used by processes that are none of makeway's: 7"
    for gpu, condition, reason in (("GPU-0", "quarantined", fault), ("GPU-1", "occupied", stranger)):
        await lone_admission.database.execute(
            "UPDATE gpus SET condition = $2, reason = $3 WHERE gpu_id = $1", gpu, condition, reason
        )

    async def shown() -> list[tuple[str, str, bool]]:
        return [(each["state"], each["reason"], each["failed"]) for each in await lone_admission.get("/v1/gpus")]

    unwell = [("QUARANTINED", fault, True), ("QUARANTINED", stranger, False)]
    assert await shown() == [*unwell, ("FREE", "", False)]
    note = "drained by ops: fans\ncordoned by ann"
    await lone_admission.database.execute("UPDATE nodes SET cordoned = true, note = $1", note)
    said = "its node is closed: cordoned by ann; drained by ops: fans"
    assert await shown() == [*unwell, ("CORDONED", said, False)]
    await lone_admission.database.execute("UPDATE nodes SET state = 'DEAD', note = 'declared dead by ann: burnt'")
    assert (await shown())[2] == ("LOST", "its node: declared dead by ann: burnt", False)


async def test_a_path_with_a_slash_too_many_is_not_found(lone_admission: Admission) -> None:
    for method, path in (("DELETE", "/v1/tokens/"), ("GET", "/v1/jobs/"), ("GET", "/v1/nodes/")):
        assert (await lone_admission.client.request(method, path)).status_code == 404


async def test_preemptions_are_those_that_the_teams_jobs_were_part_of(lone_admission: Admission) -> None:
    victim, preemptor = await lone_admission.submitted(team="team-a"), await lone_admission.submitted(team="team-b")
    await lone_admission.database.execute(
        "INSERT INTO preemptions (pool_id, preemptor_job, victim_job, victim_run, trigger, rule, victim_value, "
        "decided_at) VALUES ($1, $2, $3, $4, 'arrival', 'priority', 500, now())",
        lone_admission.settings.pool,
        preemptor,
        victim,
        f"{victim}.1",
    )
    for team, count in (("team-a", 1), ("team-b", 1), ("team-c", 0)):
        token = await lone_admission.token(role="viewer", team=team)
        assert len(await lone_admission.get("/v1/preemptions", token=token)) == count
    (record,) = await lone_admission.get("/v1/preemptions", job=victim)
    assert (record["preemptor_job"], record["victim_job"], record["trigger"]) == (preemptor, victim, "arrival")
    assert await lone_admission.get("/v1/preemptions", job="000000000000") == []


async def test_the_policy_in_force_is_shown_whole(lone_admission: Admission) -> None:
    policy = await lone_admission.get("/v1/policy")
    assert (policy["name"], policy["delta"], policy["classes"]["urgent"]["value"]) == ("default", 10, 1000)
    assert policy["classes"]["normal"]["mode"] == "checkpoint"


async def test_every_answer_carries_the_headers_that_browsers_need(lone_admission: Admission) -> None:
    for path in ("/healthz", "/v1/jobs", "/nosuch"):
        headers = (await lone_admission.client.get(path)).headers
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "server" not in headers


async def test_an_unknown_path_or_method_is_a_problem_too(lone_admission: Admission) -> None:
    for method, path, status in (("GET", "/nosuch", 404), ("PATCH", "/v1/jobs", 405), ("POST", "/v1/nodes", 405)):
        answer = await lone_admission.client.request(method, path)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
