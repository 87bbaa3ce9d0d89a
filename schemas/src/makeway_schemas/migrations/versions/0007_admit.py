"""admit"""

from makeway_schemas.migrations.apply import apply_sql

revision = "0007_admit"
down_revision = "0006_roles"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0007_admit")
