"""Postgres by asyncpg: the truth that everything else follows.

- `pool.open_pool`: time limits on every side, jsonb as Python values.
- `pool.transaction`: commits with a known outcome, or raises `CommitUncertain`.
- `pool.DedicatedConnection`: for advisory locks, which a pool would silently release.
- `queries.load_queries`: named statements from the service's `sql/queries.sql`.
- `transient.is_transient`: which errors pass by themselves.
- `outbox.Outbox`: what was committed is published, in order, at least once.
"""
