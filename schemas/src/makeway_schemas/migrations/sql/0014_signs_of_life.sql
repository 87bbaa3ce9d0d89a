-- An owner that hangs keeps its session and so the pool's lock; that it does not answer is told from its last sign of life.
-- In a table of its own: the row in pools is locked by every commit.
CREATE TABLE signs_of_life (
    pool_id  text PRIMARY KEY REFERENCES pools (pool_id),
    given_at timestamptz NOT NULL
);
GRANT SELECT ON signs_of_life TO makeway_admission;
GRANT SELECT, INSERT, UPDATE ON signs_of_life TO makeway_scheduler;
