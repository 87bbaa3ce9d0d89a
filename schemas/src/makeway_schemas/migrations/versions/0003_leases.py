"""leases"""

from makeway_schemas.migrations.apply import apply_sql

revision = "0003_leases"
down_revision = "0002_scheduler"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0003_leases")
