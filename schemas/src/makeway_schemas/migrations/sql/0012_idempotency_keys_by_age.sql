-- Keys are forgotten by age, a few at a time.
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);
COMMENT ON TABLE idempotency_keys IS 'admission: a submit that is repeated with its key is the first job; kept for a day';
