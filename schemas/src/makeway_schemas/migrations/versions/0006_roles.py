"""roles"""

from makeway_schemas.migrations.apply import apply_sql

revision = "0006_roles"
down_revision = "0005_telemetry"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0006_roles")
