-- name: admit_jobs
-- Decides and writes many submits in one transaction; forgets outbox rows that are published.
SELECT outcome, job_id, job_name, bound, outbox_id, fact
FROM admit_jobs(
    :pool, :published::bigint[], :job_ids::text[], :teams::text[], :names::text[], :classes::text[], :specs::text[],
    :gpus::integer[], :class_needs_allowance::boolean[], :not_preemptible::boolean[], :hard_group::boolean[], :submitters::text[],
    :traceparents::text[], :keys::text[], :hashes::bytea[]
);

-- name: issue_command^
-- Keeps a command with its fact, unless the job has ended.
SELECT outcome, state, command_id, outbox_id, fact
FROM issue_command(:job_id, :command, :arguments::jsonb, :issued_by, :traceparent);

-- name: issue_node_command^
-- Keeps a command to a node with its fact.
SELECT outcome, state, command_id, outbox_id, fact
FROM issue_node_command(:node_id, :command, :arguments::jsonb, :issued_by, :traceparent);

-- name: find_command^
-- A command with its outcome, where it has one, and the team whose job it is for.
SELECT c.command_id, c.job_id, c.node_id, c.command, c.issued_by, c.issued_at, j.team_id, a.applied_at, a.outcome
FROM commands AS c LEFT JOIN jobs AS j ON j.job_id = c.job_id
LEFT JOIN applied_commands AS a ON a.command_id = c.command_id
WHERE c.command_id = :command_id;

-- name: delete_old_keys$
-- Forgets the oldest idempotency keys, if they are old enough; returns how many.
WITH old AS (
    SELECT team_id, key FROM idempotency_keys WHERE created_at < now() - make_interval(secs => :older_than_seconds)
    ORDER BY created_at LIMIT :most
), gone AS (
    DELETE FROM idempotency_keys AS k USING old WHERE k.team_id = old.team_id AND k.key = old.key RETURNING 1
)
SELECT count(*) FROM gone;

-- name: keyed_job^
-- The job that an idempotency key of a team belongs to.
SELECT k.request_hash, j.job_id, j.name
FROM idempotency_keys AS k JOIN jobs AS j ON j.job_id = k.job_id
WHERE k.team_id = :team AND k.key = :key;

-- name: outbox_older_than
-- The oldest facts that nobody has published for a while.
SELECT outbox_id, fact::text AS fact FROM admission_outbox
WHERE pool_id = :pool AND created_at < now() - make_interval(secs => :age_seconds)
ORDER BY outbox_id LIMIT :row_limit;

-- name: oldest_fact_seconds$
-- How long the oldest committed fact has waited.
SELECT extract(epoch FROM now() - min(created_at))::double precision FROM admission_outbox WHERE pool_id = :pool;

-- name: delete_outbox!
-- Forgets facts that are published.
DELETE FROM admission_outbox WHERE outbox_id = ANY (:ids::bigint[]);

-- name: find_token^
-- A token's row, revoked or not.
SELECT token_id, secret_hash, role, team_id, node_id, classes, label, created_at, expires_at, revoked_at
FROM tokens WHERE token_id = :token_id;

-- name: upsert_given_token!
-- Keeps a token that a setting gives; one that was revoked stays revoked.
INSERT INTO tokens AS t (token_id, secret_hash, role, node_id, label, created_by)
VALUES (:token_id, :secret_hash, :role, :node, :label, 'settings')
ON CONFLICT (token_id) DO UPDATE
SET secret_hash = EXCLUDED.secret_hash, role = EXCLUDED.role, node_id = EXCLUDED.node_id, label = EXCLUDED.label
WHERE (t.secret_hash, t.role, t.node_id, t.label)
    IS DISTINCT FROM (EXCLUDED.secret_hash, EXCLUDED.role, EXCLUDED.node_id, EXCLUDED.label);

