"""avoidance"""

from makeway_schemas.migrations.apply import apply_sql

revision = "0016_avoidance"
down_revision = "0015_stops_of_new_runs"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0016_avoidance")
