-- name: ping$
-- One round trip.
SELECT 1;

-- name: try_lock$
-- Takes this session's advisory lock, or says that another session has it.
SELECT pg_try_advisory_lock(:key::bigint);
