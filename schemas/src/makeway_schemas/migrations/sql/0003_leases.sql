-- Leases, and the sums that make oversell impossible whatever the code does.
-- The sums move by deltas in statement-level triggers with transition tables: a trigger that sums again lets two
-- concurrent inserts oversell, and a row-level one fails valid swaps.

CREATE TABLE leases (
    run_id   text NOT NULL REFERENCES runs (run_id),
    gpu_id   text NOT NULL,
    state    text NOT NULL CHECK (state IN ('LIVE', 'LEAVING', 'NEXT')),
    vram_mib integer NOT NULL CHECK (vram_mib >= 0),
    slots    integer NOT NULL CHECK (slots > 0),
    PRIMARY KEY (run_id, gpu_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
CREATE INDEX leases_by_gpu ON leases (gpu_id);
COMMENT ON TABLE leases IS 'no foreign key to gpus: locking a GPU row would block inserts; the trigger refuses an unknown GPU';

-- One function a kind of statement, because a transition table exists only for its own kind.
CREATE FUNCTION apply_gpu_deltas(gpu_ids text[], states text[], mib integer[], slots integer[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public AS $$
DECLARE
    wanted integer;
    moved integer;
BEGIN
    WITH deltas AS (
        SELECT d.gpu_id,
               coalesce(sum(d.mib) FILTER (WHERE d.state = 'LIVE'), 0) AS live_mib,
               coalesce(sum(d.mib) FILTER (WHERE d.state = 'LEAVING'), 0) AS leaving_mib,
               coalesce(sum(d.mib) FILTER (WHERE d.state = 'NEXT'), 0) AS next_mib,
               coalesce(sum(d.slots) FILTER (WHERE d.state = 'LIVE'), 0) AS live_slots,
               coalesce(sum(d.slots) FILTER (WHERE d.state = 'LEAVING'), 0) AS leaving_slots,
               coalesce(sum(d.slots) FILTER (WHERE d.state = 'NEXT'), 0) AS next_slots
        FROM unnest(gpu_ids, states, mib, slots) AS d (gpu_id, state, mib, slots)
        GROUP BY d.gpu_id
    ), locked AS MATERIALIZED (
        -- in id order, so that two statements never wait for each other in a ring
        SELECT g.gpu_id FROM gpus AS g WHERE g.gpu_id IN (SELECT gpu_id FROM deltas) ORDER BY g.gpu_id FOR NO KEY UPDATE
    ), updated AS (
        UPDATE gpus AS g
        SET live_mib = g.live_mib + d.live_mib, leaving_mib = g.leaving_mib + d.leaving_mib, next_mib = g.next_mib + d.next_mib,
            live_slots = g.live_slots + d.live_slots, leaving_slots = g.leaving_slots + d.leaving_slots,
            next_slots = g.next_slots + d.next_slots, version = g.version + 1
        FROM deltas AS d JOIN locked USING (gpu_id) WHERE g.gpu_id = d.gpu_id
        RETURNING 1
    )
    SELECT (SELECT count(*) FROM deltas), (SELECT count(*) FROM updated) INTO wanted, moved;
    IF wanted <> moved THEN
        RAISE EXCEPTION 'a lease names a GPU that is not registered' USING ERRCODE = 'MW005';
    END IF;
END $$;

CREATE FUNCTION leases_inserted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public AS $$
BEGIN
    PERFORM apply_gpu_deltas(array_agg(gpu_id), array_agg(state), array_agg(vram_mib), array_agg(slots)) FROM new_rows HAVING count(*) > 0;
    RETURN NULL;
END $$;

CREATE FUNCTION leases_deleted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public AS $$
BEGIN
    PERFORM apply_gpu_deltas(array_agg(gpu_id), array_agg(state), array_agg(-vram_mib), array_agg(-slots)) FROM old_rows HAVING count(*) > 0;
    RETURN NULL;
END $$;

CREATE FUNCTION leases_updated() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public AS $$
BEGIN
    PERFORM apply_gpu_deltas(array_agg(gpu_id), array_agg(state), array_agg(mib), array_agg(slots)) FROM (
        SELECT gpu_id, state, vram_mib AS mib, slots FROM new_rows
        UNION ALL
        SELECT gpu_id, state, -vram_mib, -slots FROM old_rows
    ) AS deltas HAVING count(*) > 0;
    RETURN NULL;
END $$;

CREATE TRIGGER leases_inserted AFTER INSERT ON leases REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION leases_inserted();
CREATE TRIGGER leases_deleted AFTER DELETE ON leases REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION leases_deleted();
CREATE TRIGGER leases_updated AFTER UPDATE ON leases REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION leases_updated();

REVOKE EXECUTE ON FUNCTION apply_gpu_deltas(text[], text[], integer[], integer[]) FROM PUBLIC;
