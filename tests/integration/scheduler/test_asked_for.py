"""What a job asks for reaches the decision: where it may run, how much it takes, when it starts, what its end means."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from makeway_schemas.facts import GpuReport, JobAdmitted
from makeway_schemas.states import StopCause
from scheduler_harness import Node, PoolUnderTest, ended, preempt, preempted, start_job

HOUR = 3600.0


def after(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


async def later(pool: PoolUnderTest, seconds: float) -> None:
    """The same pool, so much later."""
    pool.cycle.steps.set_clock(await pool.store.clock() + seconds)
    await pool.turn()


async def submitted(pool: PoolUnderTest, **spec: Any) -> str:
    job = await pool.submit(**spec)
    await pool.turn(*await pool.news())
    return job


async def row(pool: PoolUnderTest, job: str) -> dict[str, Any]:
    return dict(await pool.sql.fetchrow("SELECT * FROM job_states WHERE job_id = $1", job))


async def node_of(pool: PoolUnderTest, job: str) -> str | None:
    node = await pool.sql.fetchval("SELECT node_id FROM runs WHERE job_id = $1", job)
    return None if node is None else str(node)


@pytest.mark.parametrize(
    "constraints",
    [
        {"labels": {"disk": "fast"}},
        {"nodes": ["b"]},
        {"exclude_nodes": ["a", "c"]},
        {"affinity": {"disk": "fast"}},
        {"anti_affinity": {"disk": "slow"}, "exclude_nodes": ["c"]},
    ],
)
async def test_a_job_runs_where_its_constraints_say(pool: PoolUnderTest, constraints: dict[str, Any]) -> None:
    for name, disk in (("a", "slow"), ("b", "fast"), ("c", "slow")):
        await pool.turn(Node(name, gpus=4 if name == "b" else 1).report(labels={"disk": disk}))
    job = await submitted(pool, constraints=constraints)
    assert await node_of(pool, job) == "b"


async def test_a_range_of_gpus_takes_what_is_there_and_the_plan_has_it(pool: PoolUnderTest) -> None:
    await pool.turn(Node("a", gpus=3).report())
    job = await submitted(pool, gpus=1, gpus_max=8)
    assert len(pool.planned("a")[f"{job}.1"].gpus) == 3
    assert len(await pool.leases()) == 3


async def test_slots_share_a_card_and_a_whole_card_does_not(pool: PoolUnderTest) -> None:
    await pool.turn(Node("a").report())
    first, second, third = await submitted(pool, shares=2), await submitted(pool, shares=2), await submitted(pool)
    assert [await pool.state(job) for job in (first, second, third)] == ["STARTING", "STARTING", "QUEUED"]
    (leased,) = pool.planned("a")[f"{first}.1"].gpus
    assert (leased.vram_mib, leased.whole) == (0, False)


async def test_cpus_and_memory_are_set_aside(pool: PoolUnderTest) -> None:
    await pool.turn(Node("a", gpus=4).report(cpus=8, memory_mib=1000))
    first = await submitted(pool, cpus=6, memory=100)
    second = await submitted(pool, cpus=4, memory=100)
    third = await submitted(pool, gpus=0, cpus=1, memory=900)
    assert [await pool.state(job) for job in (first, second, third)] == ["STARTING", "QUEUED", "STARTING"]


async def test_a_mig_profile_takes_its_instances_and_no_card(pool: PoolUnderTest) -> None:
    slices = tuple(
        GpuReport(gpu_id=f"MIG-{index}", index=index, type_name="A100", vram_mib=5000, mig_profile="1g.5gb")
        for index in range(2)
    )
    await pool.turn(Node("a").report(gpus=slices))
    job, whole = await submitted(pool, mig="1g.5gb"), await submitted(pool)
    assert [gpu.gpu_id for gpu in pool.planned("a")[f"{job}.1"].gpus] == ["MIG-0"]
    assert await pool.state(whole) == "UNSATISFIABLE"


async def test_linked_cards_are_required_where_the_job_says_so(pool: PoolUnderTest) -> None:
    cards = tuple(
        GpuReport(gpu_id=f"GPU-{index}", index=index, type_name="A100", vram_mib=5000, link_group=index % 2)
        for index in range(4)
    )
    await pool.turn(Node("a").report(gpus=cards))
    job = await submitted(pool, gpus=2, topology="require")
    assert [gpu.gpu_id for gpu in pool.planned("a")[f"{job}.1"].gpus] == ["GPU-0", "GPU-2"]
    assert await pool.state(await submitted(pool, gpus=2, topology="require")) == "STARTING"


async def test_a_job_does_not_begin_before_its_time_and_says_so(pool: PoolUnderTest) -> None:
    await pool.turn(Node("a").report())
    job = await submitted(pool, begin_at=after(HOUR))
    assert (await pool.state(job), (await row(pool, job))["reason_code"]) == ("QUEUED", "not_yet")
    await later(pool, HOUR + 5)
    assert (await pool.state(job), (await row(pool, job))["reason"]) == ("STARTING", "")


@pytest.mark.parametrize("limit", [{"max_wait": "1h"}, {"on_deadline": "cancel"}])
async def test_a_job_that_waits_too_long_expires(pool: PoolUnderTest, limit: dict[str, Any]) -> None:
    node = Node("a")
    await pool.turn(node.report())
    await start_job(pool, node, preemptible=False)
    if "on_deadline" in limit:
        limit = {**limit, "deadline": after(HOUR)}
    job = await submitted(pool, **limit)
    await later(pool, HOUR + 5)
    ended_row = await row(pool, job)
    assert (ended_row["state"], ended_row["end_cause"]) == ("EXPIRED", "expired")
    assert (ended_row["reason_code"], ended_row["reason"], ended_row["reason_detail"]) == ("", "", "{}")
    await pool.turn(node.report())


async def test_a_hold_whose_job_expires_is_stopped_should_it_have_started(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    victim = await start_job(pool, node, class_name="low")
    job = await submitted(pool, class_name="high", max_wait="10s")
    assert await pool.state(job) == "RESERVED"
    await later(pool, 11)
    assert await pool.state(job) == "EXPIRED"
    await pool.turn(node.exited(f"{victim}.1", preempted()), node.started(f"{job}.1"))
    assert pool.planned("a")[f"{job}.1"].verb == "STOP"
    await pool.turn(node.exited(f"{job}.1", ended()))
    assert await pool.state(job) == "EXPIRED"
    assert f"{job}.1" not in {run for run, _, _ in await pool.leases()}


async def test_a_missed_deadline_degrades_the_job_once_and_a_new_owner_knows(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    await start_job(pool, node, preemptible=False, class_name="urgent")
    job = await submitted(pool, class_name="high", priority=850, deadline=after(60))
    await later(pool, 65)
    amended = json.loads((await row(pool, job))["amendments"])
    assert amended == {"deadline": None, "class": "normal", "own_priority": None}
    await pool.take_over()
    value = pool.ledger.state.jobs[job]
    assert (value.class_name, value.own_priority, value.deadline) == ("normal", None, None)
    await later(pool, 2 * HOUR)
    assert pool.ledger.jobs[job].class_name == "normal"
    kinds = await pool.sql.fetch("SELECT kind FROM job_events WHERE job_id = $1", job)
    assert [each["kind"] for each in kinds].count("reclassed") == 1


async def test_a_promotion_counts_until_the_job_starts(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    first = await start_job(pool, node)
    job = await submitted(pool, class_name="low", max_wait="1m", on_max_wait="promote")
    await later(pool, 65)
    assert pool.ledger.state.jobs[job].promoted
    await pool.take_over()
    assert pool.ledger.state.jobs[job].promoted
    await pool.turn(node.report(), node.exited(f"{first}.1", ended()))
    await pool.turn(node.started(f"{job}.1"))
    assert not pool.ledger.state.jobs[job].promoted
    assert pool.ledger.jobs[job].amendments == {"max_wait": None}


async def test_an_own_failure_is_tried_again_as_often_as_the_job_says(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node, retries={"max": 2, "backoff": "1m", "exit_codes": [7]})
    await pool.turn(node.exited(f"{job}.1", ended(7)))
    waiting = await row(pool, job)
    assert (waiting["state"], waiting["reason_code"], waiting["own_failures"]) == ("QUEUED", "not_yet", 1)
    assert waiting["reason"].startswith("it backs off after its last end: its next try is at 20")
    assert waiting["message"] == "retry 1 of 2 after exit code 7"
    await pool.take_over()
    await later(pool, 65)
    await pool.turn(node.started(f"{job}.2"), node.exited(f"{job}.2", ended(7)))
    assert await pool.state(job) == "QUEUED"
    await later(pool, 300)
    await pool.turn(node.started(f"{job}.3"), node.exited(f"{job}.3", ended(7)))
    last = await row(pool, job)
    assert (last["state"], last["exit_code"]) == ("FAILED", 7)


async def test_an_exit_code_that_is_not_named_is_the_end(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node, retries={"max": 2, "exit_codes": [7]})
    await pool.turn(node.exited(f"{job}.1", ended(8)))
    assert await pool.state(job) == "FAILED"


async def test_a_preemption_ends_a_job_that_asks_not_to_be_requeued(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    victim = await start_job(pool, node, requeue=False)
    await submitted(pool, class_name="urgent")
    await pool.turn(node.exited(f"{victim}.1", preempted()))
    end = await row(pool, victim)
    assert (end["state"], end["message"]) == ("FAILED", "preempted, and it asks not to be requeued")


async def test_a_loss_ends_a_job_that_asks_not_to_be_requeued(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node, requeue=False)
    await pool.turn(node.exited(f"{job}.1", ended(None, outcome="lost")))
    assert await pool.state(job) == "FAILED"


async def test_a_run_that_has_run_long_enough_is_left_alone(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node, preemption={"exempt_after": "10m"})
    pool.cycle.steps.set_clock(await pool.store.clock() + 601)
    urgent = await pool.submit(class_name="urgent")
    await pool.turn(*await pool.news())
    assert (await pool.state(job), await pool.state(urgent)) == ("RUNNING", "QUEUED")


async def test_a_requeued_job_still_fits_its_time_limit(pool: PoolUnderTest) -> None:
    node = Node("a")
    victim, urgent = await preempt(pool, node)
    await pool.turn(node.exited(f"{victim}.1", preempted()), node.started(f"{urgent}.1"))
    assert await pool.state(victim) == "QUEUED"


async def grouped(pool: PoolUnderTest, node: Node, **group: Any) -> tuple[str, str]:
    """Two running jobs of one group, on a card each."""
    await pool.turn(node.report())
    group = {"name": "web", **group}
    return await start_job(pool, node, group=group), await start_job(pool, node, group=group)


async def test_a_hard_group_keeps_its_jobs_up_and_a_new_owner_knows_it(pool: PoolUnderTest) -> None:
    node = Node("a", gpus=2)
    first, second = await grouped(pool, node, max_down=1)
    await submitted(pool, class_name="urgent")
    assert sorted([await pool.state(first), await pool.state(second)]) == ["RUNNING", "STOPPING"]
    await pool.take_over()
    await pool.turn(node.report())
    assert pool.ledger.state.groups["default/web"].max_down == 1
    await submitted(pool, class_name="urgent")
    assert sorted([await pool.state(first), await pool.state(second)]) == ["RUNNING", "STOPPING"]


async def test_the_newest_job_says_what_a_group_means(pool: PoolUnderTest) -> None:
    await grouped(pool, Node("a", gpus=2), max_down=1)
    await submitted(pool, group={"name": "web", "min_available": 2, "hard": False})
    await submitted(pool, group={"name": "web", "max_down": 7}, team="other")
    groups = pool.ledger.state.groups
    assert (groups["default/web"].min_available, groups["default/web"].hard) == (2, False)
    assert groups["other/web"].max_down == 7


async def set_team(pool: PoolUnderTest, **columns: Any) -> None:
    """Change the rights of the team as admission does, and look for them as the sweep does."""
    for name, value in columns.items():
        await pool.sql.execute(f"UPDATE teams SET {name} = $1, version = version + 1", value)
    teams, _ = await pool.store.load_teams()
    pool.ledger.new_teams = tuple(teams)
    await pool.turn()


async def test_the_limit_of_each_user_holds(pool: PoolUnderTest) -> None:
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    await start_job(pool, node)
    await set_team(pool, user_limit=1)
    job = await submitted(pool)
    waiting = await row(pool, job)
    assert (waiting["reason_code"], waiting["reason"]) == (
        "team_limit",
        "the limit of each user of team default is 1 GPU: 1 is in use and the job asks for 1",
    )
    await set_team(pool, user_limit=2)
    assert await pool.state(job) == "STARTING"


async def test_a_limit_in_per_cent_moves_with_the_nodes(pool: PoolUnderTest) -> None:
    first, second = Node("a", gpus=2), Node("b", gpus=2)
    await pool.turn(first.report())
    await start_job(pool, first)
    await set_team(pool, percents='{"limit": 50}')
    job = await submitted(pool)
    reason = (await row(pool, job))["reason"]
    assert reason == "the limit of team default, 50% of the pool, is 1 GPU: 1 is in use and the job asks for 1"
    large = await submitted(pool, gpus=2)
    assert await pool.state(large) == "UNSATISFIABLE"
    await pool.turn(second.report())
    assert await pool.state(job) == "STARTING"
    assert await pool.state(large) == "QUEUED"
    await pool.take_over()
    assert pool.ledger.state.team("default").limit == 2.0


async def test_once_the_hours_of_the_month_are_used_nothing_more_starts(pool: PoolUnderTest) -> None:
    node = Node("a", gpus=2)
    await pool.turn(node.report())
    ran = await start_job(pool, node)
    await pool.turn(node.exited(f"{ran}.1", ended()))
    month = "date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'"
    await pool.sql.execute(
        f"UPDATE runs SET planned_at = {month} - interval '9 hours', started_at = {month} - interval '9 hours', "
        f"ended_at = {month} + interval '3 hours'"
    )
    await set_team(pool, gpu_hours_per_month=2.5)
    job = await submitted(pool)
    assert (await row(pool, job))["reason"] == "team default has used 3 of its 2.5 GPU-hours of this month"
    await set_team(pool, gpu_hours_per_month=None)
    assert await pool.state(job) == "STARTING"


async def why(pool: PoolUnderTest, job: str) -> dict[str, Any]:
    sql = "SELECT detail FROM decisions WHERE job_id = $1 ORDER BY decision_id DESC LIMIT 1"
    detail: dict[str, Any] = json.loads(await pool.sql.fetchval(sql, job))
    return detail


async def test_why_gives_the_expected_start_and_the_longest_wait(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    runs = await start_job(pool, node, time_limit="1h", preemption={"grace": "1m"})
    told = await why(pool, await submitted(pool))
    assert (datetime.fromisoformat(told["expected_start"]) - datetime.now(UTC)).total_seconds() == pytest.approx(
        HOUR, abs=30
    )
    assert told["worst_case_wait"] == "unbounded: class urgent stays above it and is not limited for every team"
    await set_team(pool, gpu_limit=1)
    await pool.turn(await pool.command(runs, "set_priority", 600))
    told = await why(pool, await submitted(pool, class_name="low"))
    assert told["worst_case_wait"].startswith("unbounded: classes above it may use 1 GPU,")


async def test_no_decision_is_older_than_the_wait_that_it_is_about(pool: PoolUnderTest) -> None:
    """Admission's clock may be ahead of the database's, by which is decided."""
    job = await pool.submit()
    (admitted,) = [fact for fact in await pool.news() if isinstance(fact, JobAdmitted)]
    ahead = admitted.job.model_copy(update={"submitted_at": datetime.now(UTC) + timedelta(seconds=30)})
    await pool.turn(admitted.model_copy(update={"job": ahead}))
    sql = (
        "SELECT d.decided_at - s.queued_since FROM decisions AS d JOIN job_states AS s USING (job_id) WHERE job_id = $1"
    )
    assert await pool.sql.fetchval(sql, job) == timedelta(0)


async def test_a_start_that_failed_is_an_own_failure_that_is_tried_again(pool: PoolUnderTest) -> None:
    node = Node("a")
    await pool.turn(node.report())
    job = await submitted(pool, retries={"max": 1, "exit_codes": [127]})
    await pool.turn(node.exited(f"{job}.1", ended(None, outcome="start_failed", message="no such program")))
    assert (await row(pool, job))["message"] == "retry 1 of 1 after exit code 127"


@pytest.mark.parametrize("part", [{}, {"shares": 2}])
async def test_who_waits_is_planned_to_follow_a_run_that_its_node_stops_at_its_time_limit(
    pool: PoolUnderTest, part: dict[str, Any]
) -> None:
    node = Node("a")
    await pool.turn(node.report())
    limited = await start_job(pool, node, time_limit="1h", preemptible=False)
    waiting = await submitted(pool, class_name="high", **part)
    await pool.turn(node.noticed(f"{limited}.1", StopCause.TIME_LIMIT))
    assert await pool.state(waiting) == "RESERVED"
    states = {run: state for run, _, state in await pool.leases()}
    assert states == {f"{limited}.1": "LEAVING", f"{waiting}.1": "NEXT"}
    end = ended(143, cause=StopCause.TIME_LIMIT, notice_delivered=True)
    await pool.turn(node.exited(f"{limited}.1", end), node.started(f"{waiting}.1"))
    assert (await pool.state(limited), await pool.state(waiting)) == ("TIMED_OUT", "RUNNING")