-- name: insert_token^
-- Keeps a new token's hash; it ends no later than the one that made it.
INSERT INTO tokens (token_id, secret_hash, role, team_id, node_id, classes, label, created_by, expires_at)
VALUES (:token_id, :secret_hash, :role, :team, :node, :classes::text[], :label, :created_by,
        least(now() + make_interval(secs => :expires_in_seconds::double precision), :not_after::timestamptz))
RETURNING token_id, role, team_id, node_id, classes, label, created_at, expires_at, revoked_at;

-- name: list_tokens
-- Tokens of a team, or of all, and within these classes, or of any, newest first.
SELECT token_id, role, team_id, node_id, classes, label, created_at, expires_at, revoked_at
FROM tokens WHERE (:team::text IS NULL OR team_id = :team) AND (:classes::text[] IS NULL OR classes <@ :classes)
ORDER BY created_at DESC, token_id LIMIT 10000;

-- name: revoke_token^
-- Ends a token of a team, or of any, that is within these classes, or has any; the first end counts.
UPDATE tokens SET revoked_at = coalesce(revoked_at, now())
WHERE token_id = :token_id AND (:team::text IS NULL OR team_id = :team)
  AND (:classes::text[] IS NULL OR classes <@ :classes)
RETURNING token_id, role, team_id, node_id, classes, label, created_at, expires_at, revoked_at;

-- name: list_jobs
-- A page of jobs with their state and newest run, newest first.
SELECT j.job_id, j.admission_order, j.name, j.pool_id, j.team_id, coalesce(s.amendments ->> 'class', j.class_name) AS class_name,
       CASE WHEN s.amendments ? 'own_priority' THEN (s.amendments ->> 'own_priority')::integer ELSE (j.spec ->> 'priority')::integer END AS own_priority,
       coalesce((j.spec ->> 'gpus')::integer, 1) AS gpus, (j.spec ->> 'gpus_max')::integer AS gpus_max,
       jsonb_array_length(r.gpus) AS gpus_held,
       j.spec -> 'labels' AS labels, j.submitted_by, j.submitted_at,
       s.state, s.reason_code, s.reason, s.manual_priority, s.run_number, s.preemptions, s.cancel_requested,
       s.queued_since, s.first_started_at, s.last_started_at, s.used_seconds, s.last_ack_step, s.ended_at, s.end_cause,
       s.exit_code, s.message, r.node_id, r.ended_at AS run_ended_at, NULL::jsonb AS spec
FROM jobs AS j
LEFT JOIN job_states AS s ON s.job_id = j.job_id
LEFT JOIN runs AS r ON r.job_id = j.job_id AND r.run_number = s.run_number
WHERE j.pool_id = :pool
  AND (:team::text IS NULL OR j.team_id = :team)
  AND (:before::bigint IS NULL OR j.admission_order < :before)
  AND (:states::text[] IS NULL OR coalesce(s.state, 'QUEUED') = ANY (:states))
  AND (:ended_after::timestamptz IS NULL OR s.ended_at IS NULL OR s.ended_at >= :ended_after)
  AND (:since::timestamptz IS NULL OR j.submitted_at >= :since)
  AND (:class_name::text IS NULL OR coalesce(s.amendments ->> 'class', j.class_name) = :class_name)
  AND (:name::text IS NULL OR j.name = :name)
  AND (:labels::jsonb IS NULL OR j.spec -> 'labels' @> :labels)
  AND (:node::text IS NULL OR (r.node_id = :node AND s.state NOT IN ('QUEUED', 'HELD', 'UNSATISFIABLE')))
ORDER BY j.admission_order DESC LIMIT :row_limit;

