"""operations"""

from makeway_schemas.migrations.apply import apply_sql

revision = "0008_operations"
down_revision = "0007_admit"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0008_operations")
