-- The transaction of a batch, one call: fence, lock in the order job, node, GPU (each by id), double check, write.
--
-- MW001 fenced: the pool has another owner.  MW002 conflict: a row is held by somebody else.
-- MW003 stale: a row is not what was seen.   Times are seconds since the epoch; columns are named as in the tables.

CREATE FUNCTION lock_and_check(
    p_skip_locked boolean,
    p_job_ids text[], p_job_versions bigint[],
    p_node_ids text[], p_node_versions bigint[],
    p_gpu_ids text[], p_gpu_versions bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    held integer;
    stale text;
BEGIN
    IF NOT p_skip_locked THEN
        PERFORM 1 FROM job_states WHERE job_id = ANY (p_job_ids) ORDER BY job_id FOR NO KEY UPDATE;
        PERFORM 1 FROM nodes WHERE node_id = ANY (p_node_ids) ORDER BY node_id FOR NO KEY UPDATE;
        PERFORM 1 FROM gpus WHERE gpu_id = ANY (p_gpu_ids) ORDER BY gpu_id FOR UPDATE;
    END IF;
    IF cardinality(p_job_ids) > 0 THEN
        SELECT count(*), min(seen.job_id) FILTER (WHERE seen.version <> expected.version) INTO held, stale
        FROM unnest(p_job_ids, p_job_versions) AS expected (job_id, version)
        JOIN (SELECT job_id, version FROM job_states WHERE job_id = ANY (p_job_ids)
              ORDER BY job_id FOR NO KEY UPDATE SKIP LOCKED) AS seen USING (job_id);
        IF held <> cardinality(p_job_ids) THEN
            RAISE EXCEPTION 'a job row is held by somebody else' USING ERRCODE = 'MW002';
        ELSIF stale IS NOT NULL THEN
            RAISE EXCEPTION 'job % is not what was seen', stale USING ERRCODE = 'MW003';
        END IF;
    END IF;
    IF cardinality(p_node_ids) > 0 THEN
        SELECT count(*), min(seen.node_id) FILTER (WHERE seen.version <> expected.version) INTO held, stale
        FROM unnest(p_node_ids, p_node_versions) AS expected (node_id, version)
        JOIN (SELECT node_id, version FROM nodes WHERE node_id = ANY (p_node_ids)
              ORDER BY node_id FOR NO KEY UPDATE SKIP LOCKED) AS seen USING (node_id);
        IF held <> cardinality(p_node_ids) THEN
            RAISE EXCEPTION 'a node row is held by somebody else' USING ERRCODE = 'MW002';
        ELSIF stale IS NOT NULL THEN
            RAISE EXCEPTION 'node % is not what was seen', stale USING ERRCODE = 'MW003';
        END IF;
    END IF;
    IF cardinality(p_gpu_ids) > 0 THEN
        SELECT count(*), min(seen.gpu_id) FILTER (WHERE seen.version <> expected.version) INTO held, stale
        FROM unnest(p_gpu_ids, p_gpu_versions) AS expected (gpu_id, version)
        JOIN (SELECT gpu_id, version FROM gpus WHERE gpu_id = ANY (p_gpu_ids)
              ORDER BY gpu_id FOR UPDATE SKIP LOCKED) AS seen USING (gpu_id);
        IF held <> cardinality(p_gpu_ids) THEN
            RAISE EXCEPTION 'a GPU row is held by somebody else' USING ERRCODE = 'MW002';
        ELSIF stale IS NOT NULL THEN
            RAISE EXCEPTION 'GPU % is not what was seen', stale USING ERRCODE = 'MW003';
        END IF;
    END IF;
END $$;

CREATE FUNCTION write_inventory(p_writes jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_writes ? 'nodes' THEN
        INSERT INTO nodes AS n (node_id, pool_id, state, cordoned, accepts_runs, refusal, session, boot_id, simulated, cpus, memory_mib, labels, agent_version, state_since)
        SELECT w.node_id, w.pool_id, w.state, w.cordoned, w.accepts_runs, w.refusal, w.session, w.boot_id, w.simulated, w.cpus, w.memory_mib, w.labels, w.agent_version, to_timestamp(w.state_since)
        FROM jsonb_to_recordset(p_writes -> 'nodes') AS w (node_id text, pool_id text, state text, cordoned boolean, accepts_runs boolean, refusal text,
            session text, boot_id text, simulated boolean, cpus integer, memory_mib bigint, labels jsonb, agent_version text, state_since double precision)
        ON CONFLICT (node_id) DO UPDATE SET pool_id = EXCLUDED.pool_id, state = EXCLUDED.state, cordoned = EXCLUDED.cordoned,
            accepts_runs = EXCLUDED.accepts_runs, refusal = EXCLUDED.refusal, session = EXCLUDED.session, boot_id = EXCLUDED.boot_id,
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

CREATE FUNCTION write_jobs(p_writes jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- a known row was locked and checked above; a new one must not exist
    IF p_writes ? 'new_jobs' THEN
        INSERT INTO job_states (job_id, pool_id, team_id,
            state, reason_code, reason, reason_detail, manual_priority, run_number, preemptions, infrastructure_failures, hold_failures,
            no_victims_until, retry_at, cancel_requested, queued_since, first_started_at, last_started_at, used_seconds, last_ack_step, last_end,
            last_victim_run, restart_seconds, ended_at, end_cause, exit_code, message)
        SELECT w.job_id, w.pool_id, w.team_id,
            w.state, w.reason_code, w.reason, w.reason_detail, w.manual_priority, w.run_number, w.preemptions, w.infrastructure_failures,
            w.hold_failures, to_timestamp(w.no_victims_until), to_timestamp(w.retry_at), w.cancel_requested, to_timestamp(w.queued_since),
            to_timestamp(w.first_started_at), to_timestamp(w.last_started_at), w.used_seconds, w.last_ack_step, w.last_end, w.last_victim_run,
            w.restart_seconds, to_timestamp(w.ended_at), w.end_cause, w.exit_code, w.message
        FROM jsonb_to_recordset(p_writes -> 'new_jobs') AS w (job_id text, pool_id text, team_id text,
            state text, reason_code text, reason text, reason_detail jsonb, manual_priority integer, run_number integer, preemptions integer,
            infrastructure_failures integer, hold_failures integer, no_victims_until double precision, retry_at double precision,
            cancel_requested boolean, queued_since double precision, first_started_at double precision, last_started_at double precision,
            used_seconds double precision, last_ack_step bigint, last_end text, last_victim_run text, restart_seconds double precision,
            ended_at double precision, end_cause text, exit_code integer, message text);
    END IF;
    IF p_writes ? 'jobs' THEN
        UPDATE job_states AS s SET
            state = w.state, reason_code = w.reason_code, reason = w.reason, reason_detail = w.reason_detail, manual_priority = w.manual_priority,
            run_number = w.run_number, preemptions = w.preemptions, infrastructure_failures = w.infrastructure_failures,
            hold_failures = w.hold_failures, no_victims_until = to_timestamp(w.no_victims_until), retry_at = to_timestamp(w.retry_at),
            cancel_requested = w.cancel_requested, queued_since = to_timestamp(w.queued_since), first_started_at = to_timestamp(w.first_started_at),
            last_started_at = to_timestamp(w.last_started_at), used_seconds = w.used_seconds, last_ack_step = w.last_ack_step, last_end = w.last_end,
            last_victim_run = w.last_victim_run, restart_seconds = w.restart_seconds, ended_at = to_timestamp(w.ended_at), end_cause = w.end_cause,
            exit_code = w.exit_code, message = w.message,
            version = s.version + 1
        FROM jsonb_to_recordset(p_writes -> 'jobs') AS w (job_id text,
            state text, reason_code text, reason text, reason_detail jsonb, manual_priority integer, run_number integer, preemptions integer,
            infrastructure_failures integer, hold_failures integer, no_victims_until double precision, retry_at double precision,
            cancel_requested boolean, queued_since double precision, first_started_at double precision, last_started_at double precision,
            used_seconds double precision, last_ack_step bigint, last_end text, last_victim_run text, restart_seconds double precision,
            ended_at double precision, end_cause text, exit_code integer, message text)
        WHERE s.job_id = w.job_id;
    END IF;
END $$;

CREATE FUNCTION write_runs_and_leases(p_writes jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- releases first, then moves, then ends of runs, then new runs and their grants
    IF p_writes ? 'releases' THEN
        DELETE FROM leases AS l USING jsonb_to_recordset(p_writes -> 'releases') AS w (run_id text, gpu_id text)
        WHERE l.run_id = w.run_id AND l.gpu_id = w.gpu_id;
    END IF;
    IF p_writes ? 'lease_moves' THEN
        UPDATE leases AS l SET state = w.state FROM jsonb_to_recordset(p_writes -> 'lease_moves') AS w (run_id text, state text)
        WHERE l.run_id = w.run_id AND l.state <> w.state;
    END IF;
    IF p_writes ? 'runs' THEN
        UPDATE runs AS r SET
            state = w.state, value = w.value, after_runs = w.after_runs, withdrawing = w.withdrawing, stop_cause = w.stop_cause, stop_grace_seconds = w.stop_grace_seconds, pid = w.pid,
            started_at = to_timestamp(w.started_at), stop_at = to_timestamp(w.stop_at), leaves_by = to_timestamp(w.leaves_by),
            empty_at = to_timestamp(w.empty_at), begun_at = to_timestamp(w.begun_at), noticed_at = to_timestamp(w.noticed_at),
            resumed_at = to_timestamp(w.resumed_at), resumed_step = w.resumed_step, load_seconds = w.load_seconds,
            ack_step = w.ack_step, ack_bytes = w.ack_bytes, ack_fraction = w.ack_fraction, acked_at = to_timestamp(w.acked_at),
            ended_at = to_timestamp(w.ended_at), end_cause = w.end_cause, exit_code = w.exit_code, signal = w.signal, forced = w.forced,
            run_seconds = w.run_seconds, log_bytes = w.log_bytes, message = w.message
        FROM jsonb_to_recordset(p_writes -> 'runs') AS w (run_id text, state text, value integer, after_runs text[], withdrawing boolean, stop_cause text, stop_grace_seconds double precision, pid integer,
            started_at double precision, stop_at double precision, leaves_by double precision,
            empty_at double precision, begun_at double precision, noticed_at double precision, resumed_at double precision, resumed_step bigint,
            load_seconds double precision, ack_step bigint, ack_bytes bigint, ack_fraction double precision, acked_at double precision,
            ended_at double precision, end_cause text, exit_code integer, signal integer, forced boolean, run_seconds double precision,
            log_bytes bigint, message text)
        WHERE r.run_id = w.run_id;
    END IF;
    IF p_writes ? 'new_runs' THEN
        INSERT INTO runs (run_id, job_id, run_number, pool_id, node_id, state, value, gpus, cpus, memory_mib, after_runs, trigger, restart_seconds, promoted, after_preemption, planned_at, empty_at, begun_at, traceparent)
        SELECT w.run_id, w.job_id, w.run_number, w.pool_id, w.node_id, w.state, w.value, w.gpus, w.cpus, w.memory_mib, w.after_runs, w.trigger, w.restart_seconds, w.promoted, w.after_preemption, to_timestamp(w.planned_at), to_timestamp(w.empty_at), to_timestamp(w.begun_at), w.traceparent
        FROM jsonb_to_recordset(p_writes -> 'new_runs') AS w (run_id text, job_id text, run_number integer, pool_id text, node_id text, state text, value integer,
            gpus jsonb, cpus double precision, memory_mib bigint, after_runs text[], trigger text, restart_seconds double precision, promoted boolean,
            after_preemption boolean, planned_at double precision, empty_at double precision, begun_at double precision, traceparent text);
    END IF;
    IF p_writes ? 'grants' THEN
        INSERT INTO leases (run_id, gpu_id, state, vram_mib, slots)
        SELECT w.run_id, w.gpu_id, w.state, w.vram_mib, w.slots
        FROM jsonb_to_recordset(p_writes -> 'grants') AS w (run_id text, gpu_id text, state text, vram_mib integer, slots integer);
    END IF;
END $$;

CREATE FUNCTION write_records(p_pool text, p_epoch bigint, p_writes jsonb) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    event_ids bigint[] := '{}';
BEGIN
    IF p_writes ? 'new_preemptions' THEN
        INSERT INTO preemptions (pool_id, preemptor_job, preemptor_run, victim_job, victim_run, trigger, rule, preemptor_value, victim_value, expected_cost, gpu_count, decided_at)
        SELECT p_pool, w.preemptor_job, w.preemptor_run, w.victim_job, w.victim_run, w.trigger, w.rule, w.preemptor_value, w.victim_value, w.expected_cost, w.gpu_count, to_timestamp(w.decided_at)
        FROM jsonb_to_recordset(p_writes -> 'new_preemptions') AS w (preemptor_job text, preemptor_run text, victim_job text, victim_run text, trigger text, rule text,
            preemptor_value integer, victim_value integer, expected_cost double precision, gpu_count integer, decided_at double precision);
    END IF;
    IF p_writes ? 'preemptions' THEN
        -- a time once known stays: facts may come in any order and any number of times
        UPDATE preemptions AS p SET
            noticed_at = coalesce(p.noticed_at, to_timestamp(w.noticed_at)), acked_at = coalesce(to_timestamp(w.acked_at), p.acked_at),
            acked_step = coalesce(w.acked_step, p.acked_step), acked_bytes = coalesce(w.acked_bytes, p.acked_bytes),
            exited_at = coalesce(p.exited_at, to_timestamp(w.exited_at)), forced = coalesce(p.forced, w.forced),
            empty_at = coalesce(p.empty_at, to_timestamp(w.empty_at)), bound_at = coalesce(p.bound_at, to_timestamp(w.bound_at)),
            resumed_at = coalesce(p.resumed_at, to_timestamp(w.resumed_at)), resumed_step = coalesce(p.resumed_step, w.resumed_step),
            load_seconds = coalesce(p.load_seconds, w.load_seconds), lost_gpu_seconds = coalesce(w.lost_gpu_seconds, p.lost_gpu_seconds),
            void = p.void OR coalesce(w.void, false)
        FROM jsonb_to_recordset(p_writes -> 'preemptions') AS w (victim_run text, noticed_at double precision, acked_at double precision, acked_step bigint,
            acked_bytes bigint, exited_at double precision, forced boolean, empty_at double precision, bound_at double precision,
            resumed_at double precision, resumed_step bigint, load_seconds double precision, lost_gpu_seconds double precision, void boolean)
        WHERE p.victim_run = w.victim_run;
    END IF;
    IF p_writes ? 'bound' THEN
        UPDATE preemptions AS p SET bound_at = to_timestamp(w.bound_at)
        FROM jsonb_to_recordset(p_writes -> 'bound') AS w (preemptor_run text, bound_at double precision)
        WHERE p.preemptor_run = w.preemptor_run AND p.bound_at IS NULL;
    END IF;
    IF p_writes ? 'decisions' THEN
        INSERT INTO decisions (pool_id, job_id, epoch, decided_at, choice, reason_code, reason, detail)
        SELECT p_pool, w.job_id, p_epoch, to_timestamp(w.decided_at), w.choice, w.reason_code, w.reason, w.detail
        FROM jsonb_to_recordset(p_writes -> 'decisions') AS w (job_id text, decided_at double precision, choice text, reason_code text, reason text, detail jsonb);
    END IF;
    IF p_writes ? 'plans' THEN
        INSERT INTO plans AS p (node_id, epoch, number, session, planned_at)
        SELECT w.node_id, p_epoch, w.number, w.session, now()
        FROM jsonb_to_recordset(p_writes -> 'plans') AS w (node_id text, number bigint, session text)
        ON CONFLICT (node_id) DO UPDATE SET epoch = EXCLUDED.epoch, number = EXCLUDED.number, session = EXCLUDED.session, planned_at = EXCLUDED.planned_at;
    END IF;
    IF p_writes ? 'applied_commands' THEN
        INSERT INTO applied_commands (command_id, outcome)
        SELECT w.command_id, w.outcome FROM jsonb_to_recordset(p_writes -> 'applied_commands') AS w (command_id bigint, outcome text)
        ON CONFLICT (command_id) DO NOTHING;
    END IF;
    IF p_writes ? 'published_events' THEN
        UPDATE job_events SET published = true
        WHERE event_id IN (SELECT value::bigint FROM jsonb_array_elements_text(p_writes -> 'published_events')) AND NOT published;
    END IF;
    IF p_writes ? 'events' THEN
        WITH inserted AS (
            INSERT INTO job_events (pool_id, job_id, run_number, at, kind, state, data, causation_id, traceparent)
            SELECT p_pool, w.job_id, w.run_number, to_timestamp(w.at), w.kind, w.state, coalesce(w.data, '{}'), w.causation_id, w.traceparent
            FROM jsonb_to_recordset(p_writes -> 'events') AS w (position integer, job_id text, run_number integer, at double precision, kind text, state text,
                data jsonb, causation_id text, traceparent text)
            ORDER BY w.position
            RETURNING event_id
        )
        SELECT array_agg(event_id ORDER BY event_id) INTO event_ids FROM inserted;
    END IF;
    RETURN event_ids;
END $$;

CREATE FUNCTION commit_batch(
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
