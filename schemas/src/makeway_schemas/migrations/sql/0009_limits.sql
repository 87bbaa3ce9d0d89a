-- Limits of each user and of the month, and the allowance for hard disruption groups.

ALTER TABLE teams ADD COLUMN user_limit integer CHECK (user_limit >= 0);
ALTER TABLE teams ADD COLUMN gpu_hours_per_month double precision CHECK (gpu_hours_per_month >= 0 AND gpu_hours_per_month < 'Infinity');
COMMENT ON COLUMN teams.gpu_hours_per_month IS 'of a calendar month, UTC; once they are used nothing more starts, and what runs goes on';

DROP FUNCTION admit_jobs(text, bigint[], text[], text[], text[], text[], text[], integer[], boolean[], boolean[], text[], text[], text[], bytea[]);
DROP FUNCTION team_objection(teams, boolean, bigint, text, integer, boolean, boolean);

-- Why the team may not have this job waiting; NULL when it may.
CREATE FUNCTION team_objection(
    p_team teams, p_rights_are_set boolean, p_waiting bigint, p_class text, p_gpus integer,
    p_class_needs_allowance boolean, p_not_preemptible boolean, p_hard_group boolean,
    OUT objection text, OUT bound bigint
) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    class_bound bigint := (p_team.class_limits ->> p_class)::bigint;
    class_allowance bigint := coalesce((p_team.allowances ->> p_class)::bigint, 0);
    group_allowance bigint := coalesce((p_team.allowances ->> 'hard_groups')::bigint, 0);
    firm_allowance bigint := coalesce((p_team.allowances ->> 'not_preemptible')::bigint, 0);
BEGIN
    IF p_gpus > p_team.gpu_limit THEN
        objection := 'team_limit'; bound := p_team.gpu_limit;
    ELSIF p_gpus > p_team.user_limit THEN
        objection := 'user_limit'; bound := p_team.user_limit;
    ELSIF p_gpus > class_bound THEN
        objection := 'class_limit'; bound := class_bound;
    ELSIF p_rights_are_set AND p_class_needs_allowance AND (class_allowance = 0 OR p_gpus > class_allowance) THEN
        objection := 'class_allowance'; bound := class_allowance;
    ELSIF p_rights_are_set AND p_not_preemptible AND (firm_allowance = 0 OR p_gpus > firm_allowance) THEN
        objection := 'not_preemptible_allowance'; bound := firm_allowance;
    ELSIF p_rights_are_set AND p_hard_group AND (group_allowance = 0 OR p_gpus > group_allowance) THEN
        objection := 'hard_groups_allowance'; bound := group_allowance;
    ELSIF p_waiting >= p_team.max_queued THEN
        objection := 'queue_full'; bound := p_team.max_queued;
    END IF;
END $$;

-- As before, with the further outcomes user_limit and hard_groups_allowance.
CREATE FUNCTION admit_jobs(
    p_pool text, p_published bigint[],
    p_job_ids text[], p_teams text[], p_names text[], p_classes text[], p_specs text[], p_gpus integer[],
    p_class_needs_allowance boolean[], p_not_preemptible boolean[], p_hard_group boolean[],
    p_submitters text[], p_traceparents text[], p_keys text[], p_hashes bytea[]
) RETURNS TABLE (outcome text, job_id text, job_name text, bound bigint, outbox_id bigint, fact text) LANGUAGE plpgsql AS $$
DECLARE
    rights_are_set boolean;
    teams_version bigint;
    known idempotency_keys;
    team teams;
    job jobs;
    settled_jobs bigint;
    new_fact jsonb;
BEGIN
    IF cardinality(p_published) > 0 THEN
        DELETE FROM admission_outbox AS o WHERE o.outbox_id = ANY (p_published);
    END IF;
    rights_are_set := EXISTS (SELECT 1 FROM teams AS t WHERE t.configured);
    IF NOT rights_are_set THEN
        INSERT INTO teams (team_id)
        SELECT DISTINCT wanted FROM unnest(p_teams) AS wanted
        WHERE NOT EXISTS (SELECT 1 FROM teams AS t WHERE t.team_id = wanted) ORDER BY wanted
        ON CONFLICT (team_id) DO NOTHING;
    END IF;
    PERFORM 1 FROM teams AS t WHERE t.team_id = ANY (p_teams) ORDER BY t.team_id FOR NO KEY UPDATE;
    -- Rises with every change of any team's rights, so that the scheduler knows when its own are older.
    SELECT sum(t.version) INTO teams_version FROM teams AS t;

    FOR i IN 1 .. cardinality(p_job_ids) LOOP
        job_id := p_job_ids[i]; job_name := p_names[i]; bound := NULL; outbox_id := NULL; fact := NULL;
        IF p_keys[i] IS NOT NULL THEN
            SELECT * INTO known FROM idempotency_keys AS k WHERE k.team_id = p_teams[i] AND k.key = p_keys[i];
            IF FOUND THEN
                SELECT j.job_id, j.name INTO job_id, job_name FROM jobs AS j WHERE j.job_id = known.job_id;
                outcome := CASE WHEN known.request_hash = p_hashes[i] THEN 'repeated' ELSE 'key_reused' END;
                RETURN NEXT; CONTINUE;
            END IF;
        END IF;

        IF EXISTS (SELECT 1 FROM jobs AS j WHERE j.job_id = p_job_ids[i]) THEN
            outcome := 'admitted';
            RETURN NEXT; CONTINUE;
        END IF;

        SELECT * INTO team FROM teams AS t WHERE t.team_id = p_teams[i];
        IF NOT FOUND THEN
            outcome := 'unknown_team';
            RETURN NEXT; CONTINUE;
        END IF;
        SELECT coalesce((SELECT p.settled FROM team_progress AS p WHERE p.team_id = p_teams[i]), 0) INTO settled_jobs;
        SELECT o.objection, o.bound INTO outcome, bound
        FROM team_objection(team, rights_are_set, team.admitted - settled_jobs, p_classes[i], p_gpus[i],
                            p_class_needs_allowance[i], p_not_preemptible[i], p_hard_group[i]) AS o;
        IF outcome IS NOT NULL THEN
            RETURN NEXT; CONTINUE;
        END IF;

        outcome := 'admitted';
        INSERT INTO jobs AS j (job_id, pool_id, team_id, name, class_name, spec, submitted_by, traceparent)
        VALUES (p_job_ids[i], p_pool, p_teams[i], p_names[i], p_classes[i], p_specs[i]::jsonb, p_submitters[i], p_traceparents[i])
        RETURNING j.* INTO job;
        IF p_keys[i] IS NOT NULL THEN
            INSERT INTO idempotency_keys (team_id, key, request_hash, job_id)
            VALUES (p_teams[i], p_keys[i], p_hashes[i], p_job_ids[i]);
        END IF;
        new_fact := jsonb_set(admitted_job_fact(job), '{job,teams_version}', to_jsonb(teams_version));
        INSERT INTO admission_outbox AS o (pool_id, fact) VALUES (p_pool, new_fact) RETURNING o.outbox_id INTO outbox_id;
        fact := new_fact::text;
        UPDATE teams AS t SET admitted = t.admitted + 1 WHERE t.team_id = p_teams[i];
        RETURN NEXT;
    END LOOP;
END $$;

CREATE INDEX runs_by_end ON runs (ended_at);