-- name: list_live_jobs
-- The same for states that have a row and no end: begins with the jobs that live, however many have ended.
WITH wanted AS MATERIALIZED (
    SELECT job_id FROM job_states WHERE pool_id = :pool AND ended_at IS NULL AND state = ANY (:states::text[])
)
SELECT j.job_id, j.admission_order, j.name, j.pool_id, j.team_id, coalesce(s.amendments ->> 'class', j.class_name) AS class_name,
       CASE WHEN s.amendments ? 'own_priority' THEN (s.amendments ->> 'own_priority')::integer ELSE (j.spec ->> 'priority')::integer END AS own_priority,
       coalesce((j.spec ->> 'gpus')::integer, 1) AS gpus, (j.spec ->> 'gpus_max')::integer AS gpus_max,
       jsonb_array_length(r.gpus) AS gpus_held,
       j.spec -> 'labels' AS labels, j.submitted_by, j.submitted_at,
       s.state, s.reason_code, s.reason, s.manual_priority, s.run_number, s.preemptions, s.cancel_requested,
       s.queued_since, s.first_started_at, s.last_started_at, s.used_seconds, s.last_ack_step, s.ended_at, s.end_cause,
       s.exit_code, s.message, r.node_id, r.ended_at AS run_ended_at, NULL::jsonb AS spec
FROM wanted
JOIN jobs AS j ON j.job_id = wanted.job_id
JOIN job_states AS s ON s.job_id = j.job_id
LEFT JOIN runs AS r ON r.job_id = j.job_id AND r.run_number = s.run_number
WHERE j.pool_id = :pool
  AND (:team::text IS NULL OR j.team_id = :team)
  AND (:before::bigint IS NULL OR j.admission_order < :before)
  AND (:since::timestamptz IS NULL OR j.submitted_at >= :since)
  AND (:class_name::text IS NULL OR coalesce(s.amendments ->> 'class', j.class_name) = :class_name)
  AND (:name::text IS NULL OR j.name = :name)
  AND (:labels::jsonb IS NULL OR j.spec -> 'labels' @> :labels)
  AND (:node::text IS NULL OR (r.node_id = :node AND s.state NOT IN ('QUEUED', 'HELD', 'UNSATISFIABLE')))
ORDER BY j.admission_order DESC LIMIT :row_limit;

-- name: get_job^
-- One job with its specification, state and newest run.
SELECT j.job_id, j.admission_order, j.name, j.pool_id, j.team_id, coalesce(s.amendments ->> 'class', j.class_name) AS class_name,
       CASE WHEN s.amendments ? 'own_priority' THEN (s.amendments ->> 'own_priority')::integer ELSE (j.spec ->> 'priority')::integer END AS own_priority,
       coalesce((j.spec ->> 'gpus')::integer, 1) AS gpus, (j.spec ->> 'gpus_max')::integer AS gpus_max,
       jsonb_array_length(r.gpus) AS gpus_held,
       j.spec -> 'labels' AS labels, j.submitted_by, j.submitted_at,
       s.state, s.reason_code, s.reason, s.manual_priority, s.run_number, s.preemptions, s.cancel_requested,
       s.queued_since, s.first_started_at, s.last_started_at, s.used_seconds, s.last_ack_step, s.ended_at, s.end_cause,
       s.exit_code, s.message, r.node_id, r.ended_at AS run_ended_at, j.spec
FROM jobs AS j
LEFT JOIN job_states AS s ON s.job_id = j.job_id
LEFT JOIN runs AS r ON r.job_id = j.job_id AND r.run_number = s.run_number
WHERE j.job_id = :job_id;

-- name: job_head^
-- Whose a job is and where it is: what every path below a job asks first.
SELECT j.job_id, j.team_id, coalesce(s.amendments ->> 'class', j.class_name) AS class_name, coalesce(s.state, 'QUEUED') AS state, s.ended_at
FROM jobs AS j LEFT JOIN job_states AS s ON s.job_id = j.job_id WHERE j.job_id = :job_id;

-- name: runs_of_job
-- All runs of a job, in order, each with the indexes of its GPUs.
SELECT r.run_id, r.run_number, r.state, r.node_id, r.gpus, r.trigger, r.planned_at, r.started_at, r.noticed_at,
       r.ended_at, r.end_cause, r.exit_code, r.signal, r.forced, r.run_seconds, r.ack_step, r.acked_at,
       r.resumed_step, r.log_bytes, r.message,
       (SELECT jsonb_object_agg(g.gpu_id, g.gpu_index) FROM gpus AS g
        WHERE g.node_id = r.node_id) AS indexes
