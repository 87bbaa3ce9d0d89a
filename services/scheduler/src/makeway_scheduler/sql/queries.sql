-- name: take_pool<!
-- Make the pool known and raise its epoch above every epoch heard of: fences the former owner.
INSERT INTO pools AS p (pool_id, epoch, owner, taken_at) VALUES (:pool, :heard + 1, :owner, now())
ON CONFLICT (pool_id) DO UPDATE SET epoch = greatest(p.epoch, :heard) + 1, owner = EXCLUDED.owner, taken_at = now()
RETURNING epoch;

-- name: give_sign!
-- The owner lives: for whoever has to tell one that hangs from one that has nothing to do.
INSERT INTO signs_of_life (pool_id, given_at) VALUES (:pool, now())
ON CONFLICT (pool_id) DO UPDATE SET given_at = EXCLUDED.given_at;

-- name: load_clock^
-- The database's clock, seconds since the epoch.
SELECT extract(epoch FROM clock_timestamp())::double precision AS now;

-- name: load_jobs
-- Every job of the pool that has not ended, or that has ended with a run whose leases are not all released.
SELECT j.job_id, j.admission_order, j.team_id, j.class_name, j.spec, j.submitted_by, j.traceparent,
    extract(epoch FROM j.submitted_at)::double precision AS submitted_at,
    s.state, s.reason_code, s.reason, s.reason_detail, s.manual_priority, s.run_number, s.preemptions, s.infrastructure_failures,
    s.hold_failures, s.cancel_requested, s.used_seconds, s.last_ack_step, s.last_end, s.last_victim_run, s.restart_seconds,
    s.end_cause, s.exit_code, s.message, s.own_failures, s.amendments, s.avoidance, s.version,
    extract(epoch FROM s.no_victims_until)::double precision AS no_victims_until,
    extract(epoch FROM s.retry_at)::double precision AS retry_at,
    extract(epoch FROM s.queued_since)::double precision AS queued_since,
    extract(epoch FROM s.first_started_at)::double precision AS first_started_at,
    extract(epoch FROM s.last_started_at)::double precision AS last_started_at,
    extract(epoch FROM s.ended_at)::double precision AS ended_at,
    coalesce((SELECT array_agg(extract(epoch FROM p.exited_at)::double precision ORDER BY p.exited_at) FROM preemptions AS p
        WHERE p.victim_job = s.job_id AND p.exited_at > now() - interval '24 hours' AND NOT p.void AND p.trigger <> 'drain'),
        '{}') AS preempted_at
FROM job_states AS s JOIN jobs AS j USING (job_id)
WHERE s.pool_id = :pool AND (s.ended_at IS NULL
    OR s.job_id IN (SELECT r.job_id FROM runs AS r WHERE r.pool_id = :pool AND r.state <> 'RELEASED'))
ORDER BY j.admission_order;

-- name: load_runs
-- Every run of the pool whose leases are not all released, with the leases it has.
SELECT r.run_id, r.job_id, r.run_number, r.node_id, r.state, r.value, r.gpus, r.cpus, r.memory_mib, r.after_runs, r.trigger,
    r.restart_seconds, r.promoted, r.after_preemption, r.withdrawing, r.stop_cause, r.stop_grace_seconds, r.pid,
    r.resumed_step, r.load_seconds, r.ack_step, r.ack_bytes, r.ack_fraction, r.end_cause, r.exit_code, r.signal, r.forced,
    r.run_seconds, r.log_bytes, r.message, r.traceparent,
    extract(epoch FROM r.planned_at)::double precision AS planned_at,
    extract(epoch FROM r.started_at)::double precision AS started_at,
    extract(epoch FROM r.stop_at)::double precision AS stop_at,
    extract(epoch FROM r.leaves_by)::double precision AS leaves_by,
    extract(epoch FROM r.empty_at)::double precision AS empty_at,
    extract(epoch FROM r.begun_at)::double precision AS begun_at,
    extract(epoch FROM r.noticed_at)::double precision AS noticed_at,
    extract(epoch FROM r.resumed_at)::double precision AS resumed_at,
    extract(epoch FROM r.acked_at)::double precision AS acked_at,
    extract(epoch FROM r.ended_at)::double precision AS ended_at,
    (SELECT jsonb_agg(jsonb_build_object('gpu_id', l.gpu_id, 'vram_mib', l.vram_mib, 'slots', l.slots, 'state', l.state)
        ORDER BY l.gpu_id) FROM leases AS l WHERE l.run_id = r.run_id) AS leases,
    coalesce((SELECT p.trigger FROM preemptions AS p WHERE p.victim_run = r.run_id), '') AS stop_trigger
