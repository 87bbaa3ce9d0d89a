"""commands to runs"""

from makeway_schemas.migrations.apply import apply_sql

revision = "0011_commands_to_runs"
down_revision = "0010_percents"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0011_commands_to_runs")
