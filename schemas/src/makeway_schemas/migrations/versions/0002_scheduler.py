"""scheduler"""

from makeway_schemas.migrations.apply import apply_sql

revision = "0002_scheduler"
down_revision = "0001_admission"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0002_scheduler")
