-- name: upsert_readings!
-- Keeps the newest reading of each GPU; an older one changes nothing.
INSERT INTO gpu_readings (
    gpu_id, node_id, sampled_at, utilisation_percent, memory_utilisation_percent, vram_used_mib, vram_total_mib,
    power_watts, temperature_celsius, processes, healthy, reason, simulated
)
SELECT *
FROM unnest(
    :gpu_ids::text[], :node_ids::text[], :sampled_at::timestamptz[], :utilisation_percent::real[],
    :memory_utilisation_percent::real[], :vram_used_mib::integer[], :vram_total_mib::integer[], :power_watts::real[],
    :temperature_celsius::real[], :processes::integer[], :healthy::boolean[], :reasons::text[], :simulated::boolean[]
)
ON CONFLICT (gpu_id) DO UPDATE SET
    node_id = excluded.node_id,
    sampled_at = excluded.sampled_at,
    utilisation_percent = excluded.utilisation_percent,
    memory_utilisation_percent = excluded.memory_utilisation_percent,
    vram_used_mib = excluded.vram_used_mib,
    vram_total_mib = excluded.vram_total_mib,
    power_watts = excluded.power_watts,
    temperature_celsius = excluded.temperature_celsius,
    processes = excluded.processes,
    healthy = excluded.healthy,
    reason = excluded.reason,
    simulated = excluded.simulated
WHERE gpu_readings.sampled_at < excluded.sampled_at;

-- name: delete_old_samples!
-- Removes a bounded number of samples that are older than the history.
DELETE FROM samples
WHERE ctid = ANY (ARRAY (SELECT ctid FROM samples WHERE sampled_at < :before::timestamptz LIMIT :row_limit));

-- name: delete_old_readings!
-- Forgets GPUs that nobody has read for long.
DELETE FROM gpu_readings WHERE sampled_at < :before::timestamptz;

-- name: capacity
-- Every GPU of the cluster with what is leased of it.
SELECT
    gpu_id, node_id, gpu_index, type_name, capacity_mib, live_mib + leaving_mib AS leased_mib, condition,
    coalesce(mig_profile, '') AS mig_profile
FROM gpus
ORDER BY gpu_id;

-- name: leases_now
-- Which run has which GPU now, for joining in dashboards.
SELECT l.gpu_id, r.node_id, r.job_id, r.run_id, j.team_id AS team
FROM leases AS l
JOIN runs AS r ON r.run_id = l.run_id
JOIN jobs AS j ON j.job_id = r.job_id
WHERE l.state IN ('LIVE', 'LEAVING')
ORDER BY l.gpu_id, r.run_id;
