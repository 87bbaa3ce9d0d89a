-- The policy that a pool was decided by last: a scheduler that takes over tells from it whether another is in force now.
-- In a table of its own: the row in pools is locked by every commit.
CREATE TABLE policies_in_force (
    pool_id         text PRIMARY KEY REFERENCES pools (pool_id),
    policy_id       bigint NOT NULL CHECK (policy_id >= 0),
    settings_digest text,
    since           timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE policies_in_force IS
    'scheduler: written in the transaction that applies the policy; policy_id 0: none was applied, that of the settings holds';
COMMENT ON COLUMN policies_in_force.settings_digest IS
    'with policy_id 0: SHA-256 of the policy of the settings, in hexadecimal; null: not known';
GRANT SELECT ON policies_in_force TO makeway_admission;
GRANT SELECT, INSERT, UPDATE ON policies_in_force TO makeway_scheduler;

-- Schedulers from before it took every policy that was applied while they ran.
INSERT INTO policies_in_force (pool_id, policy_id)
SELECT pool_id, coalesce((SELECT max(policy_id) FROM policies WHERE policies.pool_id = pools.pool_id), 0) FROM pools;

CREATE FUNCTION write_policy_in_force(p_pool text, p_writes jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_writes ? 'policy_in_force' THEN
        INSERT INTO policies_in_force AS p (pool_id, policy_id, settings_digest)
        SELECT p_pool, w.policy_id, w.settings_digest
        FROM jsonb_to_recordset(p_writes -> 'policy_in_force') AS w (policy_id bigint, settings_digest text)
        ON CONFLICT (pool_id) DO UPDATE SET policy_id = EXCLUDED.policy_id, settings_digest = EXCLUDED.settings_digest, since = now();
    END IF;
END $$;

CREATE OR REPLACE FUNCTION commit_batch(
    p_pool text, p_epoch bigint, p_skip_locked boolean,
    p_job_ids text[], p_job_versions bigint[],
    p_node_ids text[], p_node_versions bigint[],
    p_gpu_ids text[], p_gpu_versions bigint[],
    p_writes jsonb
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    event_ids bigint[];
BEGIN
    PERFORM 1 FROM pools WHERE pool_id = p_pool AND epoch = p_epoch FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pool % is not at epoch % any more', p_pool, p_epoch USING ERRCODE = 'MW001';
    END IF;
    PERFORM lock_and_check(p_skip_locked, p_job_ids, p_job_versions, p_node_ids, p_node_versions, p_gpu_ids, p_gpu_versions);
    PERFORM write_policy_in_force(p_pool, p_writes);
    PERFORM write_inventory(p_writes);
    PERFORM write_jobs(p_writes);
    PERFORM write_runs_and_leases(p_writes);
    event_ids := write_records(p_pool, p_epoch, p_writes);
    RETURN jsonb_build_object(
        'now', extract(epoch FROM clock_timestamp()),
        'events', to_jsonb(event_ids),
        'gpus', (SELECT coalesce(jsonb_object_agg(gpu_id, version), '{}') FROM gpus WHERE gpu_id = ANY (p_gpu_ids)
                    OR gpu_id IN (SELECT w ->> 'gpu_id' FROM jsonb_array_elements(coalesce(p_writes -> 'gpus', '[]')) AS w)),
        'nodes', (SELECT coalesce(jsonb_object_agg(node_id, version), '{}') FROM nodes WHERE node_id = ANY (p_node_ids)
                    OR node_id IN (SELECT w ->> 'node_id' FROM jsonb_array_elements(coalesce(p_writes -> 'nodes', '[]')) AS w))
    );
END $$;
