-- What operators do to nodes and jobs, and what becomes of a job's own limits.

ALTER TABLE nodes ADD COLUMN drain text NOT NULL DEFAULT 'no' CHECK (drain IN ('no', 'gently', 'forced'));
ALTER TABLE nodes ADD COLUMN note text NOT NULL DEFAULT '';
COMMENT ON COLUMN nodes.note IS 'who cordoned or drains it, and why';

ALTER TABLE job_states ADD COLUMN own_failures integer NOT NULL DEFAULT 0 CHECK (own_failures >= 0);
ALTER TABLE job_states ADD COLUMN amendments jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN job_states.amendments IS
    'what holds instead of the specification: class, own_priority, promoted, deadline, max_wait; a null takes a value away';

ALTER TABLE commands ALTER COLUMN job_id DROP NOT NULL;
ALTER TABLE commands ADD COLUMN node_id text;
ALTER TABLE commands ADD CONSTRAINT of_a_job_or_a_node CHECK ((job_id IS NULL) <> (node_id IS NULL));

DROP FUNCTION issue_command(text, text, integer, text, text);

-- Keeps a command with its fact. `state` is the job's; a job that has ended takes no more commands (outcome ended).
-- The arguments go into the fact as they are.
CREATE FUNCTION issue_command(
    p_job_id text, p_command text, p_arguments jsonb, p_issued_by text, p_traceparent text
) RETURNS TABLE (outcome text, state text, command_id bigint, outbox_id bigint, fact text) LANGUAGE plpgsql AS $$
DECLARE
    job_pool text;
    has_ended boolean;
    issued commands;
    new_fact jsonb;
BEGIN
    SELECT j.pool_id, coalesce(s.state, 'QUEUED'), s.ended_at IS NOT NULL INTO job_pool, state, has_ended
    FROM jobs AS j LEFT JOIN job_states AS s ON s.job_id = j.job_id WHERE j.job_id = p_job_id;
    IF NOT FOUND THEN
        outcome := 'unknown_job';
        RETURN NEXT; RETURN;
    ELSIF has_ended THEN
        outcome := 'ended';
        RETURN NEXT; RETURN;
    END IF;
    outcome := 'issued';
    INSERT INTO commands AS c (pool_id, job_id, command, arguments, issued_by, traceparent)
    VALUES (job_pool, p_job_id, p_command, p_arguments, p_issued_by, p_traceparent)
    RETURNING c.* INTO issued;
    command_id := issued.command_id;
    new_fact := p_arguments || jsonb_build_object(
        'kind', 'command_issued', 'id', 'command/' || issued.command_id, 'correlation_id', p_job_id,
        'traceparent', p_traceparent, 'command_id', issued.command_id, 'command', p_command, 'job_id', p_job_id,
        'issued_by', p_issued_by, 'issued_at', issued.issued_at
    );
    INSERT INTO admission_outbox AS o (pool_id, fact) VALUES (job_pool, new_fact) RETURNING o.outbox_id INTO outbox_id;
    fact := new_fact::text;
    RETURN NEXT;
END $$;

-- The same for a command to a node.
CREATE FUNCTION issue_node_command(
    p_node_id text, p_command text, p_arguments jsonb, p_issued_by text, p_traceparent text
) RETURNS TABLE (outcome text, state text, command_id bigint, outbox_id bigint, fact text) LANGUAGE plpgsql AS $$
DECLARE
    node_pool text;
    issued commands;
    new_fact jsonb;
BEGIN
    SELECT n.pool_id, n.state INTO node_pool, state FROM nodes AS n WHERE n.node_id = p_node_id;
    IF NOT FOUND THEN
        outcome := 'unknown_node';
        RETURN NEXT; RETURN;
    END IF;
    outcome := 'issued';
    INSERT INTO commands AS c (pool_id, node_id, command, arguments, issued_by, traceparent)
    VALUES (node_pool, p_node_id, p_command, p_arguments, p_issued_by, p_traceparent)
    RETURNING c.* INTO issued;
    command_id := issued.command_id;
    new_fact := p_arguments || jsonb_build_object(
        'kind', 'node_command_issued', 'id', 'command/' || issued.command_id, 'correlation_id', p_node_id,
        'traceparent', p_traceparent, 'command_id', issued.command_id, 'command', p_command, 'node_id', p_node_id,
        'issued_by', p_issued_by, 'issued_at', issued.issued_at
    );
    INSERT INTO admission_outbox AS o (pool_id, fact) VALUES (node_pool, new_fact) RETURNING o.outbox_id INTO outbox_id;
    fact := new_fact::text;
    RETURN NEXT;
END $$;