FROM runs AS r WHERE r.job_id = :job_id ORDER BY r.run_number;

-- name: logs_of_runs
-- How much each run of a job has written, as far as its end is known.
SELECT run_id, run_number, ended_at, log_bytes FROM runs WHERE job_id = :job_id ORDER BY run_number;

-- name: node_of_run$
-- The node that a run was planned on.
SELECT node_id FROM runs WHERE run_id = :run_id;

-- name: jobs_by_name
-- The newest jobs of exactly that name.
SELECT job_id FROM jobs
WHERE name = :name AND (:team::text IS NULL OR team_id = :team) ORDER BY admission_order DESC LIMIT 1;

-- name: jobs_by_prefix
-- Up to two jobs whose ids begin with a prefix; `last_possible` is the last id that could.
SELECT job_id FROM jobs
WHERE job_id >= :prefix AND job_id <= :last_possible AND (:team::text IS NULL OR team_id = :team)
ORDER BY job_id LIMIT 2;

-- name: last_job_of
-- The newest job that somebody submitted.
SELECT job_id FROM jobs
WHERE submitted_by = :submitted_by AND (:team::text IS NULL OR team_id = :team)
ORDER BY admission_order DESC LIMIT 1;

-- name: newest_decision^
-- The decision that is in force for a job.
SELECT choice, reason_code, reason, detail, decided_at FROM decisions
WHERE job_id = :job_id ORDER BY decision_id DESC LIMIT 1;

-- name: staying_runs
-- Which of these runs have not ended, and which of those are told to leave.
SELECT run_id, stop_cause IS NOT NULL AS leaving FROM runs WHERE run_id = ANY (:runs::text[]) AND ended_at IS NULL;

-- name: standing_run^
-- The newest run of a job with what it waits for, and why and until when it stops.
SELECT r.node_id, r.gpus, r.after_runs, r.stop_cause, r.leaves_by, p.preemptor_job, p.trigger,
       (SELECT CASE WHEN d.choice = 'withdraw' THEN d.reason END FROM decisions AS d
        WHERE d.job_id = s.job_id ORDER BY d.decision_id DESC LIMIT 1) AS withdrawn,
       (SELECT max(o.leaves_by) FROM runs AS o WHERE o.run_id = ANY (r.after_runs)) AS after_leaves_by,
       (SELECT jsonb_object_agg(g.gpu_id, g.gpu_index) FROM gpus AS g WHERE g.node_id = r.node_id) AS indexes
FROM job_states AS s
JOIN runs AS r ON r.job_id = s.job_id AND r.run_number = s.run_number
LEFT JOIN preemptions AS p ON p.victim_run = r.run_id
WHERE s.job_id = :job_id;

-- name: unwell_gpus_of_run
-- The GPUs of a run that take no new runs, each with why.
SELECT g.node_id, g.gpu_index, g.reason FROM leases AS l JOIN gpus AS g ON g.gpu_id = l.gpu_id
WHERE l.run_id = :run AND g.condition <> 'ok' ORDER BY g.node_id, g.gpu_index, g.gpu_id;

-- name: time_limit_of^
-- The time limit of a job: what it was changed to, else what was asked for.
SELECT CASE WHEN s.amendments ? 'time_limit' THEN s.amendments ->> 'time_limit'
            ELSE j.spec ->> 'time_limit' END::double precision AS time_limit
FROM jobs AS j JOIN job_states AS s ON s.job_id = j.job_id WHERE j.job_id = :job_id;

-- name: begin_of_job$
-- Before when a job may not begin; NULL where it may at any time.
SELECT (spec ->> 'begin_at')::timestamptz FROM jobs WHERE job_id = :job_id;

