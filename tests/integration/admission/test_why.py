"""Why a job is where it is, as the API tells it."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from admission_harness import Admission, add_node


async def test_why_tells_the_reason_the_place_and_who_is_ahead(lone_admission: Admission) -> None:
    low = await lone_admission.submitted(**{"class": "low"})
    assert "not looked at it yet" in (await lone_admission.get(f"/v1/jobs/{low}/why"))["reason"]
    high, normal = await lone_admission.submitted(**{"class": "high"}), await lone_admission.submitted()
    theirs = await lone_admission.submitted(team="team-b", name="secret", **{"class": "urgent"})
    for job in (low, high, normal, theirs):
        await lone_admission.set_state(job, "QUEUED")
    await lone_admission.database.execute(
        "INSERT INTO decisions (pool_id, job_id, epoch, decided_at, choice, reason_code, reason, detail) "
        "VALUES ($1, $2, 1, now(), 'wait', 'no_room', 'no GPU is free', '{\"free\": 0}')",
        lone_admission.settings.pool,
        low,
    )
    await lone_admission.database.execute("UPDATE job_states SET reason = 'no GPU is free' WHERE job_id = $1", low)
    token = await lone_admission.token(role="viewer", team="default")
    why = await lone_admission.get(f"/v1/jobs/{low}/why", token=token)
    assert (why["queue_position"], why["queue_length"]) == (4, 4)
    assert why["reason"].startswith("no GPU is free")
    assert [(each["job_id"], each["queue_value"]) for each in why["ahead"]] == [
        (theirs, 1000),
        (high, 800),
        (normal, 500),
    ]
    assert [each["name"] for each in why["ahead"]] == ["", high, normal]
    assert why["detail"] == {"free": 0}


async def _decided(admission: Admission, job: str, seconds_ago: float, choice: str, detail: dict[str, Any]) -> None:
    await admission.database.execute(
        "INSERT INTO decisions (pool_id, job_id, epoch, decided_at, choice, reason_code, reason, detail) "
        "VALUES ($1, $2, 1, now() - make_interval(secs => $3), $4, 'no_room', 'no room', $5::jsonb)",
        admission.settings.pool,
        job,
        seconds_ago,
        choice,
        json.dumps(detail),
    )


async def test_why_says_a_stored_explanation_as_of_now(lone_admission: Admission) -> None:
    job, other = await lone_admission.submitted(), await lone_admission.submitted()
    await lone_admission.set_state(job, "QUEUED")
    await lone_admission.database.execute("UPDATE job_states SET queued_since = now() - interval '1 hour'")
    gone = await lone_admission.add_run(other, 1)
    await lone_admission.end_run(gone, log_bytes=0)
    stays = await lone_admission.add_run(other, 2)
    past = (datetime.now(UTC) - timedelta(minutes=5)).isoformat(timespec="seconds")
    victims = [
        {"run": run, "value": 500, "spared": "it is inside its minimum run", "until": past} for run in (gone, stays)
    ]
    await _decided(lone_admission, job, 600, "wait", {"possible_victims": victims, "next_look_at": past})
    why = await lone_admission.get(f"/v1/jobs/{job}/why")
    (victim,) = why["detail"]["possible_victims"]
    assert (victim["run"], victim["until"]) == (stays, None)
    assert victim["spared"] == f"not protected any more: until {past} it is inside its minimum run"
    assert why["detail"]["next_look"] == "with the next change that concerns it, and at least every 1m"
    assert "next_look_at" not in why["detail"]
    age = datetime.fromisoformat(why["as_of"]) - datetime.fromisoformat(why["decided_at"])
    assert timedelta(seconds=600) <= age < timedelta(seconds=660)


async def test_why_of_a_waiting_job_shows_no_decision_about_its_former_run(lone_admission: Admission) -> None:
    job = await lone_admission.submitted()
    await lone_admission.set_state(job, "QUEUED", run_number=1)
    await _decided(lone_admission, job, 600, "wait", {"gpus": {"in use": 1}})
    await _decided(lone_admission, job, 300, "preempt", {"x.1": "leaves"})
    why = await lone_admission.get(f"/v1/jobs/{job}/why")
    assert (why["decision"], why["decided_at"], why["detail"]) == ("", None, {})
    await _decided(lone_admission, job, 0, "wait", {"gpus": {"in use": 4}})
    why = await lone_admission.get(f"/v1/jobs/{job}/why")
    assert (why["decision"], why["detail"]) == ("wait", {"gpus": {"in use": 4}})


async def test_a_decision_counts_by_its_order_though_its_clock_was_behind_the_one_of_the_submit(
    lone_admission: Admission,
) -> None:
    job = await lone_admission.submitted()
    await lone_admission.set_state(job, "QUEUED")
    await lone_admission.database.execute("UPDATE job_states SET queued_since = now() + interval '1 second'")
    await _decided(lone_admission, job, 0, "wait", {"gpus": {"in use": 4}})
    why = await lone_admission.get(f"/v1/jobs/{job}/why")
    assert (why["decision"], why["detail"]) == ("wait", {"gpus": {"in use": 4}})


async def test_why_of_a_job_that_ended_or_is_out_of_sight_says_how(lone_admission: Admission) -> None:
    failed, unseen = await lone_admission.submitted(), await lone_admission.submitted()
    await lone_admission.set_state(failed, "FAILED")
    await lone_admission.database.execute(
        "UPDATE job_states SET exit_code = 127, message = 'program x: not found' WHERE job_id = $1", failed
    )
    await lone_admission.set_state(unseen, "UNKNOWN", run_number=1)
    await lone_admission.add_run(unseen, 1, node="n7")
    reason = (await lone_admission.get(f"/v1/jobs/{failed}/why"))["reason"]
    assert reason == "it has ended: program x: not found: exit code 127"
    assert "nothing is heard of node n7" in (await lone_admission.get(f"/v1/jobs/{unseen}/why"))["reason"]


async def test_why_of_a_job_on_a_node_that_is_drained_says_whose_word_it_is(lone_admission: Admission) -> None:
    job = await lone_admission.submitted()
    await add_node(lone_admission, "n7", 1)
    await lone_admission.set_state(job, "RUNNING", run_number=1)
    await lone_admission.add_run(job, 1, node="n7")
    assert (await lone_admission.get(f"/v1/jobs/{job}/why"))["reason"] == ""
    await lone_admission.database.execute("UPDATE nodes SET drain = 'gently', note = 'drained by ops: new fans'")
    reason = (await lone_admission.get(f"/v1/jobs/{job}/why"))["reason"]
    where = "it runs on n7, drained by ops: new fans (1 run still there, 0 of them leaving)"
    assert reason == f"{where}, and leaves once nothing protects its run"


async def test_why_of_a_job_on_a_drained_node_says_what_keeps_it_there_and_until_when(
    lone_admission: Admission,
) -> None:
    job, other = await lone_admission.submitted(), await lone_admission.submitted()
    await add_node(lone_admission, "n7", 2)
    for each in (job, other):
        await lone_admission.set_state(each, "RUNNING", run_number=1)
        await lone_admission.add_run(each, 1, node="n7")
    await lone_admission.database.execute("UPDATE runs SET stop_cause = 'drain' WHERE job_id = $1", other)
    await lone_admission.database.execute("UPDATE nodes SET drain = 'gently', note = 'drained by ops'")
    where = "it runs on n7, drained by ops (2 runs still there, 1 of them leaving)"
    ahead, past, guard = "2090-01-01T00:00:00+00:00", "2020-01-01T00:00:00+00:00", "it is inside its minimum run"
    said = {
        ahead: f"until {ahead} this protects its run: {guard}",
        past: f"until {past} this protected its run: {guard}; it leaves with the next look",
        None: f"it stays as long as this protects its run: {guard}",
    }
    for until, words in said.items():
        await _decided(lone_admission, job, 0, "drain", {"protected": guard, "until": until})
        why = await lone_admission.get(f"/v1/jobs/{job}/why")
        assert (why["reason"], why["decision"]) == (f"{where}; {words}", "drain")
    await lone_admission.database.execute("UPDATE nodes SET drain = 'no', note = ''")
    why = await lone_admission.get(f"/v1/jobs/{job}/why")
    assert (why["reason"], why["decision"], why["detail"]) == ("", "", {})


async def test_why_of_a_job_on_a_drained_node_that_may_not_be_preempted_says_the_node_waits(
    lone_admission: Admission,
) -> None:
    await lone_admission.set_team("default", allowances={"not_preemptible": 4, "urgent": 4})
    await add_node(lone_admission, "n7", 1)
    await lone_admission.database.execute("UPDATE nodes SET drain = 'gently', note = 'drained by ops'")
    for asked in ({"preemptible": False}, {"class": "urgent"}):
        job = await lone_admission.submitted(**asked)
        await lone_admission.set_state(job, "RUNNING", run_number=1)
        await lone_admission.add_run(job, 1, node="n7")
        reason = (await lone_admission.get(f"/v1/jobs/{job}/why"))["reason"]
        assert reason.startswith("it runs on n7, drained by ops (")
        assert reason.endswith("; it may not be preempted, so the node waits for its end")


async def test_why_of_a_job_that_has_ended_shows_nothing_of_its_wait(lone_admission: Admission) -> None:
    job = await lone_admission.submitted(time_limit="1h")
    await lone_admission.set_state(job, "EXPIRED")
    await lone_admission.database.execute(
        "UPDATE job_states SET message = 'it has waited 1 h', reason_code = 'no_room', reason = 'no GPU is free' "
        "WHERE job_id = $1",
        job,
    )
    await lone_admission.database.execute(
        "INSERT INTO decisions (pool_id, job_id, epoch, decided_at, choice, reason_code, reason, detail) "
        "VALUES ($1, $2, 1, now(), 'wait', 'no_room', 'no GPU is free', '{\"next_look_at\": \"soon\"}')",
        lone_admission.settings.pool,
        job,
    )
    why = await lone_admission.get(f"/v1/jobs/{job}/why")
    assert (why["reason_code"], why["reason"], why["detail"]) == ("", "it has ended: it has waited 1 h", {})


async def test_why_of_a_job_that_ran_out_of_time_names_its_limit(lone_admission: Admission) -> None:
    job, changed = await lone_admission.submitted(time_limit="90s"), await lone_admission.submitted(time_limit="90s")
    for each in (job, changed):
        await lone_admission.set_state(each, "RUNNING")
    await lone_admission.database.execute(
        "UPDATE job_states SET amendments = '{\"time_limit\": 7200.0}' WHERE job_id = $1", changed
    )
    for each, limit in ((job, "1m30s"), (changed, "2h")):
        await lone_admission.set_state(each, "TIMED_OUT")
        reason = (await lone_admission.get(f"/v1/jobs/{each}/why"))["reason"]
        assert reason == f"it has ended: its time limit of {limit} is used up"


async def test_why_of_a_reserved_and_of_a_stopping_job_says_for_whom_and_until_when(
    lone_admission: Admission,
) -> None:
    await add_node(lone_admission, "n7", 1)
    victim, urgent = await lone_admission.submitted(), await lone_admission.submitted()
    await lone_admission.set_state(victim, "STOPPING", run_number=1)
    await lone_admission.set_state(urgent, "RESERVED", run_number=1)
    leaving = await lone_admission.add_run(victim, 1, node="n7")
    holding = await lone_admission.add_run(urgent, 1, node="n7")
    await lone_admission.database.execute(
        "UPDATE runs SET stop_cause = 'preempt', leaves_by = '2090-12-01T08:00:30+00' WHERE run_id = $1", leaving
    )
    await lone_admission.database.execute(
        'UPDATE runs SET after_runs = ARRAY[$2], gpus = \'[{"gpu_id": "GPU-0"}]\' WHERE run_id = $1',
        holding,
        leaving,
    )
    await lone_admission.database.execute(
        "INSERT INTO preemptions (pool_id, preemptor_job, victim_job, victim_run, trigger, rule, victim_value, "
        "decided_at) VALUES ($1, $2, $3, $4, 'arrival', 'priority', 500, now())",
        lone_admission.settings.pool,
        urgent,
        victim,
        leaving,
    )

    async def reason(job: str) -> str:
        return str((await lone_admission.get(f"/v1/jobs/{job}/why"))["reason"])

    until = "2090-12-01T08:00:30+00:00"
    assert await reason(urgent) == f"it waits for {leaving} to leave GPU 0 of n7, at the latest {until}"
    killed = f"its run is killed if it has not left by {until}"
    assert await reason(victim) == f"it was preempted by job {urgent}; {killed}"
    await lone_admission.database.execute(
        "UPDATE runs SET leaves_by = '2020-12-01T08:00:30+00' WHERE run_id = $1", leaving
    )
    late = "2020-12-01T08:00:30+00:00, which has passed"
    assert await reason(urgent) == f"it waits for {leaving} to leave GPU 0 of n7, at the latest {late}"
    assert (await reason(victim)).endswith(f"its run is killed if it has not left by {late}")
    await lone_admission.database.execute(
        "UPDATE runs SET leaves_by = '2090-12-01T08:00:30+00' WHERE run_id = $1", leaving
    )
    await lone_admission.database.execute("UPDATE preemptions SET trigger = 'manual', preemptor_job = NULL")
    assert await reason(victim) == f"it was preempted by hand; {killed}"
    for cause, words in (
        ("cancel", "it was cancelled"),
        ("time_limit", "its time limit is used up"),
        ("drain", "its node is being emptied"),
    ):
        await lone_admission.database.execute("UPDATE runs SET stop_cause = $2 WHERE run_id = $1", leaving, cause)
        assert await reason(victim) == f"{words}; {killed}"
    await lone_admission.database.execute(
        "INSERT INTO decisions (pool_id, job_id, epoch, decided_at, choice, reason_code, reason) "
        "VALUES ($1, $2, 1, now(), 'withdraw', 'withdraw', 'its hold ends: hold_expired')",
        lone_admission.settings.pool,
        victim,
    )
    assert await reason(victim) == f"its hold ends: hold expired; {killed}"


async def test_a_job_that_may_not_begin_yet_is_ahead_of_nobody(lone_admission: Admission) -> None:
    later, job = await lone_admission.submitted(), await lone_admission.submitted()
    for each in (later, job):
        await lone_admission.set_state(each, "QUEUED")
    assert (await lone_admission.get(f"/v1/jobs/{job}/why"))["queue_position"] == 2
    await lone_admission.database.execute("UPDATE job_states SET reason_code = 'not_yet' WHERE job_id = $1", later)
    why = await lone_admission.get(f"/v1/jobs/{job}/why")
    assert (why["queue_position"], why["queue_length"], why["ahead"]) == (1, 1, [])
    assert (await lone_admission.get(f"/v1/jobs/{later}/why"))["queue_position"] is None


async def test_why_of_a_job_whose_only_node_is_dead_says_so_and_names_no_wait(lone_admission: Admission) -> None:
    await add_node(lone_admission, "n7", 1)
    job = await lone_admission.submitted(constraints={"nodes": ["n7"]})
    await lone_admission.set_state(job, "QUEUED")
    await lone_admission.database.execute(
        "UPDATE job_states SET reason_code = 'no_room', reason = 'no node has room for 1 GPU now' WHERE job_id = $1",
        job,
    )
    await _decided(lone_admission, job, 5, "wait", {"gpus": {"in use": 1}, "worst_case_wait": "2h"})
    why = await lone_admission.get(f"/v1/jobs/{job}/why")
    assert why["reason"].startswith("no node has room for 1 GPU now")
    assert why["detail"]["worst_case_wait"].startswith("1h59m")
    await lone_admission.database.execute(
        "UPDATE nodes SET state = 'DEAD', note = 'declared dead by ann: on fire', state_since = '2026-11-30T08:00:00Z'"
    )
    why = await lone_admission.get(f"/v1/jobs/{job}/why")
    dead = "n7 (declared dead by ann: on fire, since 2026-11-30T08:00:00+00:00)"
    assert why["reason"].startswith(f"no node that could run it takes runs now: {dead}")
    assert why["detail"]["worst_case_wait"] == "unbounded: every node that could run it is closed"
    assert why["detail"]["would_help"] == ["n7 being heard again", "another node that has what the job asks for"]


async def test_why_of_a_job_whose_only_card_has_failed_names_it_and_no_end_of_a_run(lone_admission: Admission) -> None:
    await add_node(lone_admission, "n7", 2)
    job = await lone_admission.submitted(gpus=2)
    await lone_admission.set_state(job, "QUEUED")
    await lone_admission.database.execute("UPDATE job_states SET reason_code = 'no_room', reason = 'no room'")
    stored = {"would_help": ["the end of runs on suitable GPUs"], "worst_case_wait": "2h"}
    await _decided(lone_admission, job, 5, "wait", stored)
    why = await lone_admission.get(f"/v1/jobs/{job}/why")
    assert why["detail"]["would_help"] == stored["would_help"]
    fault = "its driver has told of a fault: XID 79"
    await lone_admission.database.execute(
        "UPDATE gpus SET condition = 'quarantined', reason = $1 WHERE gpu_id = 'GPU-1'", fault
    )
    why = await lone_admission.get(f"/v1/jobs/{job}/why")
    assert why["reason"].startswith(f"what could run it takes no runs now: GPU 1 of n7 ({fault})")
    assert why["detail"]["would_help"] == ["GPU 1 of n7 in use again", "another node that has what the job asks for"]
    assert why["detail"]["worst_case_wait"] == "unbounded: all that could run it takes no runs"


async def test_why_of_a_job_on_a_card_that_is_not_well_says_so(lone_admission: Admission) -> None:
    job = await lone_admission.submitted()
    await add_node(lone_admission, "n7", 2)
    await lone_admission.set_state(job, "RUNNING", run_number=1)
    run = await lone_admission.add_run(job, 1, node="n7")
    await lone_admission.database.execute(
        "INSERT INTO leases (run_id, gpu_id, state, vram_mib, slots) VALUES ($1, 'GPU-1', 'LIVE', 1, 4)", run
    )

    async def reason() -> str:
        return str((await lone_admission.get(f"/v1/jobs/{job}/why"))["reason"])

    fault = "its driver has told of a fault: XID 79"
    for gpu, told in (("GPU-0", ""), ("GPU-1", f"it runs on GPU 1 of n7, which takes no new runs: {fault}")):
        await lone_admission.database.execute(
            "UPDATE gpus SET condition = 'quarantined', reason = $2 WHERE gpu_id = $1", gpu, fault
        )
        assert await reason() == told
    await lone_admission.database.execute("UPDATE nodes SET drain = 'gently', note = 'drained by ops'")
    assert (await reason()).startswith(f"it runs on GPU 1 of n7, which takes no new runs: {fault}; it runs on n7, dr")
