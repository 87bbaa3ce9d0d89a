"""percents"""

from makeway_schemas.migrations.apply import apply_sql

revision = "0010_percents"
down_revision = "0009_limits"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0010_percents")