FROM runs AS r WHERE r.pool_id = :pool AND r.state <> 'RELEASED'
ORDER BY r.run_id;

-- name: load_nodes
-- Every node of the pool with the number of its newest plan.
SELECT n.node_id, n.state, n.cordoned, n.accepts_runs, n.refusal, n.drain, n.note, n.session, n.boot_id, n.simulated, n.cpus, n.memory_mib,
    n.labels, n.agent_version, n.version, extract(epoch FROM n.state_since)::double precision AS state_since,
    coalesce(p.number, 0) AS plan_number
FROM nodes AS n LEFT JOIN plans AS p USING (node_id)
WHERE n.pool_id = :pool ORDER BY n.node_id;

-- name: load_gpus
-- Every GPU of the pool's nodes.
SELECT g.gpu_id, g.node_id, g.gpu_index, g.type_name, g.capacity_mib, g.reserved_mib, g.capacity_slots, g.mig_profile,
    g.link_group, g.condition, g.cordoned, g.reason, g.version
FROM gpus AS g JOIN nodes AS n USING (node_id) WHERE n.pool_id = :pool ORDER BY g.gpu_id;

-- name: load_teams
-- The teams with their rights, and whether any team was set up at all.
SELECT team_id, gpu_limit, guarantee, user_limit, gpu_hours_per_month, weight, max_queued, class_limits, allowances, percents, configured,
    version
FROM teams ORDER BY team_id;

-- name: load_month_use
-- GPU-hours that each team has used in this calendar month (UTC), what runs included.
WITH month AS (SELECT date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS began)
SELECT j.team_id, coalesce(sum(extract(epoch FROM coalesce(r.ended_at, clock_timestamp()) - greatest(r.started_at, month.began)) / 3600
    * (SELECT sum(CASE WHEN (leased ->> 'slots')::integer >= g.capacity_slots THEN 1
                       WHEN (leased ->> 'vram_mib')::integer > 0 THEN (leased ->> 'vram_mib')::double precision / nullif(g.capacity_mib, 0)
                       ELSE (leased ->> 'slots')::double precision / g.capacity_slots END)
       FROM jsonb_array_elements(r.gpus) AS leased JOIN gpus AS g ON g.gpu_id = leased ->> 'gpu_id')), 0)::double precision AS hours
FROM month, runs AS r JOIN jobs AS j ON j.job_id = r.job_id
WHERE r.pool_id = :pool AND r.started_at IS NOT NULL AND (r.ended_at IS NULL OR r.ended_at > month.began)
GROUP BY j.team_id;

-- name: load_past_use
-- Per team the average number of GPUs of its runs, forgotten by half with each half-life, and the database's clock.
WITH spans AS (
    SELECT j.team_id, extract(epoch FROM r.started_at)::double precision AS began,
        extract(epoch FROM coalesce(r.ended_at, clock_timestamp()))::double precision AS ended,
        (SELECT sum(CASE WHEN (leased ->> 'slots')::integer >= g.capacity_slots THEN 1
                         WHEN (leased ->> 'vram_mib')::integer > 0 THEN (leased ->> 'vram_mib')::double precision / nullif(g.capacity_mib, 0)
                         ELSE (leased ->> 'slots')::double precision / g.capacity_slots END)
         FROM jsonb_array_elements(r.gpus) AS leased JOIN gpus AS g ON g.gpu_id = leased ->> 'gpu_id') AS gpus
    FROM runs AS r JOIN jobs AS j ON j.job_id = r.job_id
    WHERE r.pool_id = :pool AND r.started_at IS NOT NULL
        AND coalesce(r.ended_at, clock_timestamp()) > clock_timestamp() - make_interval(secs => 20 * :half_life::double precision)
), clock AS (SELECT extract(epoch FROM clock_timestamp())::double precision AS now)
SELECT team_id, clock.now, coalesce(sum(least(gpus, 1e9) * (power(0.5, least(1000, greatest(0, clock.now - ended) / :half_life::double precision))
    - power(0.5, least(1000, greatest(0, clock.now - began) / :half_life::double precision)))), 0)::double precision AS average
FROM spans, clock GROUP BY team_id, clock.now;

-- name: load_policy_in_force^
-- The policy that the pool was decided by last.
SELECT policy_id, settings_digest FROM policies_in_force WHERE pool_id = :pool;

-- name: load_policies
-- The newest policies that were applied after a known one, newest first; the newest that can be read is in force.
SELECT policy_id, body FROM policies WHERE pool_id = :pool AND policy_id > :known ORDER BY policy_id DESC LIMIT 10;

-- name: load_order_floor^
-- The highest order of admission so far.
SELECT coalesce(max(admission_order), 0) AS floor FROM jobs WHERE pool_id = :pool;

