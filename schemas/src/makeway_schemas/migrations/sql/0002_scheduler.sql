-- What the scheduler writes: nodes, GPUs, the state of jobs, runs, preemptions, decisions, events, plans.

CREATE TABLE nodes (
    node_id     text PRIMARY KEY,
    pool_id     text NOT NULL REFERENCES pools (pool_id),
    state       text NOT NULL CHECK (state IN ('READY', 'UNKNOWN', 'DEAD')),
    cordoned    boolean NOT NULL DEFAULT false,
    accepts_runs boolean NOT NULL DEFAULT true,
    refusal     text NOT NULL DEFAULT '',
    session     text NOT NULL,
    boot_id     text NOT NULL,
    simulated   boolean NOT NULL DEFAULT false,
    cpus        integer NOT NULL DEFAULT 0,
    memory_mib  bigint NOT NULL DEFAULT 0,
    labels      jsonb NOT NULL DEFAULT '{}',
    agent_version text NOT NULL DEFAULT '',
    registered_at timestamptz NOT NULL DEFAULT now(),
    state_since timestamptz NOT NULL DEFAULT now(),
    version     bigint NOT NULL DEFAULT 1
);
COMMENT ON TABLE nodes IS 'a heartbeat writes nothing here: when a node was last heard is in the owner''s memory';

