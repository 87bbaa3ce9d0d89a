-- A run that is told to stop by the batch that plans it is stored with that stop; the rest is as in 0004.
CREATE OR REPLACE FUNCTION write_runs_and_leases(p_writes jsonb) RETURNS void LANGUAGE plpgsql AS $$
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
        -- one may be told to stop by the batch that plans it: whoever takes over must find that
        INSERT INTO runs (run_id, job_id, run_number, pool_id, node_id, state, value, gpus, cpus, memory_mib, after_runs, trigger, restart_seconds, promoted, after_preemption, withdrawing, stop_cause, stop_grace_seconds, stop_at, leaves_by, planned_at, empty_at, begun_at, traceparent)
        SELECT w.run_id, w.job_id, w.run_number, w.pool_id, w.node_id, w.state, w.value, w.gpus, w.cpus, w.memory_mib, w.after_runs, w.trigger, w.restart_seconds, w.promoted, w.after_preemption, coalesce(w.withdrawing, false), w.stop_cause, w.stop_grace_seconds, to_timestamp(w.stop_at), to_timestamp(w.leaves_by), to_timestamp(w.planned_at), to_timestamp(w.empty_at), to_timestamp(w.begun_at), w.traceparent
        FROM jsonb_to_recordset(p_writes -> 'new_runs') AS w (run_id text, job_id text, run_number integer, pool_id text, node_id text, state text, value integer,
            gpus jsonb, cpus double precision, memory_mib bigint, after_runs text[], trigger text, restart_seconds double precision, promoted boolean,
            after_preemption boolean, withdrawing boolean, stop_cause text, stop_grace_seconds double precision, stop_at double precision, leaves_by double precision,
            planned_at double precision, empty_at double precision, begun_at double precision, traceparent text);
    END IF;
    IF p_writes ? 'grants' THEN
        INSERT INTO leases (run_id, gpu_id, state, vram_mib, slots)
        SELECT w.run_id, w.gpu_id, w.state, w.vram_mib, w.slots
        FROM jsonb_to_recordset(p_writes -> 'grants') AS w (run_id text, gpu_id text, state text, vram_mib integer, slots integer);
    END IF;
END $$;