-- The writes of a batch with the new columns; else as before.
CREATE OR REPLACE FUNCTION write_inventory(p_writes jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_writes ? 'nodes' THEN
        INSERT INTO nodes AS n (node_id, pool_id, state, cordoned, accepts_runs, refusal, drain, note, session, boot_id, simulated, cpus, memory_mib, labels, agent_version, state_since)
        SELECT w.node_id, w.pool_id, w.state, w.cordoned, w.accepts_runs, w.refusal, w.drain, w.note, w.session, w.boot_id, w.simulated, w.cpus, w.memory_mib, w.labels, w.agent_version, to_timestamp(w.state_since)
        FROM jsonb_to_recordset(p_writes -> 'nodes') AS w (node_id text, pool_id text, state text, cordoned boolean, accepts_runs boolean, refusal text, drain text, note text,
            session text, boot_id text, simulated boolean, cpus integer, memory_mib bigint, labels jsonb, agent_version text, state_since double precision)
        ON CONFLICT (node_id) DO UPDATE SET pool_id = EXCLUDED.pool_id, state = EXCLUDED.state, cordoned = EXCLUDED.cordoned,
            accepts_runs = EXCLUDED.accepts_runs, refusal = EXCLUDED.refusal, drain = EXCLUDED.drain, note = EXCLUDED.note, session = EXCLUDED.session, boot_id = EXCLUDED.boot_id,
            simulated = EXCLUDED.simulated, cpus = EXCLUDED.cpus, memory_mib = EXCLUDED.memory_mib, labels = EXCLUDED.labels,
            agent_version = EXCLUDED.agent_version, state_since = EXCLUDED.state_since, version = n.version + 1;
    END IF;
    IF p_writes ? 'gpus' THEN
        INSERT INTO gpus AS g (gpu_id, node_id, gpu_index, type_name, capacity_mib, reserved_mib, capacity_slots, mig_profile, link_group, condition, cordoned, reason)
        SELECT w.gpu_id, w.node_id, w.gpu_index, w.type_name, w.capacity_mib, w.reserved_mib, w.capacity_slots, w.mig_profile, w.link_group, w.condition, w.cordoned, w.reason
        FROM jsonb_to_recordset(p_writes -> 'gpus') AS w (gpu_id text, node_id text, gpu_index integer, type_name text, capacity_mib integer, reserved_mib integer,
            capacity_slots integer, mig_profile text, link_group integer, condition text, cordoned boolean, reason text)
        ON CONFLICT (gpu_id) DO UPDATE SET node_id = EXCLUDED.node_id, gpu_index = EXCLUDED.gpu_index, type_name = EXCLUDED.type_name,
            capacity_mib = EXCLUDED.capacity_mib, reserved_mib = EXCLUDED.reserved_mib, capacity_slots = EXCLUDED.capacity_slots,
            mig_profile = EXCLUDED.mig_profile, link_group = EXCLUDED.link_group, condition = EXCLUDED.condition,
            cordoned = EXCLUDED.cordoned, reason = EXCLUDED.reason, version = g.version + 1;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION write_jobs(p_writes jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- a known row was locked and checked above; a new one must not exist
    IF p_writes ? 'new_jobs' THEN
        INSERT INTO job_states (job_id, pool_id, team_id,
            state, reason_code, reason, reason_detail, manual_priority, run_number, preemptions, infrastructure_failures, hold_failures,
            no_victims_until, retry_at, cancel_requested, queued_since, first_started_at, last_started_at, used_seconds, last_ack_step, last_end,
            last_victim_run, restart_seconds, ended_at, end_cause, exit_code, message, own_failures, amendments)
        SELECT w.job_id, w.pool_id, w.team_id,
            w.state, w.reason_code, w.reason, w.reason_detail, w.manual_priority, w.run_number, w.preemptions, w.infrastructure_failures,
            w.hold_failures, to_timestamp(w.no_victims_until), to_timestamp(w.retry_at), w.cancel_requested, to_timestamp(w.queued_since),
            to_timestamp(w.first_started_at), to_timestamp(w.last_started_at), w.used_seconds, w.last_ack_step, w.last_end, w.last_victim_run,
            w.restart_seconds, to_timestamp(w.ended_at), w.end_cause, w.exit_code, w.message, w.own_failures, w.amendments
        FROM jsonb_to_recordset(p_writes -> 'new_jobs') AS w (job_id text, pool_id text, team_id text,
            state text, reason_code text, reason text, reason_detail jsonb, manual_priority integer, run_number integer, preemptions integer,
            infrastructure_failures integer, hold_failures integer, no_victims_until double precision, retry_at double precision,
            cancel_requested boolean, queued_since double precision, first_started_at double precision, last_started_at double precision,
            used_seconds double precision, last_ack_step bigint, last_end text, last_victim_run text, restart_seconds double precision,
            ended_at double precision, end_cause text, exit_code integer, message text, own_failures integer, amendments jsonb);
    END IF;
    IF p_writes ? 'jobs' THEN
        UPDATE job_states AS s SET
            state = w.state, reason_code = w.reason_code, reason = w.reason, reason_detail = w.reason_detail, manual_priority = w.manual_priority,
            run_number = w.run_number, preemptions = w.preemptions, infrastructure_failures = w.infrastructure_failures,
            hold_failures = w.hold_failures, no_victims_until = to_timestamp(w.no_victims_until), retry_at = to_timestamp(w.retry_at),
            cancel_requested = w.cancel_requested, queued_since = to_timestamp(w.queued_since), first_started_at = to_timestamp(w.first_started_at),
            last_started_at = to_timestamp(w.last_started_at), used_seconds = w.used_seconds, last_ack_step = w.last_ack_step, last_end = w.last_end,
            last_victim_run = w.last_victim_run, restart_seconds = w.restart_seconds, ended_at = to_timestamp(w.ended_at), end_cause = w.end_cause,
            exit_code = w.exit_code, message = w.message, own_failures = w.own_failures, amendments = w.amendments,
            version = s.version + 1
        FROM jsonb_to_recordset(p_writes -> 'jobs') AS w (job_id text,
            state text, reason_code text, reason text, reason_detail jsonb, manual_priority integer, run_number integer, preemptions integer,
            infrastructure_failures integer, hold_failures integer, no_victims_until double precision, retry_at double precision,
            cancel_requested boolean, queued_since double precision, first_started_at double precision, last_started_at double precision,
            used_seconds double precision, last_ack_step bigint, last_end text, last_victim_run text, restart_seconds double precision,
            ended_at double precision, end_cause text, exit_code integer, message text, own_failures integer, amendments jsonb)
        WHERE s.job_id = w.job_id;
    END IF;
END $$;
