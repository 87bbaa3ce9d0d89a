"""telemetry"""

from makeway_schemas.migrations.apply import apply_sql

revision = "0005_telemetry"
down_revision = "0004_commit_batch"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0005_telemetry")
