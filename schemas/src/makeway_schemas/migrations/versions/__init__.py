"""One small file a migration; the SQL is in ``../sql``."""