-- name: drain_of_node^
-- Whose word it is that a node is being emptied, and how many of its runs are still there or leave; no row where it is not.
SELECT n.note, count(r.run_id) AS runs, count(r.run_id) FILTER (WHERE r.stop_cause IS NOT NULL) AS leaving
FROM nodes AS n
LEFT JOIN runs AS r ON r.node_id = n.node_id AND r.pool_id = n.pool_id AND r.state <> 'RELEASED' AND r.ended_at IS NULL
WHERE n.node_id = :node AND n.pool_id = :pool AND n.drain <> 'no' GROUP BY n.node_id;

-- name: waiting_groups
-- Waiting jobs that may begin and differ only by when they came: the order of the queue needs no more than this of most of them.
SELECT coalesce(s.amendments ->> 'class', j.class_name) AS class_name,
       CASE WHEN s.amendments ? 'own_priority' THEN (s.amendments ->> 'own_priority')::integer ELSE (j.spec ->> 'priority')::integer END AS own_priority,
       s.manual_priority, count(*) AS jobs,
       min(s.queued_since) AS first_since, max(s.queued_since) AS last_since
FROM job_states AS s JOIN jobs AS j ON j.job_id = s.job_id
WHERE s.pool_id = :pool AND s.ended_at IS NULL AND s.state IN ('QUEUED', 'UNSATISFIABLE')
  AND s.reason_code <> 'not_yet'
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;

-- name: jobs_ahead
-- How many waiting jobs are ahead of one, and of each group those that are nearest to it. `above`: whoever waits since
-- then or longer has a higher value; `level`: at least the same, so that submit time and order of admission decide.
WITH groups AS (
    SELECT * FROM unnest(:classes::text[], :own::integer[], :manual::integer[], :above::timestamptz[], :level::timestamptz[])
        WITH ORDINALITY AS g (class_name, own_priority, manual_priority, above, level, number)
), ahead AS (
    SELECT g.number, j.job_id, j.name, j.team_id, g.class_name, j.admission_order, j.submitted_at, g.own_priority,
           s.manual_priority, s.queued_since, coalesce(s.queued_since <= g.above, false) AS is_above
    FROM job_states AS s
    JOIN jobs AS j ON j.job_id = s.job_id
    JOIN groups AS g ON g.class_name = coalesce(s.amendments ->> 'class', j.class_name)
        AND g.manual_priority IS NOT DISTINCT FROM s.manual_priority
        AND g.own_priority IS NOT DISTINCT FROM
            CASE WHEN s.amendments ? 'own_priority' THEN (s.amendments ->> 'own_priority')::integer ELSE (j.spec ->> 'priority')::integer END
    WHERE s.pool_id = :pool AND s.ended_at IS NULL AND s.state IN ('QUEUED', 'UNSATISFIABLE')
      AND s.reason_code <> 'not_yet'
      AND (s.queued_since <= g.above OR (s.queued_since <= g.level
           AND (j.submitted_at, j.admission_order) < (:submitted_at::timestamptz, :admission_order::bigint)))
), ranked AS (
    SELECT ahead.*, count(*) OVER () AS jobs_ahead,
           row_number() OVER (PARTITION BY number
                              ORDER BY is_above, queued_since DESC, submitted_at DESC, admission_order DESC) AS place
    FROM ahead
)
SELECT job_id, name, team_id, class_name, admission_order, submitted_at, own_priority, manual_priority, queued_since,
       jobs_ahead
FROM ranked WHERE place <= :most_a_group;

-- name: events_of_job
-- A job's history after a cursor.
SELECT event_id, job_id, run_number, at, kind, state, data FROM job_events
WHERE job_id = :job_id AND event_id > :after ORDER BY event_id LIMIT :row_limit;

-- name: events_of_team
-- The history of a team's jobs, or of all, after a cursor.
SELECT e.event_id, e.job_id, e.run_number, e.at, e.kind, e.state, e.data
FROM job_events AS e JOIN jobs AS j ON j.job_id = e.job_id
WHERE e.event_id > :after AND e.pool_id = :pool AND (:team::text IS NULL OR j.team_id = :team)
ORDER BY e.event_id LIMIT :row_limit;

