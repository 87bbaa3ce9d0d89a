-- What admission writes: teams, tokens, jobs (immutable once inserted), commands, its outbox.

CREATE TABLE pools (
    pool_id    text PRIMARY KEY,
    epoch      bigint NOT NULL DEFAULT 0 CHECK (epoch >= 0),
    owner      text,
    taken_at   timestamptz,
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE pools IS 'scheduler: the epoch fences the owner; only taking over writes this row';

CREATE TABLE teams (
    team_id     text PRIMARY KEY,
    gpu_limit   integer CHECK (gpu_limit >= 0),
    guarantee   integer NOT NULL DEFAULT 0 CHECK (guarantee >= 0),
    weight      double precision NOT NULL DEFAULT 1 CHECK (weight >= 0 AND weight < 'Infinity'),
    max_queued  integer NOT NULL DEFAULT 100000 CHECK (max_queued >= 0),
    class_limits jsonb NOT NULL DEFAULT '{}',
    allowances  jsonb NOT NULL DEFAULT '{}',
    configured  boolean NOT NULL DEFAULT false,
    admitted    bigint NOT NULL DEFAULT 0,
    version     bigint NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL DEFAULT now(),
    CHECK (gpu_limit IS NULL OR gpu_limit >= guarantee)
);
COMMENT ON COLUMN teams.admitted IS 'jobs ever admitted; minus team_progress.settled it is the number waiting, so nobody counts rows';

CREATE TABLE tokens (
    token_id    text PRIMARY KEY,
    secret_hash bytea NOT NULL CHECK (octet_length(secret_hash) = 32),
    role        text NOT NULL CHECK (role IN ('viewer', 'submitter', 'admin', 'node')),
    team_id     text REFERENCES teams (team_id),
    node_id     text,
    classes     text[],
    label       text NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL DEFAULT now(),
    created_by  text NOT NULL,
    expires_at  timestamptz,
    revoked_at  timestamptz,
    CHECK ((role = 'node') = (node_id IS NOT NULL))
);

CREATE TABLE jobs (
    job_id       text PRIMARY KEY CHECK (job_id ~ '^[0-9a-z]{12}$'),
    admission_order bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    pool_id      text NOT NULL,
    team_id      text NOT NULL,
    name         text NOT NULL,
    class_name   text NOT NULL,
    spec         jsonb NOT NULL,
    submitted_by text NOT NULL,
    submitted_at timestamptz NOT NULL DEFAULT now(),
    traceparent  text
);
CREATE INDEX jobs_by_name ON jobs (name, admission_order DESC);
CREATE INDEX jobs_by_team ON jobs (team_id, admission_order DESC);
CREATE INDEX jobs_by_time ON jobs (submitted_at);

CREATE TABLE idempotency_keys (
    team_id      text NOT NULL,
    key          text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    request_hash bytea NOT NULL,
    job_id       text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (team_id, key)
);

CREATE TABLE commands (
    command_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pool_id     text NOT NULL,
    job_id      text NOT NULL,
    command     text NOT NULL,
    arguments   jsonb NOT NULL DEFAULT '{}',
    issued_by   text NOT NULL,
    issued_at   timestamptz NOT NULL DEFAULT now(),
    traceparent text
);
CREATE INDEX commands_by_job ON commands (job_id, command_id);
CREATE INDEX commands_by_time ON commands (issued_at);

CREATE TABLE policies (
    policy_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pool_id    text NOT NULL,
    body       jsonb NOT NULL,
    applied_by text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE admission_outbox (
    outbox_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pool_id     text NOT NULL,
    fact        jsonb NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
COMMENT ON TABLE admission_outbox IS 'facts for scheduler.inbox; a row is deleted once it is published (the fact carries its traceparent)';
