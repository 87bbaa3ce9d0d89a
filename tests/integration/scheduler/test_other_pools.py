"""Several pools in one database: an owner sees and sends what is its pool's."""

import json

from scheduler_harness import Node, PoolUnderTest, start_job

OTHER = (
    "INSERT INTO pools (pool_id, epoch) VALUES ('other', 7)",
    "INSERT INTO nodes (node_id, pool_id, state, session, boot_id) VALUES ('x', 'other', 'READY', '1', 'b')",
    "INSERT INTO gpus (gpu_id, node_id, gpu_index, type_name, capacity_mib) VALUES ('GPU-x', 'x', 0, 'A100', 1)",
    "INSERT INTO jobs (job_id, pool_id, team_id, name, class_name, spec, submitted_by) "
    "SELECT id, 'other', 'default', 'n', 'normal', $1::jsonb, 'tester' "
    "FROM unnest(ARRAY['00000000zzz1', '00000000zzz2']) AS id",
    "INSERT INTO job_states (job_id, pool_id, team_id, state, queued_since) "
    "VALUES ('00000000zzz1', 'other', 'default', 'RUNNING', now())",
    "INSERT INTO runs (run_id, job_id, run_number, pool_id, node_id, state, value, gpus, planned_at) "
    "VALUES ('00000000zzz1.1', '00000000zzz1', 1, 'other', 'x', 'RUNNING', 1, '[]', now())",
    "INSERT INTO commands (pool_id, job_id, command, issued_by) VALUES ('other', '00000000zzz1', 'cancel', 'tester')",
    "INSERT INTO policies (pool_id, body, applied_by) VALUES ('other', '{}', 'tester')",
    "INSERT INTO job_events (pool_id, job_id, at, kind, state) "
    "VALUES ('other', '00000000zzz1', now() - interval '1 hour', 'queued', 'QUEUED')",
)


async def test_an_owner_sees_nothing_of_another_pool(pool: PoolUnderTest) -> None:
    for statement in OTHER:
        spec = [json.dumps({"command": ["/bin/true"], "gpus": 1})] if "$1" in statement else []
        await pool.sql.execute(statement, *spec)
    await pool.take_over()
    ledger = pool.ledger
    assert [len(table) for table in (ledger.jobs, ledger.runs, ledger.nodes, ledger.gpus)] == [0, 0, 0, 0]
    assert await pool.news() == []
    assert await pool.store.unapplied(ever=False) == []
    assert await pool.store.load_policies(0) == []
    assert await pool.store.unpublished_events() == []
    assert await pool.sql.fetchval("SELECT epoch FROM pools WHERE pool_id = 'other'") == 7
    node = Node("a")
    await pool.turn(node.report())
    job = await start_job(pool, node)
    assert await pool.state(job) == "RUNNING"
    assert await pool.sql.fetchval("SELECT state FROM job_states WHERE job_id = '00000000zzz1'") == "RUNNING"