-- name: newest_event$
-- The cursor of whoever wants only what is still to come.
SELECT coalesce(max(event_id), 0) FROM job_events;

-- name: list_nodes
-- Nodes with what they carry.
SELECT n.node_id, n.pool_id, n.state, n.accepts_runs, n.refusal, n.cordoned, n.drain, n.note, n.simulated, n.cpus, n.memory_mib,
       n.labels, n.agent_version, n.state_since,
       count(g.gpu_id) AS gpus, count(g.gpu_id) FILTER (WHERE g.live_slots + g.leaving_slots > 0) AS gpus_leased,
       count(g.gpu_id) FILTER (WHERE g.condition <> 'ok' OR g.cordoned) AS gpus_out
FROM nodes AS n LEFT JOIN gpus AS g ON g.node_id = n.node_id
WHERE n.pool_id = :pool GROUP BY n.node_id ORDER BY n.node_id;

-- name: list_hardware
-- What the GPUs of the pool's nodes are, whatever is on them.
SELECT g.gpu_id, g.node_id, g.gpu_index, g.type_name, g.capacity_mib, g.capacity_slots, g.mig_profile, g.condition,
       g.reason, g.cordoned
FROM gpus AS g JOIN nodes AS n ON n.node_id = g.node_id
WHERE n.pool_id = :pool ORDER BY g.node_id, g.gpu_index, g.gpu_id;

-- name: list_gpus
-- GPUs with their leases and their newest readings.
SELECT g.gpu_id, g.node_id, g.gpu_index, g.type_name, g.capacity_mib, g.condition, g.reason,
       g.cordoned OR n.cordoned AS cordoned, n.simulated, n.state AS node_state, n.note,
       g.live_mib + g.leaving_mib AS leased_mib, g.live_slots, g.leaving_slots, g.next_slots,
       l.jobs, l.next_jobs,
       t.utilisation_percent, t.vram_used_mib, t.power_watts, t.temperature_celsius, t.sampled_at,
       greatest(0, extract(epoch FROM now() - t.sampled_at))::double precision AS reading_age_seconds
FROM gpus AS g
JOIN nodes AS n ON n.node_id = g.node_id
LEFT JOIN gpu_readings AS t ON t.gpu_id = g.gpu_id AND t.sampled_at > now() - interval '30 seconds'
LEFT JOIN LATERAL (
    SELECT array_agg(split_part(l.run_id, '.', 1) ORDER BY l.run_id) FILTER (WHERE l.state <> 'NEXT') AS jobs,
           array_agg(split_part(l.run_id, '.', 1) ORDER BY l.run_id) FILTER (WHERE l.state = 'NEXT') AS next_jobs
    FROM leases AS l WHERE l.gpu_id = g.gpu_id
) AS l ON true
WHERE n.pool_id = :pool ORDER BY g.node_id, g.gpu_index, g.gpu_id;

-- name: job_counts
-- Jobs by state: those that live, and those that ended within a day.
SELECT state, count(*) AS jobs FROM job_states
WHERE pool_id = :pool AND (ended_at IS NULL OR ended_at > now() - interval '1 day') GROUP BY state ORDER BY state;

-- name: pool_owner^
-- The pool's epoch, its owner for as long as its session holds the pool's advisory lock, and since when nothing is heard.
SELECT p.epoch, extract(epoch FROM now() - greatest(p.taken_at, g.given_at))::double precision AS silent_seconds, CASE WHEN EXISTS (
    SELECT 1 FROM pg_locks AS l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
        AND ((l.classid::bigint << 32) | l.objid::bigint) = :lock_key::bigint
) THEN coalesce(p.owner, '') ELSE '' END AS owner
FROM pools AS p LEFT JOIN signs_of_life AS g ON g.pool_id = p.pool_id WHERE p.pool_id = :pool;

