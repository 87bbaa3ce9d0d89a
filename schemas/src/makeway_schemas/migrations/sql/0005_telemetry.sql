-- What telemetry writes: the newest reading of each GPU, and samples with a short history.

CREATE TABLE gpu_readings (
    gpu_id       text PRIMARY KEY,
    node_id      text NOT NULL,
    sampled_at   timestamptz NOT NULL,
    utilisation_percent real,
    memory_utilisation_percent real,
    vram_used_mib integer,
    vram_total_mib integer,
    power_watts  real,
    temperature_celsius real,
    processes    integer,
    healthy      boolean NOT NULL DEFAULT true,
    reason       text NOT NULL DEFAULT '',
    simulated    boolean NOT NULL DEFAULT false
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
COMMENT ON TABLE gpu_readings IS 'a reading that is not known is NULL, never 0';

CREATE TABLE samples (
    sampled_at   timestamptz NOT NULL,
    gpu_id       text NOT NULL,
    node_id      text NOT NULL,
    utilisation_percent real,
    vram_used_mib integer,
    power_watts  real,
    temperature_celsius real
);
CREATE INDEX samples_by_time ON samples USING brin (sampled_at);
