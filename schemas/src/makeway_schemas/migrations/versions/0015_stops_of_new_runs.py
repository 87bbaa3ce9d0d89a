"""stops of new runs"""

from makeway_schemas.migrations.apply import apply_sql

revision = "0015_stops_of_new_runs"
down_revision = "0014_signs_of_life"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0015_stops_of_new_runs")
