-- Each table has one writing service, and its role enforces it. Roles are of the whole server, so they may exist.
-- A concurrent migration of another database may create them at the same moment.
DO $$
DECLARE
    service text;
BEGIN
    FOREACH service IN ARRAY ARRAY['makeway_admission', 'makeway_scheduler', 'makeway_telemetry'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = service) THEN
                EXECUTE format('CREATE ROLE %I LOGIN', service);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
    END LOOP;
END $$;

REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO makeway_admission, makeway_scheduler, makeway_telemetry;

-- admission
GRANT SELECT ON ALL TABLES IN SCHEMA public TO makeway_admission;
GRANT INSERT, UPDATE ON teams, tokens TO makeway_admission;
GRANT INSERT ON jobs, commands, policies TO makeway_admission;
GRANT INSERT, DELETE ON idempotency_keys TO makeway_admission;
GRANT INSERT, DELETE ON admission_outbox TO makeway_admission;

-- scheduler
GRANT SELECT ON jobs, commands, teams, policies TO makeway_scheduler;
GRANT SELECT, INSERT, UPDATE ON pools, nodes, job_states, runs, preemptions, plans TO makeway_scheduler;
GRANT SELECT, INSERT ON decisions, job_events, applied_commands TO makeway_scheduler;
GRANT UPDATE (published) ON job_events TO makeway_scheduler;
GRANT DELETE ON decisions, job_events, applied_commands TO makeway_scheduler;
GRANT SELECT, INSERT, UPDATE, DELETE ON failing_facts TO makeway_scheduler;
GRANT SELECT, INSERT, DELETE ON leases TO makeway_scheduler;
GRANT UPDATE (state) ON leases TO makeway_scheduler;
GRANT SELECT, DELETE ON gpus TO makeway_scheduler;
GRANT INSERT (gpu_id, node_id, gpu_index, type_name, capacity_mib, reserved_mib, capacity_slots, mig_profile, link_group, condition, cordoned, reason)
    ON gpus TO makeway_scheduler;
GRANT UPDATE (node_id, gpu_index, type_name, capacity_mib, reserved_mib, capacity_slots, mig_profile, link_group, condition, cordoned, reason, version)
    ON gpus TO makeway_scheduler;
GRANT SELECT ON team_progress TO makeway_scheduler;

-- telemetry
GRANT SELECT ON nodes, gpus, leases, runs, job_states, jobs TO makeway_telemetry;
GRANT SELECT, INSERT, UPDATE, DELETE ON gpu_readings, samples TO makeway_telemetry;