-- name: list_teams
-- Teams with what they use now: each GPU once a team, a share its fraction, without nodes declared dead.
SELECT t.team_id, t.gpu_limit, t.guarantee, t.user_limit, t.gpu_hours_per_month, t.weight, t.max_queued, t.class_limits, t.allowances,
       t.percents, t.configured,
       t.admitted - coalesce(p.settled, 0) AS jobs_waiting,
       coalesce(u.gpus_used, 0)::double precision AS gpus_used, coalesce(s.jobs_running, 0) AS jobs_running
FROM teams AS t
LEFT JOIN team_progress AS p ON p.team_id = t.team_id
LEFT JOIN (
    SELECT part.team_id, sum(least(1.0, part.used)) AS gpus_used
    FROM (SELECT j.team_id, l.gpu_id, sum(CASE WHEN l.slots >= g.capacity_slots THEN 1
                                           WHEN l.vram_mib > 0 THEN l.vram_mib::numeric / nullif(g.capacity_mib, 0)
                                           ELSE l.slots::numeric / g.capacity_slots END) AS used
          FROM leases AS l
          JOIN jobs AS j ON j.job_id = split_part(l.run_id, '.', 1)
          JOIN gpus AS g ON g.gpu_id = l.gpu_id
          JOIN nodes AS n ON n.node_id = g.node_id AND n.state <> 'DEAD'
          GROUP BY j.team_id, l.gpu_id) AS part
    GROUP BY part.team_id
) AS u ON u.team_id = t.team_id
LEFT JOIN (
    SELECT team_id, count(*) AS jobs_running FROM job_states
    WHERE ended_at IS NULL AND state IN ('STARTING', 'RUNNING', 'STOPPING', 'UNKNOWN') GROUP BY team_id
) AS s ON s.team_id = t.team_id
WHERE :team::text IS NULL OR t.team_id = :team ORDER BY t.team_id;

-- name: lock_teams!
-- Holds until the end of the transaction: rights of teams that are summed are changed one after the other.
SELECT pg_advisory_xact_lock(:lock_key);

-- name: team_rights
-- All teams with what each can always get back, in GPUs or in per cent of the pool.
SELECT team_id, configured, guarantee, (percents ->> 'guarantee')::double precision AS guarantee_percent
FROM teams ORDER BY team_id;

-- name: pool_gpus$
-- How many GPUs per cent of the pool are of: those that are registered, on nodes that are not dead. An instance of a card
-- in MIG mode counts until its node no longer reports it.
SELECT count(*) FROM gpus AS g JOIN nodes AS n ON n.node_id = g.node_id
WHERE n.pool_id = :pool AND n.state <> 'DEAD' AND (g.mig_profile IS NULL OR g.condition <> 'lost');

-- name: put_team!
-- Sets a team up; from now on it has the rights named here and no others.
INSERT INTO teams AS t (team_id, gpu_limit, guarantee, user_limit, gpu_hours_per_month, weight, max_queued, class_limits,
    allowances, percents, configured)
VALUES (:team, :gpu_limit, :guarantee, :user_limit, :gpu_hours_per_month, :weight, :max_queued, :class_limits::jsonb,
    :allowances::jsonb, :percents::jsonb, true)
ON CONFLICT (team_id) DO UPDATE SET
    gpu_limit = EXCLUDED.gpu_limit, guarantee = EXCLUDED.guarantee, user_limit = EXCLUDED.user_limit,
    gpu_hours_per_month = EXCLUDED.gpu_hours_per_month, weight = EXCLUDED.weight,
    max_queued = EXCLUDED.max_queued, class_limits = EXCLUDED.class_limits, allowances = EXCLUDED.allowances,
    percents = EXCLUDED.percents, configured = true, version = t.version + 1;

-- name: ensure_team$
-- True when the team is known, or may come by being named because no team is set up yet.
WITH made AS (
    INSERT INTO teams (team_id)
    SELECT :team WHERE NOT EXISTS (SELECT 1 FROM teams WHERE configured)
    ON CONFLICT (team_id) DO NOTHING RETURNING 1
)
SELECT EXISTS (SELECT 1 FROM made) OR EXISTS (SELECT 1 FROM teams WHERE team_id = :team);

