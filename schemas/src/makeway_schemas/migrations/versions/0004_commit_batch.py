"""commit batch"""

from makeway_schemas.migrations.apply import apply_sql

revision = "0004_commit_batch"
down_revision = "0003_leases"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0004_commit_batch")
