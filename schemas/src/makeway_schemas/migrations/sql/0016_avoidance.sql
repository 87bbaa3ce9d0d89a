-- What a job avoids after its runs were lost is kept over a take-over; the rest is as in 0008.
ALTER TABLE job_states ADD COLUMN avoidance jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN job_states.avoidance IS
    'nodes and gpus, by id, on which its runs were lost or did not start, the newest last, and until when (seconds since the epoch); empty: none';

-- a scheduler from before it does not say what a job avoids: that stays as it is
CREATE OR REPLACE FUNCTION write_jobs(p_writes jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- a known row was locked and checked above; a new one must not exist
    IF p_writes ? 'new_jobs' THEN
        INSERT INTO job_states (job_id, pool_id, team_id,
            state, reason_code, reason, reason_detail, manual_priority, run_number, preemptions, infrastructure_failures, hold_failures,
            no_victims_until, retry_at, cancel_requested, queued_since, first_started_at, last_started_at, used_seconds, last_ack_step, last_end,
            last_victim_run, restart_seconds, ended_at, end_cause, exit_code, message, own_failures, amendments, avoidance)
        SELECT w.job_id, w.pool_id, w.team_id,
            w.state, w.reason_code, w.reason, w.reason_detail, w.manual_priority, w.run_number, w.preemptions, w.infrastructure_failures,
            w.hold_failures, to_timestamp(w.no_victims_until), to_timestamp(w.retry_at), w.cancel_requested, to_timestamp(w.queued_since),
            to_timestamp(w.first_started_at), to_timestamp(w.last_started_at), w.used_seconds, w.last_ack_step, w.last_end, w.last_victim_run,
            w.restart_seconds, to_timestamp(w.ended_at), w.end_cause, w.exit_code, w.message, w.own_failures, w.amendments, coalesce(w.avoidance, '{}')
        FROM jsonb_to_recordset(p_writes -> 'new_jobs') AS w (job_id text, pool_id text, team_id text,
            state text, reason_code text, reason text, reason_detail jsonb, manual_priority integer, run_number integer, preemptions integer,
            infrastructure_failures integer, hold_failures integer, no_victims_until double precision, retry_at double precision,
            cancel_requested boolean, queued_since double precision, first_started_at double precision, last_started_at double precision,
            used_seconds double precision, last_ack_step bigint, last_end text, last_victim_run text, restart_seconds double precision,
            ended_at double precision, end_cause text, exit_code integer, message text, own_failures integer, amendments jsonb, avoidance jsonb);
    END IF;
    IF p_writes ? 'jobs' THEN
        UPDATE job_states AS s SET
            state = w.state, reason_code = w.reason_code, reason = w.reason, reason_detail = w.reason_detail, manual_priority = w.manual_priority,
            run_number = w.run_number, preemptions = w.preemptions, infrastructure_failures = w.infrastructure_failures,
            hold_failures = w.hold_failures, no_victims_until = to_timestamp(w.no_victims_until), retry_at = to_timestamp(w.retry_at),
            cancel_requested = w.cancel_requested, queued_since = to_timestamp(w.queued_since), first_started_at = to_timestamp(w.first_started_at),
            last_started_at = to_timestamp(w.last_started_at), used_seconds = w.used_seconds, last_ack_step = w.last_ack_step, last_end = w.last_end,
            last_victim_run = w.last_victim_run, restart_seconds = w.restart_seconds, ended_at = to_timestamp(w.ended_at), end_cause = w.end_cause,
            exit_code = w.exit_code, message = w.message, own_failures = w.own_failures, amendments = w.amendments, avoidance = coalesce(w.avoidance, s.avoidance),
            version = s.version + 1
        FROM jsonb_to_recordset(p_writes -> 'jobs') AS w (job_id text,
            state text, reason_code text, reason text, reason_detail jsonb, manual_priority integer, run_number integer, preemptions integer,
            infrastructure_failures integer, hold_failures integer, no_victims_until double precision, retry_at double precision,
            cancel_requested boolean, queued_since double precision, first_started_at double precision, last_started_at double precision,
            used_seconds double precision, last_ack_step bigint, last_end text, last_victim_run text, restart_seconds double precision,
            ended_at double precision, end_cause text, exit_code integer, message text, own_failures integer, amendments jsonb, avoidance jsonb)
        WHERE s.job_id = w.job_id;
    END IF;
END $$;