-- name: list_preemptions
-- The newest preemptions that a team's jobs were part of.
SELECT p.preemption_id, p.preemptor_job, p.preemptor_run, p.victim_job, p.victim_run, p.trigger, p.rule,
       p.preemptor_value, p.victim_value, p.expected_cost, p.decided_at, p.noticed_at, p.acked_at, p.acked_step,
       p.acked_bytes, p.exited_at, p.forced, p.empty_at, p.bound_at, p.resumed_at, p.resumed_step, p.load_seconds,
       p.lost_gpu_seconds, p.void
FROM preemptions AS p
WHERE p.pool_id = :pool
  AND (:before::bigint IS NULL OR p.preemption_id < :before)
  AND (:job_id::text IS NULL OR :job_id IN (p.victim_job, p.preemptor_job))
  AND (:team::text IS NULL OR EXISTS (
      SELECT 1 FROM jobs AS j WHERE j.job_id IN (p.victim_job, p.preemptor_job) AND j.team_id = :team))
ORDER BY p.preemption_id DESC LIMIT :row_limit;

-- name: newest_policies
-- Policies that were applied after a known one, newest first; the newest that can be read is in force.
SELECT policy_id, body, applied_by, applied_at FROM policies
WHERE pool_id = :pool AND policy_id > :known ORDER BY policy_id DESC LIMIT 10;

-- name: insert_policy^
-- Keeps a policy with its fact.
WITH kept AS (
    INSERT INTO policies (pool_id, body, applied_by) VALUES (:pool, :body::jsonb, :applied_by) RETURNING policy_id
)
INSERT INTO admission_outbox (pool_id, fact)
SELECT :pool, jsonb_build_object(
    'kind', 'policy_applied', 'id', 'admission/policy/' || kept.policy_id, 'policy_id', kept.policy_id
) FROM kept
RETURNING outbox_id, fact::text AS fact;

-- name: live_jobs_by_class
-- Jobs that have not ended, by class; those that no scheduler has taken up yet included.
WITH live AS (
    SELECT s.job_id, s.state, s.manual_priority, s.amendments FROM job_states AS s WHERE s.pool_id = :pool AND s.ended_at IS NULL
    UNION ALL
    SELECT j.job_id, 'QUEUED', NULL, NULL FROM jobs AS j
    WHERE j.pool_id = :pool AND j.submitted_at > now() - interval '1 day'
      AND NOT EXISTS (SELECT 1 FROM job_states AS s WHERE s.job_id = j.job_id)
)
SELECT coalesce(live.amendments ->> 'class', j.class_name) AS class_name, count(*) AS jobs
FROM live JOIN jobs AS j USING (job_id) GROUP BY 1 ORDER BY 1;

-- name: jobs_at_class_value
-- Jobs of some classes that have not ended and have neither a value of their own nor an admin's.
WITH live AS (
    SELECT s.job_id, s.state, s.manual_priority, s.amendments FROM job_states AS s WHERE s.pool_id = :pool AND s.ended_at IS NULL
    UNION ALL
    SELECT j.job_id, 'QUEUED', NULL, NULL FROM jobs AS j
    WHERE j.pool_id = :pool AND j.submitted_at > now() - interval '1 day'
      AND NOT EXISTS (SELECT 1 FROM job_states AS s WHERE s.job_id = j.job_id)
)
SELECT j.job_id, j.name, j.team_id, coalesce(live.amendments ->> 'class', j.class_name) AS class_name, live.state,
       count(*) OVER () AS total
FROM live JOIN jobs AS j USING (job_id)
WHERE coalesce(live.amendments ->> 'class', j.class_name) = ANY (:classes::text[]) AND live.manual_priority IS NULL
  AND CASE WHEN live.amendments ? 'own_priority' THEN live.amendments ->> 'own_priority' ELSE j.spec ->> 'priority' END IS NULL
ORDER BY j.admission_order LIMIT :row_limit;
