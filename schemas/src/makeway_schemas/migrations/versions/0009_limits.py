"""limits"""

from makeway_schemas.migrations.apply import apply_sql

revision = "0009_limits"
down_revision = "0008_operations"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0009_limits")