CREATE TABLE gpus (
    gpu_id       text PRIMARY KEY,
    node_id      text NOT NULL,
    gpu_index    integer NOT NULL CHECK (gpu_index >= 0),
    type_name    text NOT NULL,
    capacity_mib integer NOT NULL CHECK (capacity_mib >= 0),
    reserved_mib integer NOT NULL DEFAULT 0 CHECK (reserved_mib >= 0),
    capacity_slots integer NOT NULL DEFAULT 4 CHECK (capacity_slots > 0),
    mig_profile  text,
    link_group   integer,
    condition    text NOT NULL DEFAULT 'ok' CHECK (condition IN ('ok', 'occupied', 'quarantined', 'lost')),
    cordoned     boolean NOT NULL DEFAULT false,
    reason       text NOT NULL DEFAULT '',
    live_mib     integer NOT NULL DEFAULT 0 CHECK (live_mib >= 0),
    leaving_mib  integer NOT NULL DEFAULT 0 CHECK (leaving_mib >= 0),
    next_mib     integer NOT NULL DEFAULT 0 CHECK (next_mib >= 0),
    live_slots   integer NOT NULL DEFAULT 0 CHECK (live_slots >= 0),
    leaving_slots integer NOT NULL DEFAULT 0 CHECK (leaving_slots >= 0),
    next_slots   integer NOT NULL DEFAULT 0 CHECK (next_slots >= 0),
    version      bigint NOT NULL DEFAULT 1,
    CONSTRAINT no_oversell_now CHECK (
        live_mib + leaving_mib <= capacity_mib AND live_slots + leaving_slots <= capacity_slots
    ),
    CONSTRAINT no_oversell_next CHECK (
        live_mib + next_mib <= capacity_mib AND live_slots + next_slots <= capacity_slots
    )
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
COMMENT ON COLUMN gpus.live_mib IS 'the six sums are moved by the triggers of leases alone; no role may update them';

CREATE TABLE job_states (
    job_id          text PRIMARY KEY,
    pool_id         text NOT NULL,
    team_id         text NOT NULL,
    state           text NOT NULL CHECK (state IN (
        'QUEUED', 'HELD', 'UNSATISFIABLE', 'RESERVED', 'STARTING', 'RUNNING', 'STOPPING', 'UNKNOWN',
        'SUCCEEDED', 'FAILED', 'CANCELLED', 'TIMED_OUT', 'EXPIRED')),
    reason_code     text NOT NULL DEFAULT '',
    reason          text NOT NULL DEFAULT '',
    reason_detail   jsonb NOT NULL DEFAULT '{}',
    manual_priority integer,
    run_number      integer NOT NULL DEFAULT 0 CHECK (run_number >= 0),
    preemptions     integer NOT NULL DEFAULT 0 CHECK (preemptions >= 0),
    infrastructure_failures integer NOT NULL DEFAULT 0,
    hold_failures   integer NOT NULL DEFAULT 0,
    no_victims_until timestamptz,
    retry_at        timestamptz,
    cancel_requested boolean NOT NULL DEFAULT false,
    queued_since    timestamptz,
    first_started_at timestamptz,
    last_started_at timestamptz,
    used_seconds    double precision NOT NULL DEFAULT 0 CHECK (used_seconds >= 0),
    last_ack_step   bigint,
    last_end        text NOT NULL DEFAULT '',
    last_victim_run text,
    restart_seconds double precision,
    ended_at        timestamptz,
    end_cause       text,
    exit_code       integer,
    message         text NOT NULL DEFAULT '',
    version         bigint NOT NULL DEFAULT 1,
    CONSTRAINT ended_iff_terminal CHECK (
        (state IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'TIMED_OUT', 'EXPIRED')) = (ended_at IS NOT NULL)
    ),
    CONSTRAINT waits_since_iff_waiting CHECK (
        state NOT IN ('QUEUED', 'HELD', 'UNSATISFIABLE') OR queued_since IS NOT NULL
    )
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
CREATE INDEX job_states_live ON job_states (pool_id, job_id) WHERE ended_at IS NULL;
CREATE INDEX job_states_ended ON job_states (ended_at) WHERE ended_at IS NOT NULL;

CREATE FUNCTION terminal_states_never_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job % is % and stays so', OLD.job_id, OLD.state USING ERRCODE = 'MW004';
END $$;
CREATE TRIGGER terminal_states_never_change BEFORE UPDATE ON job_states FOR EACH ROW
    WHEN (OLD.ended_at IS NOT NULL AND NEW.state IS DISTINCT FROM OLD.state)
    EXECUTE FUNCTION terminal_states_never_change();

CREATE TABLE team_progress (
    team_id text PRIMARY KEY,
    settled bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE team_progress IS 'per team: jobs that no longer wait; moved by deltas in the trigger below, audited by a query';

CREATE FUNCTION count_settled_jobs() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO team_progress AS progress (team_id, settled)
        SELECT team_id, count(*) FROM new_rows WHERE state NOT IN ('QUEUED', 'HELD', 'UNSATISFIABLE') GROUP BY team_id ORDER BY team_id
        ON CONFLICT (team_id) DO UPDATE SET settled = progress.settled + EXCLUDED.settled;
    ELSE
        INSERT INTO team_progress AS progress (team_id, settled)
        SELECT team_id, sum(delta) FROM (
            SELECT team_id, 1 AS delta FROM new_rows WHERE state NOT IN ('QUEUED', 'HELD', 'UNSATISFIABLE')
            UNION ALL
            SELECT team_id, -1 FROM old_rows WHERE state NOT IN ('QUEUED', 'HELD', 'UNSATISFIABLE')
        ) AS deltas GROUP BY team_id HAVING sum(delta) <> 0 ORDER BY team_id
        ON CONFLICT (team_id) DO UPDATE SET settled = progress.settled + EXCLUDED.settled;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER count_settled_on_insert AFTER INSERT ON job_states
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_settled_jobs();
CREATE TRIGGER count_settled_on_update AFTER UPDATE ON job_states
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_settled_jobs();

CREATE TABLE runs (
    run_id      text PRIMARY KEY,
    job_id      text NOT NULL,
    run_number  integer NOT NULL CHECK (run_number > 0),
    pool_id     text NOT NULL,
    node_id     text NOT NULL,
    state       text NOT NULL CHECK (state IN ('PLANNED', 'STARTING', 'RUNNING', 'NOTICED', 'EXITED', 'RELEASED')),
    value       integer NOT NULL,
    gpus        jsonb NOT NULL,
    cpus        double precision NOT NULL DEFAULT 0,
    memory_mib  bigint NOT NULL DEFAULT 0,
    after_runs  text[] NOT NULL DEFAULT '{}',
    trigger     text NOT NULL DEFAULT 'free',
    restart_seconds double precision,
    promoted    boolean NOT NULL DEFAULT false,
    after_preemption boolean NOT NULL DEFAULT false,
    withdrawing boolean NOT NULL DEFAULT false,
    stop_cause  text,
    stop_grace_seconds double precision,
    pid         integer,
    planned_at  timestamptz NOT NULL,
    started_at  timestamptz,
    stop_at     timestamptz,
    leaves_by   timestamptz,
    empty_at    timestamptz,
    begun_at    timestamptz,
    noticed_at  timestamptz,
    resumed_at  timestamptz,
    resumed_step bigint,
    load_seconds double precision,
    ack_step    bigint,
    ack_bytes   bigint,
    ack_fraction double precision,
    acked_at    timestamptz,
    ended_at    timestamptz,
    end_cause   text,
    exit_code   integer,
    signal      integer,
    forced      boolean NOT NULL DEFAULT false,
    run_seconds double precision CHECK (run_seconds >= 0),
    log_bytes   bigint,
    message     text NOT NULL DEFAULT '',
    traceparent text,
    UNIQUE (job_id, run_number),
    CONSTRAINT ended_iff_exited CHECK ((state IN ('EXITED', 'RELEASED')) = (ended_at IS NOT NULL)),
    CONSTRAINT one_cause_iff_ended CHECK ((ended_at IS NOT NULL) = (end_cause IS NOT NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
COMMENT ON COLUMN runs.gpus IS 'the placement: [{gpu_id, vram_mib, slots}]; a run without leases that is still PLANNED waits for a hold that it took over';
CREATE UNIQUE INDEX one_unended_run_a_job ON runs (job_id) WHERE ended_at IS NULL;
CREATE INDEX runs_unreleased ON runs (pool_id) WHERE state <> 'RELEASED';

CREATE TABLE preemptions (
    preemption_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pool_id        text NOT NULL,
    preemptor_job  text,
    preemptor_run  text,
    victim_job     text NOT NULL,
    victim_run     text NOT NULL UNIQUE,
    trigger        text NOT NULL CHECK (trigger IN ('arrival', 'sla_promotion', 'manual', 'reclaim', 'drain')),
    rule           text NOT NULL,
    preemptor_value integer,
    victim_value   integer NOT NULL,
    expected_cost  double precision NOT NULL DEFAULT 0,
    gpu_count      integer NOT NULL DEFAULT 0,
    decided_at     timestamptz NOT NULL,
    noticed_at     timestamptz,
    acked_at       timestamptz,
    acked_step     bigint,
    acked_bytes    bigint,
    exited_at      timestamptz,
    forced         boolean,
    empty_at       timestamptz,
    bound_at       timestamptz,
    resumed_at     timestamptz,
    resumed_step   bigint,
    load_seconds   double precision,
    lost_gpu_seconds double precision,
    void           boolean NOT NULL DEFAULT false
);
CREATE INDEX preemptions_by_victim ON preemptions (victim_job, decided_at);
CREATE INDEX preemptions_by_preemptor ON preemptions (preemptor_run);

CREATE TABLE decisions (
    decision_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pool_id     text NOT NULL,
    job_id      text NOT NULL,
    epoch       bigint NOT NULL,
    decided_at  timestamptz NOT NULL,
    choice      text NOT NULL,
    reason_code text NOT NULL,
    reason      text NOT NULL,
    detail      jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX decisions_by_job ON decisions (job_id, decision_id DESC);
CREATE INDEX decisions_by_time ON decisions (decided_at);

CREATE TABLE job_events (
    event_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pool_id     text NOT NULL,
    job_id      text NOT NULL,
    run_number  integer,
    at          timestamptz NOT NULL,
    kind        text NOT NULL,
    state       text NOT NULL,
    data        jsonb NOT NULL DEFAULT '{}',
    causation_id text,
    traceparent text,
    published   boolean NOT NULL DEFAULT false
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX job_events_by_job ON job_events (job_id, event_id);
CREATE INDEX job_events_unpublished ON job_events (event_id) WHERE NOT published;
CREATE INDEX job_events_by_time ON job_events (at);
COMMENT ON TABLE job_events IS 'the history of each job; with the published flag it is also the outbox of job.events';

CREATE TABLE plans (
    node_id    text PRIMARY KEY,
    epoch      bigint NOT NULL,
    number     bigint NOT NULL,
    session    text NOT NULL,
    planned_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
COMMENT ON TABLE plans IS 'the newest number of each node; the plan itself is made from the unreleased runs and repeated on request';

CREATE TABLE applied_commands (
    command_id bigint PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now(),
    outcome    text NOT NULL
);

CREATE TABLE failing_facts (
    fact_id    text PRIMARY KEY,
    attempts   integer NOT NULL DEFAULT 1,
    last_error text NOT NULL,
    last_at    timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE failing_facts IS 'attempts of a fact that cannot be applied; after the last it goes to the dead letters';