-- name: find_unapplied_of
-- Those of these jobs that no scheduler has applied, as admission wrote them.
SELECT j.job_id, j.admission_order, j.pool_id, j.team_id, j.class_name, j.spec, j.submitted_by, j.submitted_at, j.traceparent
FROM jobs AS j WHERE j.job_id = ANY (:job_ids::text[])
    AND NOT EXISTS (SELECT 1 FROM job_states AS s WHERE s.job_id = j.job_id);

-- name: find_unapplied_jobs
-- Jobs admitted since a time that no scheduler has applied: the level-triggered twin of JobAdmitted.
SELECT j.job_id, j.admission_order, j.pool_id, j.team_id, j.class_name, j.spec, j.submitted_by, j.submitted_at, j.traceparent
FROM jobs AS j WHERE j.pool_id = :pool AND j.submitted_at >= now() - make_interval(secs => :seconds::double precision)
    AND NOT EXISTS (SELECT 1 FROM job_states AS s WHERE s.job_id = j.job_id)
ORDER BY j.admission_order LIMIT :most;

-- name: find_unapplied_commands
-- Commands issued since a time that no scheduler has applied: the level-triggered twin of CommandIssued.
SELECT c.command_id, c.job_id, c.node_id, c.command, c.arguments, c.issued_by, c.issued_at, c.traceparent
FROM commands AS c WHERE c.pool_id = :pool AND c.issued_at >= now() - make_interval(secs => :seconds::double precision)
    AND NOT EXISTS (SELECT 1 FROM applied_commands AS a WHERE a.command_id = c.command_id)
ORDER BY c.command_id LIMIT :most;

-- name: find_settled_commands
-- Which of these commands are applied already, and which are overtaken: a newer one that says otherwise of the same was
-- carried out.
SELECT given.command_id, a.command_id IS NOT NULL AS applied, EXISTS (
    SELECT 1 FROM commands AS n JOIN applied_commands AS d ON d.command_id = n.command_id AND d.outcome NOT LIKE 'refused: %'
    WHERE n.job_id = c.job_id AND n.command_id > c.command_id AND n.command = c.command
        AND (c.command = 'set_priority' OR (c.command = 'set_limits'
            AND n.arguments -> 'limits' ?| ARRAY (SELECT jsonb_object_keys(c.arguments -> 'limits'))))
) OR EXISTS (
    SELECT 1 FROM commands AS n JOIN applied_commands AS d ON d.command_id = n.command_id AND d.outcome NOT LIKE 'refused: %'
    WHERE n.node_id = c.node_id AND n.command_id > c.command_id AND (n.command = 'uncordon') <> (c.command = 'uncordon')
        AND 'dead' NOT IN (n.command, c.command)
) AS overtaken
FROM unnest(:command_ids::bigint[]) AS given (command_id)
LEFT JOIN commands AS c ON c.command_id = given.command_id
LEFT JOIN applied_commands AS a ON a.command_id = given.command_id;

-- name: commit_batch^
-- The transaction of a batch: fence, lock, double check, write.
SELECT commit_batch(:pool, :epoch, :skip_locked, :job_ids::text[], :job_versions::bigint[], :node_ids::text[], :node_versions::bigint[],
    :gpu_ids::text[], :gpu_versions::bigint[], :writes::jsonb) AS result;

-- name: count_failing_fact$
-- Count another failed attempt of a fact.
INSERT INTO failing_facts AS f (fact_id, last_error) VALUES (:fact_id, :error)
ON CONFLICT (fact_id) DO UPDATE SET attempts = f.attempts + 1, last_error = EXCLUDED.last_error, last_at = now()
RETURNING attempts;

-- name: find_unpublished_events
-- Events older than a second that nobody has published.
SELECT event_id, job_id, run_number, extract(epoch FROM at)::double precision AS at, kind, state, data, causation_id, traceparent
FROM job_events WHERE pool_id = :pool AND NOT published AND at < now() - interval '1 second' ORDER BY event_id LIMIT :most;

-- name: mark_published!
-- Events that the broker has acknowledged.
UPDATE job_events SET published = true WHERE event_id = ANY (:event_ids::bigint[]) AND NOT published;

-- name: delete_old_events!
-- Small deletes keep the history of finished jobs bounded.
DELETE FROM job_events WHERE event_id IN (SELECT event_id FROM job_events WHERE published AND at < now() - make_interval(days => :days) LIMIT :most);

-- name: delete_old_decisions!
-- Small deletes keep the decisions bounded.
DELETE FROM decisions WHERE decision_id IN (SELECT decision_id FROM decisions WHERE decided_at < now() - make_interval(days => :days) LIMIT :most);
