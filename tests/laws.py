"""The laws of the design, looked at from outside: in the database, in /proc, and by what jobs wrote themselves."""

import time
from pathlib import Path

from live_cluster import LiveCluster, LiveJob, wait_until
from makeway_schemas.states import TERMINAL

_TERMINAL = [str(state) for state in TERMINAL]


def assert_laws(cluster: LiveCluster) -> None:
    """Every law that can be seen from outside, for the jobs of the test at hand, all of which have ended."""
    jobs = list(cluster.jobs)
    ids = [job.job_id for job in jobs]
    ended = cluster.sql("SELECT job_id, state FROM job_states WHERE job_id = ANY ($1) AND ended_at IS NULL", ids)
    assert ended == [], "jobs that have not ended"
    wait_until(lambda: not _leases(cluster, ids), "no lease is left")
    assert_no_oversell(cluster)
    assert_one_run_at_a_time(cluster, ids)
    assert_one_end(cluster, ids)
    for job in jobs:
        assert_starts(cluster, job)
    assert_preemptions(cluster, ids)
    wait_until(lambda: not processes_of(ids), "no process of any job is left", within=10)


def assert_no_oversell(cluster: LiveCluster) -> None:
    """Law 1: the sums are those of the leases, and fit; no job found another's process on its GPU."""
    rows = cluster.sql(
        "SELECT g.gpu_id, g.capacity_mib, g.live_mib, g.leaving_mib, g.next_mib,"
        " coalesce(sum(l.vram_mib) FILTER (WHERE l.state = 'LIVE'), 0) AS live,"
        " coalesce(sum(l.vram_mib) FILTER (WHERE l.state = 'LEAVING'), 0) AS leaving,"
        " coalesce(sum(l.vram_mib) FILTER (WHERE l.state = 'NEXT'), 0) AS next"
        " FROM gpus AS g LEFT JOIN leases AS l USING (gpu_id) GROUP BY g.gpu_id"
    )
    for row in rows:
        assert (row["live_mib"], row["leaving_mib"], row["next_mib"]) == (row["live"], row["leaving"], row["next"])
        assert row["live"] + row["leaving"] <= row["capacity_mib"], f"oversold now: {row}"
        assert row["live"] + row["next"] <= row["capacity_mib"], f"oversold next: {row}"
    violations = cluster.work / "violations"
    assert not violations.exists(), violations.read_text()


def assert_one_run_at_a_time(cluster: LiveCluster, ids: list[str]) -> None:
    """Law 2, in the database: a run is planned only after the end of the one before it."""
    rows = cluster.sql(
        "SELECT later.run_id, earlier.ended_at, later.planned_at FROM runs AS earlier JOIN runs AS later"
        " ON later.job_id = earlier.job_id AND later.run_number = earlier.run_number + 1"
        " WHERE earlier.job_id = ANY ($1) AND (earlier.ended_at IS NULL OR earlier.ended_at > later.planned_at)",
        ids,
    )
    assert rows == [], "a run was planned before the end of the one before it"


def assert_one_end(cluster: LiveCluster, ids: list[str]) -> None:
    """Law 3: one terminal event a job, its last, of the state that the job still has."""
    rows = cluster.sql(
        "SELECT s.job_id, s.state, array_agg(e.state ORDER BY e.event_id) FILTER (WHERE e.state = ANY ($2)) AS ends"
        " FROM job_states AS s LEFT JOIN job_events AS e USING (job_id)"
        " WHERE s.job_id = ANY ($1) GROUP BY s.job_id, s.state",
        ids, _TERMINAL,
    )  # fmt: skip
    assert len(rows) == len(ids)
    for row in rows:
        assert row["ends"] == [row["state"]], f"one end is right: {row}"


def assert_starts(cluster: LiveCluster, job: LiveJob) -> None:
    """Law 2, by the job's own word: every start that it wrote is a run that started, and each run started once."""
    rows = cluster.sql(
        "SELECT run_number, started_at, end_cause FROM runs WHERE job_id = $1 ORDER BY run_number", job.job_id
    )
    started = [row["run_number"] for row in rows if row["started_at"] is not None]
    assert len(set(job.runs)) == len(job.runs), f"a run of {job.folder.name} started twice: {job.runs}"
    assert set(job.runs) <= set(started), f"{job.folder.name} started runs {job.runs}, booked are {started}"
    if not job.may_die_early:
        assert job.runs == started, f"{job.folder.name} started runs {job.runs}, booked are {started}"
    state = cluster.sql("SELECT preemptions, run_number FROM job_states WHERE job_id = $1", job.job_id)[0]
    pushed = [row for row in rows if row["end_cause"] == "preempted"]
    assert state["preemptions"] == len(pushed), f"{job.folder.name} counts {state['preemptions']} preemptions: {rows}"
    last = [row["end_cause"] for row in rows[:-1]]
    assert set(last) <= {"preempted", "never_started", "ours", "node_lost"}, f"{job.folder.name} went on after {last}"


def assert_preemptions(cluster: LiveCluster, ids: list[str]) -> None:
    """Each preempted run has its record, whose steps come in their order; a record without a preemption is void."""
    rows = cluster.sql(
        "SELECT p.*, r.end_cause, r.started_at FROM preemptions AS p JOIN runs AS r ON r.run_id = p.victim_run"
        " WHERE p.victim_job = ANY ($1)",
        ids,
    )
    for row in rows:
        told = f"{row['victim_run']}: {dict(row)}"
        assert row["exited_at"] is not None, f"no exit: {told}"
        assert row["empty_at"] is not None, f"never empty: {told}"
        assert row["void"] == (row["end_cause"] != "preempted"), f"void or not: {told}"
        # Of a void one the victim may have ended by itself a moment before it was decided.
        steps = (
            [row["exited_at"], row["empty_at"]]
            if row["void"]
            else [row["decided_at"], row["exited_at"], row["empty_at"]]
        )
        assert steps == sorted(steps), f"out of order: {told}"
        if row["noticed_at"] is not None:
            assert row["noticed_at"] <= row["exited_at"], f"noticed after its exit: {told}"
    preempted = cluster.sql(
        "SELECT run_id FROM runs WHERE job_id = ANY ($1) AND end_cause = 'preempted'"
        " AND run_id NOT IN (SELECT victim_run FROM preemptions)",
        ids,
    )
    assert preempted == [], "preempted runs without a record"


def processes_of(job_ids: list[str]) -> dict[int, str]:
    """Live processes with one of the jobs in their environment, by pid."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        for job_id in job_ids:
            if f"MAKEWAY_JOB_ID={job_id}".encode() in environment.split(b"\0"):
                found[int(entry.name)] = job_id
    return found


def end_all(cluster: LiveCluster, *, within: float = 60.0) -> None:
    """Cancel what a test left, and wait for it."""
    deadline = time.monotonic() + within
    for job in cluster.jobs:
        if job.view().state not in TERMINAL:
            job.cancel()
    for job in cluster.jobs:
        job.wait_end(within=max(1.0, deadline - time.monotonic()))


def _leases(cluster: LiveCluster, ids: list[str]) -> list[dict[str, object]]:
    return cluster.sql(
        "SELECT l.run_id, l.state FROM leases AS l JOIN runs AS r USING (run_id) WHERE r.job_id = ANY ($1)", ids
    )
