"""idempotency keys by age"""

from makeway_schemas.migrations.apply import apply_sql

revision = "0012_idempotency_keys_by_age"
down_revision = "0011_commands_to_runs"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0012_idempotency_keys_by_age")
