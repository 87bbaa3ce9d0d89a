-- A command that concerns a run carries the run it means, so that repeated or late it never meets the job's next run.

-- As before; a preemption by hand whose sender did not name the run means the newest one of this moment (0: none yet).
CREATE OR REPLACE FUNCTION issue_command(
    p_job_id text, p_command text, p_arguments jsonb, p_issued_by text, p_traceparent text
) RETURNS TABLE (outcome text, state text, command_id bigint, outbox_id bigint, fact text) LANGUAGE plpgsql AS $$
DECLARE
    job_pool text;
    newest_run integer;
    has_ended boolean;
    arguments jsonb := p_arguments;
    issued commands;
    new_fact jsonb;
BEGIN
    SELECT j.pool_id, coalesce(s.state, 'QUEUED'), s.ended_at IS NOT NULL, coalesce(s.run_number, 0)
    INTO job_pool, state, has_ended, newest_run
    FROM jobs AS j LEFT JOIN job_states AS s ON s.job_id = j.job_id WHERE j.job_id = p_job_id;
    IF NOT FOUND THEN
        outcome := 'unknown_job';
        RETURN NEXT; RETURN;
    ELSIF has_ended THEN
        outcome := 'ended';
        RETURN NEXT; RETURN;
    END IF;
    IF p_command = 'preempt' AND coalesce(p_arguments ->> 'run', '') = '' THEN
        arguments := p_arguments || jsonb_build_object('run', newest_run);
    END IF;
    outcome := 'issued';
    INSERT INTO commands AS c (pool_id, job_id, command, arguments, issued_by, traceparent)
    VALUES (job_pool, p_job_id, p_command, arguments, p_issued_by, p_traceparent)
    RETURNING c.* INTO issued;
    command_id := issued.command_id;
    new_fact := arguments || jsonb_build_object(
        'kind', 'command_issued', 'id', 'command/' || issued.command_id, 'correlation_id', p_job_id,
        'traceparent', p_traceparent, 'command_id', issued.command_id, 'command', p_command, 'job_id', p_job_id,
        'issued_by', p_issued_by, 'issued_at', issued.issued_at
    );
    INSERT INTO admission_outbox AS o (pool_id, fact) VALUES (job_pool, new_fact) RETURNING o.outbox_id INTO outbox_id;
    fact := new_fact::text;
    RETURN NEXT;
END $$;
